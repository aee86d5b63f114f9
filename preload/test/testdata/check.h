/* Checks of the test programs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Exit status of a program that needs a feature which this release of rdma-core lacks. */
#define MISSING 77

#define CHECK(cond)                                                                                  \
	do {                                                                                         \
		if (!(cond)) {                                                                       \
			fprintf(stderr, "%s:%d: %s (errno %d: %s)\n", __FILE__, __LINE__, #cond, errno, \
				strerror(errno));                                                    \
			exit(1);                                                                     \
		}                                                                                    \
	} while (0)

/* FAILS checks that a call fails with an error number. */
#define FAILS(call, number)            \
	do {                           \
		errno = 0;             \
		CHECK((call) == -1);   \
		CHECK(errno == number); \
	} while (0)
