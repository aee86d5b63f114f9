/* Threads with small stacks use files and verbs: the library takes little of a stack. */
#define _GNU_SOURCE
#include "user.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIZE = 1 << 17 };

static void *use_nothing(void *unused) { return unused; }

/* use_file calls functions whose paths the library examines. */
static void *use_file(void *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY);
	CHECK(fd >= 0 && close(fd) == 0 && stat(path, &st) == 0 && access(path, R_OK) == 0);
	return NULL;
}

static void *use_verbs(void *unused)
{
	struct user u = user_open();
	talk(&u);
	user_close(&u);
	return unused;
}

/* taken returns the bytes of its stack that a thread takes. The C library keeps data of the thread there, too. */
static long taken(void *(*f)(void *), void *arg)
{
	pthread_attr_t attr;
	pthread_t t;
	char *stack = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(stack != MAP_FAILED && pthread_attr_init(&attr) == 0 && pthread_attr_setstack(&attr, stack, SIZE) == 0);
	CHECK(pthread_create(&t, &attr, f, arg) == 0 && pthread_join(t, NULL) == 0);
	long free = 0;
	while (!stack[free])
		free++;
	CHECK(munmap(stack, SIZE) == 0);
	return SIZE - free;
}

/* check compares the bytes that f takes with a limit. The first call binds symbols. */
static void check(void *(*f)(void *), void *arg, long limit)
{
	f(arg);
	long got = taken(f, arg) - taken(use_nothing, NULL);
	if (got > limit) {
		fprintf(stderr, "%ld bytes of stack instead of %ld: %s\n", got, limit, arg ? (char *)arg : "verbs");
		exit(1);
	}
}

int main(void)
{
	check(use_file, "/proc/self/status", 2048);
	check(use_file, "/sys/class/infiniband/rxe0/ports/1/counters/port_rcv_data", 8192);
	check(use_file, "/dev/infiniband/uverbs0", 6144);
	check(use_verbs, NULL, 8192);
	return 0;
}
