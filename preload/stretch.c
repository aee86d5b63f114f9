/*
 * Stretches: which part of the memfd replaces memory.
 *
 * There is one memfd. Each replacement gets a stretch of it that is much larger than needed:
 * realloc() calls mremap() without the library, and the mapping then grows into the next part
 * of the file, which no other mapping may use. A stretch that is no longer in use serves the
 * next replacement of the same length (spare.c).
 *
 * Memory beside replaced memory continues the stretch if all that was ever replaced there is
 * still in place: then no mapping has moved, and none can have grown. Memory of the C library's
 * heap never moves, so one stretch serves all of it.
 */
#include "mr.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	MOST = 16384,      /* mappings of the memfd; a process may have 65530 in all */
	IDLE = 64 << 20,   /* bytes replaced between two collections */
	LOOK = 16,         /* replacements between two searches for spare stretches */
	WALKS = 4,         /* limit on walks over the address space in one collection */
	RECORDS = 4096,
};

/* Counts of the memfd. */
static struct {
	uint64_t stretches; /* allocated */
	uint64_t replaced;  /* bytes replaced since the last collection */
	uint64_t collected; /* bytes in use at the last collection */
	unsigned mappings;  /* upper bound */
	unsigned since;     /* requests for a stretch since the last walk over the address space */
	unsigned parts;     /* parts of the address space at the last walk */
	bool crowded;       /* the last walk found MOST mappings */
} count;

/* The addresses of memory in a stretch: since the stretch came into use, all of it was in [low,
 * high). A stretch may lack a record. */
static struct record {
	uint64_t stretch, low, high;
} records[RECORDS];

/* The stretch of the heap, if there is one. */
static struct {
	uint64_t shift; /* offset in the memfd minus address */
	uint64_t stretch;
	bool used;
} heap;

static struct record *record_of(uint64_t offset)
{
	return &records[(offset >> STRETCH_BITS) % RECORDS];
}

/* within returns true if a part of the memfd lies in a stretch. */
static bool within(uint64_t stretch, uint64_t offset, uint64_t length)
{
	return offset >> STRETCH_BITS == stretch && (offset + length) >> STRETCH_BITS == stretch;
}

/* A part of the memfd, and whether it is in use. */
struct clash {
	uint64_t offset, end;
	bool found;
};

static void check_clash(uint64_t offset, uint64_t end, void *arg)
{
	struct clash *c = arg;
	c->found = c->found || (offset < c->end && end > c->offset);
}

void replace_drop(uint64_t offset, uint64_t length)
{
	static const uint8_t zeros[1 << 16];
	struct clash c = { offset, offset + length, false };
	mappings_each(check_clash, &c);
	if (!c.found)
		backing_zero(offset, length);
	for (uint64_t n; c.found && length > 0; offset += n, length -= n) {
		n = length < sizeof zeros ? length : sizeof zeros;
		if (!backing_write(backing_fd(), (uintptr_t)zeros, (uintptr_t)zeros + n, offset))
			return;
	}
}

/* ---- collection ---- */

/* A bit for each stretch that is in use. */
struct survey {
	uint64_t *bits;
	uint64_t bytes;
	unsigned mappings, parts;
	bool news; /* the walk has set a new bit */
};

static void mark(uint64_t offset, uint64_t end, void *arg)
{
	struct survey *s = arg;
	for (uint64_t i = offset >> STRETCH_BITS; i <= (end - 1) >> STRETCH_BITS && i < count.stretches; i++) {
		uint64_t bit = 1ULL << i % 64;
		s->news = s->news || !(s->bits[i / 64] & bit);
		s->bits[i / 64] |= bit;
	}
}

static bool mark_vma(const struct vma *v, void *arg)
{
	struct survey *s = arg;
	s->parts++;
	if (v->kind == VMA_OURS) {
		mark(v->offset, v->offset + (v->end - v->start), s);
		s->bytes += v->end - v->start;
		s->mappings++;
	}
	return true;
}

/* walk surveys the address space once more. */
static bool walk(struct survey *s)
{
	s->bytes = s->mappings = s->parts = 0;
	s->news = false;
	return maps_walk(0, UINT64_MAX, mark_vma, s);
}

/* settled walks until a walk finds nothing new. A walk is not atomic: it misses memory that
 * realloc() moves meanwhile from an address ahead of the walk to one behind it. It returns
 * false if every walk finds something new. */
static bool settled(struct survey *s)
{
	for (int i = 1; i < WALKS; i++)
		if (!walk(s))
			return false;
		else if (!s->news)
			return true;
	return false;
}

/* sweep frees the stretches without a mark, adjacent ones with one call. */
static void sweep(const struct survey *s)
{
	uint64_t from = 0;
	for (uint64_t i = 0; i <= count.stretches; i++) {
		if (i < count.stretches && !(s->bits[i / 64] >> i % 64 & 1))
			continue;
		backing_zero(from * STRETCH, (i - from) * STRETCH);
		from = i + 1;
	}
}

