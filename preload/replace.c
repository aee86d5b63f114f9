/*
 * Page replacement: private anonymous memory becomes memory of a memfd, with the same content
 * at the same addresses.
 *
 * There is one memfd. Each replacement gets a stretch of it that is much larger than needed:
 * realloc() calls mremap() without the library, and the mapping then grows into the next part
 * of the file, which no other mapping may use. A stretch that is no longer in use serves the
 * next replacement of the same length (spare.c).
 *
 * A write to a page that is being copied would be lost. So the pages are write-protected
 * (guard.c): the writing thread blocks, and then writes to the new page. Meanwhile this
 * thread must write to its stack only.
 */
#include "mr.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	MOST = 16384,      /* mappings of the memfd; a process may have 65530 in all */
	IDLE = 64 << 20,   /* bytes replaced between two collections */
	LOOK = 16,         /* replacements between two searches for spare stretches */
	WALKS = 4,         /* limit on walks over the address space in one collection */
};

/* Counts of the memfd. */
static struct {
	uint64_t stretches; /* allocated */
	uint64_t replaced;  /* bytes replaced since the last collection */
	uint64_t collected; /* bytes in use at the last collection */
	unsigned mappings;  /* upper bound */
	unsigned since;     /* replacements since the last walk over the address space */
	unsigned parts;     /* parts of the address space at the last walk */
} count;

/* ---- copying ---- */

/* is_zero reads a whole page, including parts outside any object, which a sanitizer would
 * report. */
__attribute__((no_sanitize("address"))) static bool is_zero(const uint64_t *page)
{
	uint64_t any = 0;
	for (size_t i = 0; i < MR_PAGE / sizeof *page && !any; i += 8)
		any = page[i] | page[i + 1] | page[i + 2] | page[i + 3] | page[i + 4] | page[i + 5] | page[i + 6] |
		      page[i + 7];
	return !any;
}

/* The earlier use of a part of the memfd. */
enum history {
	FRESH, /* never used */
	USED,  /* no longer in use; must be emptied */
	SPARE, /* a spare stretch, whose pages are overwritten */
};

/* copy writes a range into the memfd. In an empty part, pages of zeros stay holes. */
static bool copy(int fd, uint64_t start, uint64_t end, uint64_t offset, enum history history)
{
	uint64_t from = start; /* not written yet */
	for (uint64_t p = start; p < end && history != SPARE; p += MR_PAGE) {
		if (!is_zero((const uint64_t *)(uintptr_t)p))
			continue;
		if (!backing_write(fd, from, p, offset + (from - start)))
			return false;
		from = p + MR_PAGE;
	}
	return backing_write(fd, from, end, offset + (from - start));
}

/* exchange replaces a range of plain memory with a part of the memfd. It blocks signals: a
 * handler that writes to a protected page would deadlock. */
static bool exchange(uint64_t start, uint64_t end, uint64_t offset, enum history history)
{
	sigset_t all, old;
	int fd = backing_fd(), guards = guard_open();
	if (guards < 0)
		return false;
	if (history == USED)
		backing_zero(offset, end - start);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	bool done = guard_raise(guards, start, end) && copy(fd, start, end, offset, history) &&
		    (uint64_t)syscall(SYS_mmap, start, end - start, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
				      offset) == start;
	guard_drop(guards, start, end, done);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	guard_close(guards, done);
	if (done) {
		count.replaced += history == SPARE ? 0 : end - start;
		count.mappings++;
		count.since++;
	}
	return done;
}

/* ---- replaceable memory ---- */

/* A range to replace. */
struct plan {
	uint64_t at;    /* examined up to this address */
	uint64_t shift; /* offset in the memfd minus address */
	uint64_t ours;  /* an offset in the part that already belongs to the memfd */
	bool shifted;   /* there is such a part */
	bool plain;     /* there is plain memory */
	bool good;
	uint64_t avoid[2]; /* addresses that this thread writes to during the copy */
};

