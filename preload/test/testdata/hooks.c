/* A program that tracks its memory like UCX and Open MPI: it overwrites the functions that change
 * mappings with jumps to its own functions, which make the system calls. argv[1] selects the
 * functions: of the C library ("libc"), as UCX does, or those that dlsym finds "first", as Open
 * MPI does. */
#define _GNU_SOURCE
#include "verbs.h"

#include <dlfcn.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

static volatile int mmaps, munmaps, madvises, mremaps;

static void *my_mmap(void *addr, size_t n, int prot, int flags, int fd, off_t off)
{
	mmaps++;
	return (void *)syscall(SYS_mmap, addr, n, prot, flags, fd, off);
}

static int my_munmap(void *addr, size_t n)
{
	munmaps++;
	return syscall(SYS_munmap, addr, n);
}

static int my_madvise(void *addr, size_t n, int advice)
{
	madvises++;
	return syscall(SYS_madvise, addr, n, advice);
}

static void *my_mremap(void *from, size_t old, size_t new, int flags, ...)
{
	va_list v;
	va_start(v, flags);
	void *to = va_arg(v, void *);
	va_end(v);
	mremaps++;
	return (void *)syscall(SYS_mremap, from, old, new, flags, to);
}

/* overwrite writes a jump to `to` at the start of a function. */
static void overwrite(void *scope, const char *name, void *to)
{
	uint8_t *f = dlsym(scope, name);
	CHECK(f != NULL);
	uint8_t *page = (uint8_t *)((uintptr_t)f & ~(uintptr_t)(PAGE - 1));
	CHECK(syscall(SYS_mprotect, page, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
#if defined __x86_64__
	uint8_t jump[] = { 0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3 }; /* movabs r11; jmp *r11 */
	memcpy(jump + 2, &to, sizeof to);
	memcpy(f, jump, sizeof jump);
#elif defined __aarch64__
	uint32_t jump[4] = { 0x58000050, 0xd61f0200 }; /* ldr x16, .+8; br x16 */
	memcpy(jump + 2, &to, sizeof to);
	memcpy(f, jump, sizeof jump);
	__builtin___clear_cache((char *)f, (char *)f + sizeof jump);
#else
	exit(0); /* no such program on this processor */
#endif
}

static char *fresh(size_t n)
{
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	return p;
}

static int zeros(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return 0;
	return 1;
}

/* messages checks queue pairs of two contexts. */
static void messages(void)
{
	for (int round = 0; round < 2; round++) {
		struct loop l = loop_open();
		struct ibv_cq *cq = ibv_create_cq(l.ctx, 16, NULL, NULL, 0);
		CHECK(cq != NULL);
		struct ibv_qp *qp = loop_qp(&l, cq, cq);
		CHECK(ibv_resize_cq(cq, 100) == 0);
		post_recv(&l, qp, 1);
		CHECK(post_send(&l, qp, 2) == 0);
		CHECK(reap(cq).status == IBV_WC_SUCCESS && reap(cq).status == IBV_WC_SUCCESS);
		/* A duplicate of the device's descriptor stands for the same, and a device is
		 * always ready. */
		int copy = dup(l.ctx->cmd_fd);
		struct pollfd p = { .fd = copy, .events = POLLIN | POLLOUT };
		CHECK(copy >= 0 && poll(&p, 1, 0) == 1 && p.revents == (POLLIN | POLLOUT));
		CHECK(close(copy) == 0);
		CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
		CHECK(ibv_dereg_mr(l.mr) == 0 && ibv_dealloc_pd(l.pd) == 0 && ibv_close_device(l.ctx) == 0);
		free(l.buf);
	}
}

/* memory checks that calls on registered memory have their usual effect. */
static void memory(void)
{
	struct loop l = loop_open();
	char *p = fresh(64 * PAGE);
	struct ibv_mr *mr = ibv_reg_mr(l.pd, p, 64 * PAGE, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr != NULL);
	memset(p, 7, 64 * PAGE);
	int before = madvises;
	CHECK(madvise(p + 8 * PAGE, 8 * PAGE, MADV_DONTNEED) == 0);
	CHECK(madvises > before);
	CHECK(zeros(p + 8 * PAGE, 8 * PAGE) && p[8 * PAGE - 1] == 7 && p[16 * PAGE] == 7);
	CHECK(madvise(p, 8 * PAGE, MADV_FREE) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	/* Shorter, then longer: the new part is zero, and the hooks have seen the move. */
	CHECK(mremap(p, 64 * PAGE, 32 * PAGE, 0) == p);
	before = mremaps + munmaps;
	char *q = mremap(p, 32 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED && zeros(q + 32 * PAGE, 32 * PAGE) && q[31 * PAGE] == 7);
	CHECK(mremaps + munmaps > before);
	before = munmaps;
	CHECK(munmap(q, 64 * PAGE) == 0 && munmaps > before);
}

int main(int argc, char **argv)
{
	void *scope = argc > 1 && !strcmp(argv[1], "libc") ? dlopen("libc.so.6", RTLD_LAZY) : RTLD_DEFAULT;
	overwrite(scope, "mmap", (void *)my_mmap);
	overwrite(scope, "munmap", (void *)my_munmap);
	overwrite(scope, "madvise", (void *)my_madvise);
	overwrite(scope, "mremap", (void *)my_mremap);
	messages();
	CHECK(mmaps > 0 && munmaps > 0); /* calls of the provider for its rings */
	memory();
	return 0;
}
