/* Tries two impossible registrations, twice each: unmapped memory and, after standard error was
 * redirected to the file in argv[1], read-only memory. */
#include "verbs.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static void refused(struct ibv_pd *pd, void *p, int times)
{
	for (int i = 0; i < times; i++) {
		errno = 0;
		CHECK(ibv_reg_mr(pd, p, 100, IBV_ACCESS_LOCAL_WRITE) == NULL && errno == EFAULT);
	}
}

int main(int argc, char **argv)
{
	struct loop l = loop_open();
	char *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = argc == 2 ? open(argv[1], O_RDWR | O_CREAT, 0600) : -1;
	CHECK(p != MAP_FAILED && fd >= 0);
	refused(l.pd, (void *)4096, 2);
	CHECK(dup2(fd, 2) == 2);
	refused(l.pd, p, 2);
	return 0;
}
