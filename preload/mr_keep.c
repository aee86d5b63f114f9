/*
 * What programs do to replaced memory, which they take for private anonymous memory,
 * and what must come of it. munmap(), mmap() over it, mprotect(), mlock() and the
 * like need nothing.
 *
 * UCX and others overwrite the C library's functions, to hear of memory that goes: what
 * the program does passes there, too, by the ordinary functions.
 */
#include "preload.h"
#include "mr.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- fork ---- */

/* The child's memory is its own from the moment of fork() on. It copies what it
 * shares with the parent, and the parent waits until it has. */
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
		/* Ends when the child is done, or has died. */
		while (syscall(SYS_read, copied[0], &c, 1) < 0 && errno == EINTR)
			;
		syscall(SYS_close, copied[0]);
	}
	mr_unlock();
}

/* read_data reads a part of the memfd into fresh memory. Its holes, which may be
 * large, are left out. */
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

/* make_own replaces memory of the memfd by a copy. */
static bool make_own(const struct vma *v, void *arg)
{
	size_t n = v->end - v->start;
	int fd = *(int *)arg;
	if (v->kind != VMA_OURS)
		return true;
	void *p = (void *)syscall(SYS_mmap, NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED || !read_data(fd, p, v->offset, v->offset + n) ||
	    (uint64_t)syscall(SYS_mremap, p, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, v->start) != v->start)
		_exit(127); /* never with the parent's memory */
	return true;
}

static void in_child(void)
{
	KEEP_ERRNO;
	if (copied[0] >= 0) {
		int fd = backing_fd();
		maps_walk(0, UINT64_MAX, make_own, &fd);
		backing_abandon();
		syscall(SYS_close, copied[0]);
		syscall(SYS_close, copied[1]);
	}
	mr_forget();
	mr_unlock();
}

void keep_start(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}

/* ---- madvise ---- */

/* drop_pages: after MADV_DONTNEED private anonymous memory reads as zeros. */
static bool drop_pages(const struct vma *v, void *arg)
{
	(void)arg;
	if (v->kind == VMA_OURS)
		backing_zero(v->offset, v->end - v->start);
	return true;
}

/* free_others: MADV_FREE permits the kernel to take pages away, which it does not
 * do to a file's. */
static bool free_others(const struct vma *v, void *arg)
{
	int *result = arg;
	if (v->kind != VMA_OURS)
		*result = syscall(SYS_madvise, v->start, v->end - v->start, MADV_FREE);
	return *result == 0;
}

static int do_madvise(void *addr, size_t length, int advice)
{
	uint64_t start = (uintptr_t)addr, end = start + ((length + MR_PAGE - 1) & ~(MR_PAGE - 1));
	REAL(madvise);
	if (backing_fd() < 0 || (advice != MADV_DONTNEED && advice != MADV_FREE) || start % MR_PAGE || end < start)
		return real_madvise(addr, length, advice);
	int result = 0;
	if (advice == MADV_FREE)
		return maps_walk(start, end, free_others, &result) ? result : -1;
	result = real_madvise(addr, length, advice);
	if (result == 0)
		maps_walk(start, end, drop_pages, NULL);
	return result;
}

/* ---- mremap ---- */

static bool find_ours(const struct vma *v, void *arg)
{
	*(bool *)arg = v->kind == VMA_OURS;
	return v->kind != VMA_OURS;
}

/* move_grown moves memory to where there is room for more, which reads as zeros. */
static void *move_grown(void *from, size_t old, size_t new, int flags, void *to)
{
	if (!(flags & MREMAP_MAYMOVE)) {
		errno = ENOMEM; /* as if something were in the way */
		return MAP_FAILED;
	}
	bool fixed = flags & MREMAP_FIXED;
	void *p = mmap(fixed ? to : NULL, new, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | (fixed ? MAP_FIXED : 0), -1, 0);
	if (p == MAP_FAILED)
		return p;
	memcpy(p, from, old);
	munmap(from, old);
	return p;
}

EXPORT int roced_madvise(void *addr, size_t length, int advice)
{
	int was = errno;
	return kept(was, do_madvise(addr, length, advice));
}

INTERPOSE(madvise);

/* mremap of the C library itself, in realloc(), does not come here: the mapping then
 * grows into its stretch of the memfd. Other programs expect zeros there. */
EXPORT void *roced_mremap(void *from, size_t old, size_t new, int flags, ...)
{
	va_list v;
	va_start(v, flags);
	void *to = va_arg(v, void *);
	va_end(v);
	bool ours = false;
	uint64_t start = (uintptr_t)from;
	int was = errno;
	REAL(mremap);
	if (new > old && old > 0 && !(flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED)) && backing_fd() >= 0)
		maps_walk(start, start + old, find_ours, &ours);
	errno = was;
	if (ours)
		return move_grown(from, old, new, flags, to);
	return real_mremap(from, old, new, flags, to);
}

INTERPOSE(mremap);
