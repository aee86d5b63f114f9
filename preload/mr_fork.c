/* fork(): the child gets a copy of replaced memory, as of private anonymous memory. */
#include "mr.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The child copies the pages that it shares with the parent. The parent waits, so that the
 * copy has the content at the time of fork(). */
static int copied[2] = { -1, -1 };

static void before_fork(void)
{
	KEEP_ERRNO;
	mr_lock();
	if (backing_fd() < 0 || pipe2(copied, O_CLOEXEC) != 0)
		copied[0] = copied[1] = -1;
}

static void in_parent(void)
{
	KEEP_ERRNO;
	char c;
	if (copied[0] >= 0) {
		syscall(SYS_close, copied[1]);
		/* Returns when the child has finished or died. */
		while (syscall(SYS_read, copied[0], &c, 1) < 0 && errno == EINTR)
			;
		syscall(SYS_close, copied[0]);
	}
	mr_unlock();
}

/* read_data reads a part of the memfd into zeroed memory. It skips holes, which may be large. */
static bool read_data(int fd, uint8_t *p, uint64_t offset, uint64_t end)
{
	const uint64_t start = offset;
	while (offset < end) {
		off_t from = lseek(fd, offset, SEEK_DATA);
		if (from < 0)
			return errno == ENXIO;
		if ((uint64_t)from >= end)
			return true;
		ssize_t n = syscall(SYS_pread64, fd, p + (from - start), end - from, from);
		if (n <= 0)
			return false;
		offset = from + n;
	}
	return true;
}

/* unshare_vma replaces memory of the memfd with a copy. */
static bool unshare_vma(const struct vma *v, void *arg)
{
	size_t n = v->end - v->start;
	int fd = *(int *)arg;
	if (v->kind != VMA_OURS)
		return true;
	void *p = (void *)syscall(SYS_mmap, NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED || !read_data(fd, p, v->offset, v->offset + n) ||
	    (uint64_t)syscall(SYS_mremap, p, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, v->start) != v->start)
		_exit(127); /* the child must never run on the parent's memory */
	return true;
}

static void in_child(void)
{
	KEEP_ERRNO;
	if (copied[0] >= 0) {
		int fd = backing_fd();
		maps_walk(0, UINT64_MAX, unshare_vma, &fd);
		backing_abandon();
		syscall(SYS_close, copied[0]);
		syscall(SYS_close, copied[1]);
	}
	mr_forget();
	mr_unlock();
}

/* Registers after the handler of process.c and before those of death.c. */
__attribute__((constructor(102))) static void begin(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}