static bool marked(uint64_t offset, void *arg)
{
	struct survey *s = arg;
	uint64_t i = offset >> STRETCH_BITS;
	return s->bits[i / 64] >> i % 64 & 1;
}

/* collect frees unused pages of the memfd, or only searches for spare stretches. The C library
 * unmaps memory without notice, so collect walks the address space:
 *
 * - to free pages, after as many bytes were replaced as were in use at the last collection.
 *   This bounds both the unused pages and the time for walks;
 * - to find spare stretches, after one replacement per eight parts of the address space. */
static void collect(void)
{
	bool all = count.mappings >= MOST || count.replaced > (count.collected > IDLE ? count.collected : IDLE);
	if ((!all || count.crowded) && (count.since < LOOK || count.since < count.parts / 8))
		return;
	size_t size = (count.stretches / 64 + 1) * sizeof(uint64_t);
	void *p = (void *)syscall(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct survey s = { .bits = p };
	if (p == MAP_FAILED)
		return;
	mappings_each(mark, &s);
	if (walk(&s)) {
		bool sure = all && settled(&s);
		spares_look(marked, &s);
		count.mappings = s.mappings;
		count.parts = s.parts;
		count.since = 0;
		count.crowded = s.mappings >= MOST;
		if (sure) {
			spares_each(mark, &s);
			sweep(&s);
			count.collected = s.bytes;
		}
		if (all) /* unless sure, a later collection frees the pages */
			count.replaced = 0;
	}
	syscall(SYS_munmap, p, size);
}

/* ---- allocation ---- */

int stretch_fd(bool create)
{
	bool fresh = false;
	int fd = create ? backing_open(&fresh) : backing_fd();
	if (fresh) {
		memset(&count, 0, sizeof count);
		memset(records, 0, sizeof records);
		heap.used = false;
		spares_forget();
	}
	return fd;
}

/* spare takes a spare stretch for memory. */
static bool spare(struct vma *v, enum history *history)
{
	*history = SPARE;
	return spare_take(v->end - v->start, &v->offset);
}

/* fresh allocates a stretch for memory. */
static bool fresh(struct vma *v, enum history *history)
{
	if (count.stretches >= 1ULL << (FILE_BITS - STRETCH_BITS))
		return false;
	*history = FRESH;
	v->offset = count.stretches++ * STRETCH + STRETCH / 2;
	return true;
}

/* in_heap gives memory of the heap its part of the heap's stretch. Freed memory may have used it
 * earlier, and a region may use it still. */
static bool in_heap(struct vma *v, enum history *history)
{
	if (!heap.used && fresh(v, history)) {
		heap.shift = v->offset - v->start;
		heap.stretch = v->offset >> STRETCH_BITS;
		return heap.used = true;
	}
	uint64_t length = v->end - v->start;
	struct clash c = { v->start + heap.shift, v->start + heap.shift + length, false };
	if (!heap.used || !within(heap.stretch, c.offset, length))
		return false;
	mappings_each(check_clash, &c);
	v->offset = c.offset;
	*history = USED;
	return !c.found;
}

bool stretch_new(struct vma *v, enum history *history)
{
	if (v->end - v->start > STRETCH / 2)
		return false;
	count.since++;
	bool found = !v->heap && count.mappings < MOST && spare(v, history);
	if (!found)
		collect();
	if (!found && count.mappings < MOST)
		found = (v->heap && in_heap(v, history)) || spare(v, history);
	if (!found && count.mappings < MOST && fresh(v, history)) {
		spare_remember(v->offset, v->end - v->start);
		found = true;
	}
	count.mappings += found;
	return found;
}

bool stretch_beside(const struct vma *ours, struct vma *v)
{
	const struct record *r = record_of(ours->offset);
	if (ours->kind != VMA_OURS || r->stretch != ours->offset >> STRETCH_BITS || ours->whole_start > r->low ||
	    ours->whole_end < r->high || (heap.used && r->stretch == heap.stretch))
		return false;
	v->offset = ours->offset + (v->start - ours->start);
	return within(r->stretch, v->offset, v->end - v->start);
}

void stretch_filled(struct vma *v, enum history history)
{
	struct record *r = record_of(v->offset);
	uint64_t stretch = v->offset >> STRETCH_BITS;
	count.replaced += history == SPARE ? 0 : v->end - v->start;
	if (history != USED)
		*r = (struct record){ stretch, v->start, v->end };
	/* Beside other memory of the stretch, it is now one part with that. */
	v->whole_start = r->low < v->start ? r->low : v->start;
	v->whole_end = r->high > v->end ? r->high : v->end;
}

void stretch_seen(const struct vma *v)
{
	struct record *r = record_of(v->offset);
	if (r->stretch != v->offset >> STRETCH_BITS)
		return;
	if (r->low > v->start)
		r->low = v->start;
	if (r->high < v->end)
		r->high = v->end;
}

void stretch_moved(void) { heap.used = false; }