static bool in(const struct vma *v, uint64_t addr)
{
	return addr >= v->start && addr < v->end;
}

static bool look(const struct vma *v, void *arg)
{
	struct plan *p = arg;
	p->good = v->start == p->at;
	p->at = v->end;
	switch (v->kind) {
	case VMA_PLAIN:
		p->good = p->good && !in(v, p->avoid[0]) && !in(v, p->avoid[1]);
		p->plain = true;
		break;
	case VMA_OURS:
		p->good = p->good && (!p->shifted || p->shift == v->offset - v->start);
		p->shift = v->offset - v->start;
		p->ours = v->offset;
		p->shifted = true;
		break;
	default:
		p->good = false;
	}
	return p->good;
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

static bool find_clash(const struct vma *v, void *arg)
{
	if (v->kind == VMA_OURS)
		check_clash(v->offset, v->offset + (v->end - v->start), arg);
	return true;
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

/* unused returns true if a part of the memfd is in the same stretch as offset o and two walks
 * find no mapping of it (see settled). */
static bool unused(uint64_t offset, uint64_t length, uint64_t o)
{
	struct clash c = { offset, offset + length, false };
	if ((offset ^ o) >> STRETCH_BITS || ((offset + length) ^ o) >> STRETCH_BITS)
		return false;
	mappings_each(check_clash, &c);
	return !c.found && maps_walk(0, UINT64_MAX, find_clash, &c) && !c.found &&
	       maps_walk(0, UINT64_MAX, find_clash, &c) && !c.found;
}

/* next_plain finds the first plain memory. */
static bool next_plain(const struct vma *v, void *arg)
{
	if (v->kind != VMA_PLAIN)
		return true;
	*(struct vma *)arg = *v;
	return false;
}

/* fill replaces the plain parts of a range whose shift is known. Neighbours in a heap share a
 * page: the second one continues the stretch of the first. */
static bool fill(struct plan *p, uint64_t start, uint64_t end)
{
	for (;;) {
		struct vma v = { 0 };
		if (!maps_walk(start, end, next_plain, &v))
			return false;
		if (v.end == 0)
			return true;
		uint64_t offset = v.start + p->shift;
		if (!unused(offset, v.end - v.start, p->ours) || !exchange(v.start, v.end, offset, USED))
			return false;
		start = v.end;
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
	if (!all && (count.since < LOOK || count.since < count.parts / 8))
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

/* next_stretch allocates a part of the memfd for memory of a length. */
static bool next_stretch(uint64_t length, uint64_t *offset, enum history *history)
{
	bool fresh = false;
	if (backing_open(&fresh) < 0)
		return false;
	if (fresh) {
		memset(&count, 0, sizeof count);
		spares_forget();
	}
	*history = SPARE;
	if (count.mappings < MOST && spare_take(length, offset))
		return true;
	collect();
	if (count.mappings >= MOST)
		return false;
	if (spare_take(length, offset))
		return true;
	if (count.stretches >= 1ULL << (FILE_BITS - STRETCH_BITS))
		return false;
	*history = FRESH;
	*offset = count.stretches++ * STRETCH + STRETCH / 2;
	spare_remember(*offset, length);
	return true;
}

bool replace(uint64_t start, uint64_t end, uint64_t *offset, bool may)
{
	int here;
	enum history history;
	struct plan p = { .at = start, .good = true, .avoid = { (uintptr_t)&here, (uintptr_t)&errno } };
	if (!maps_walk(start, end, look, &p) || !p.good || p.at != end)
		return false;
	*offset = start + p.shift;
	if (!p.plain)
		return backing_fd() >= 0;
	if (!may || end - start > STRETCH / 2)
		return false;
	if (p.shifted)
		return backing_fd() >= 0 && fill(&p, start, end);
	return !maps_locked(start, end) && next_stretch(end - start, offset, &history) &&
	       exchange(start, end, *offset, history);
}
