/* Rings in shared memory (docs/reference/control-protocol.md). */
#include "objects.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct ring ring_map(int memfd, uint64_t offset, size_t size)
{
	struct stat st;
	uint64_t end = offset + size;
	if (fstat(memfd, &st) != 0 || end < offset || (uint64_t)st.st_size < end)
		return (struct ring){ 0 }; /* an access past the end of the file raises SIGBUS */
	void *p = (void *)syscall(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, offset);
	return p == MAP_FAILED ? (struct ring){ 0 } : (struct ring){ p, size };
}

void ring_unmap(struct ring *r)
{
	if (r->mem)
		syscall(SYS_munmap, r->mem, r->size);
	*r = (struct ring){ 0 };
}

static _Atomic uint32_t *ring_word(const struct ring *r, size_t at)
{
	return (_Atomic uint32_t *)(r->mem + at);
}

_Atomic uint32_t *ring_producer(const struct ring *r) { return ring_word(r, 128); }
_Atomic uint32_t *ring_consumer(const struct ring *r) { return ring_word(r, 256); }
uint32_t ring_mask(const struct ring *r) { return *ring_word(r, 4); }

void *ring_slot(const struct ring *r, uint32_t i, size_t need)
{
	size_t size = (size_t)1 << (*ring_word(r, 0) & 31), at = 384 + size * (i & ring_mask(r));
	return size >= need && at + size <= r->size ? r->mem + at : NULL;
}

bool ring_empty(const struct ring *r)
{
	return ((*ring_producer(r) - *ring_consumer(r)) & ring_mask(r)) == 0;
}


uint64_t monotonic_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * UINT64_C(1000000000) + t.tv_nsec;
}
