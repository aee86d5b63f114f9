/*
 * madvise() and mremap() on replaced memory, which must behave like private anonymous memory.
 * munmap(), mmap() over it, mprotect(), mlock() and similar calls need no interposition.
 *
 * UCX and others patch the C library's functions to track freed memory. So this file calls
 * the ordinary functions, not system calls, on behalf of the program.
 */
#include "interpose.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- madvise ---- */

/* drop_pages implements MADV_DONTNEED: private anonymous memory then reads as zeros. */
static bool drop_pages(const struct vma *v, void *arg)
{
	(void)arg;
	if (v->kind == VMA_OURS)
		replace_drop(v->offset, v->end - v->start);
	return true;
}

/* free_others applies MADV_FREE to other memory. The call is a hint, which the kernel rejects
 * for files. */
static bool free_others(const struct vma *v, void *arg)
{
	int *result = arg;
	if (v->kind != VMA_OURS)
		*result = syscall(SYS_madvise, v->start, v->end - v->start, MADV_FREE);
	return *result == 0;
}

/* by_verbs returns true if libibverbs has made a call. After ibv_fork_init() it keeps registered
 * pages from children, unless it is new enough (51) to ask whether that is needed. */
static bool by_verbs(const void *caller)
{
	static const char verbs[] = "libibverbs.so";
	Dl_info info;
	if (!preload_active() || !dladdr(caller, &info) || !info.dli_fname)
		return false;
	const char *name = strrchr(info.dli_fname, '/');
	return !strncmp(name ? name + 1 : info.dli_fname, verbs, sizeof verbs - 1);
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
	if (result == 0) {
		mr_lock();
		maps_walk(start, end, drop_pages, NULL);
		mr_unlock();
	}
	return result;
}

/* ---- mremap ---- */

static bool find_ours(const struct vma *v, void *arg)
{
	*(bool *)arg = v->kind == VMA_OURS;
	return v->kind != VMA_OURS;
}

/* move_grown moves memory to a larger place. The new part reads as zeros. */
static void *move_grown(void *from, size_t old, size_t new, int flags, void *to)
{
	if (!(flags & MREMAP_MAYMOVE)) {
		errno = ENOMEM; /* as if the next page were in use */
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
	if ((advice == MADV_DONTFORK || advice == MADV_DOFORK) && by_verbs(__builtin_return_address(0)))
		return keep_errno(was, 0);
	return keep_errno(was, do_madvise(addr, length, advice));
}

INTERPOSE(madvise);

/* realloc() of the C library does not call this function; its mappings grow within their
 * reserved part of the memfd. Other callers expect zeros in the new part. */
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
	if (old > 0 && backing_fd() >= 0)
		maps_walk(start, start + old, find_ours, &ours);
	errno = was;
	if (ours && new > old && !(flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED)))
		return move_grown(from, old, new, flags, to);
	void *p = real_mremap(from, old, new, flags, to);
	if (ours && p != from && p != MAP_FAILED) {
		mr_lock();
		stretch_moved();
		mr_unlock();
	}
	return p;
}

INTERPOSE(mremap);
