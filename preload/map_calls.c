/*
 * mmap() and munmap(), which show the files that the program shares with others (shared.c).
 *
 * Allocators call mmap() before dlsym() can work, so the functions behind these are looked up
 * early, and calls before that are system calls. Calls of the C library itself do not get here.
 */
#include "interpose.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if UINTPTR_MAX == UINT64_MAX /* others pass the offset in two ways, and cannot address much memory */

typedef void *mmap_fn(void *, size_t, int, int, int, off_t);
typedef int munmap_fn(void *, size_t);
static _Atomic(mmap_fn *) next_mmap;
static _Atomic(munmap_fn *) next_munmap;

__attribute__((constructor)) static void begin(void)
{
	next_mmap = (mmap_fn *)next_symbol("mmap");
	next_munmap = (munmap_fn *)next_symbol("munmap");
}

EXPORT void *roced_mmap(void *addr, size_t n, int prot, int flags, int fd, off_t offset)
{
	mmap_fn *real = next_mmap;
	void *p = real ? real(addr, n, prot, flags, fd, offset) :
			 (void *)syscall(SYS_mmap, addr, n, prot, flags, fd, offset);
	if (p != MAP_FAILED && flags & MAP_SHARED && !(flags & MAP_ANONYMOUS))
		shared_mapped(fd, (uintptr_t)p, n);
	return p;
}

EXPORT int roced_munmap(void *addr, size_t n)
{
	munmap_fn *real = next_munmap;
	int ret = real ? real(addr, n) : (int)syscall(SYS_munmap, addr, n);
	if (ret == 0)
		shared_unmapped((uintptr_t)addr, n);
	return ret;
}

LARGE(EXPORT void *roced_mmap64(void *addr, size_t n, int prot, int flags, int fd, off_t offset)
{
	return roced_mmap(addr, n, prot, flags, fd, offset);
})

INTERPOSE(mmap);
LARGE(INTERPOSE(mmap64);)
INTERPOSE(munmap);

#endif
