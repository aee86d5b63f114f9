/*
 * Page replacement: private anonymous memory becomes memory of a memfd, with the same content
 * at the same addresses.
 *
 * A write to a page that is being copied would be lost. So the pages are write-protected
 * (guard.c): the writing thread blocks, and then writes to the new page. Meanwhile this
 * thread must write to its stack only.
 */
#include "mr.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

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
	return done;
}

/* ---- replaceable memory ---- */

enum { ARENA_HEAP = 64 << 20 };

/* The parts of a range to replace. The lock guards it: it would take too much of a small stack. */
static struct plan {
	struct vma part[PARTS];
	unsigned n;
	uint64_t at; /* examined up to this address */
	bool plain;  /* there is plain memory */
	uint64_t avoid[2]; /* addresses that this thread writes to during the copy */
} plan;

static bool in(const struct vma *v, uint64_t addr)
{
	return addr >= v->start && addr < v->end;
}

/* first_word reads a page of unknown use, as is_zero does. */
__attribute__((no_sanitize("address"))) static uint64_t first_word(const uint64_t *page)
{
	return page[0];
}

/* holds_arena returns true if plain memory contains the head of a thread's heap of glibc: a page that is aligned to
 * ARENA_HEAP (HEAP_MAX_SIZE of malloc/arena.c) and begins with a pointer into itself, to the arena. In a child of fork(), glibc
 * resets arenas before in_child copies the memory, so these pages must not be shared. */
static bool holds_arena(const struct vma *v)
{
	for (uint64_t p = (v->start + ARENA_HEAP - 1) & ~(uint64_t)(ARENA_HEAP - 1); p < v->end; p += ARENA_HEAP) {
		uint64_t arena = first_word((const uint64_t *)(uintptr_t)p);
		if (arena > p && arena < p + MR_PAGE)
			return true;
	}
	return false;
}

static bool look(const struct vma *v, void *arg)
{
	struct plan *p = arg;
	if (v->start != p->at || (v->kind != VMA_PLAIN && v->kind != VMA_OURS) || p->n == PARTS)
		return false;
	if (v->kind == VMA_PLAIN && (in(v, p->avoid[0]) || in(v, p->avoid[1]) || holds_arena(v)))
		return false;
	p->plain = p->plain || v->kind == VMA_PLAIN;
	p->part[p->n++] = *v;
	p->at = v->end;
	return true;
}

/* fill replaces plain memory of the plan. Neighbours in a heap share a page: the second one
 * continues the stretch of the first. */
static bool fill(struct plan *p, unsigned i)
{
	struct vma *v = &p->part[i];
	enum history history = USED;
	if (maps_locked(v->start, v->end) ||
	    !((i > 0 && stretch_beside(v - 1, v)) || (i + 1 < p->n && stretch_beside(v + 1, v)) ||
	      stretch_new(v, &history)) ||
	    !exchange(v->start, v->end, v->offset, history))
		return false;
	v->kind = VMA_OURS;
	stretch_filled(v, history);
	return true;
}

/* join stores the parts of the plan, adjacent ones together, and returns their number. */
static unsigned join(const struct plan *p, struct extent *to, unsigned room)
{
	unsigned n = 0;
	struct extent last = { 0 };
	for (const struct vma *v = p->part; v < p->part + p->n; v++) {
		bool next = n > 0 && last.offset + (last.end - last.start) == v->offset;
		last = next ? (struct extent){ last.start, v->end, last.offset } :
			      (struct extent){ v->start, v->end, v->offset };
		n += !next;
		if (n <= room)
			to[n - 1] = last;
		stretch_seen(v);
	}
	return n;
}

unsigned replace(uint64_t start, uint64_t end, struct extent *to, unsigned room, bool may)
{
	int here;
	plan.n = plan.plain = 0;
	plan.at = start;
	plan.avoid[0] = (uintptr_t)&here;
	plan.avoid[1] = (uintptr_t)&errno;
	if (!maps_walk(start, end, look, &plan) || plan.at != end || (plan.plain && !may) || stretch_fd(plan.plain) < 0)
		return 0;
	for (unsigned i = 0; i < plan.n; i++)
		if (plan.part[i].kind == VMA_PLAIN && !fill(&plan, i))
			return 0;
	return join(&plan, to, room);
}
