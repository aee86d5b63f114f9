/* What is registered, and the daemon's mappings of it. */
#include "preload.h"
#include "mr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/ib_user_verbs.h>

/* Extension commands (docs/control-protocol.md). */
enum { EXT_MAP_MEMORY = 0xc2, EXT_UNMAP_MEMORY = 0xc3 };

struct map_memory {
	struct ib_uverbs_cmd_hdr h;
	uint64_t base, length, offset;
	uint32_t flags, reserved;
};

struct unmap_memory {
	struct ib_uverbs_cmd_hdr h;
	uint32_t handle, reserved;
};

/* A part of the memfd that the daemon has mapped for a connection. */
struct mapping {
	struct mapping *next;
	struct context *context;
	uint32_t handle;
	uint64_t start, end, offset;
	unsigned regions; /* that use it */
	bool known;       /* the daemon would use it for further regions */
	bool inherited;   /* of the parent's memfd: in the way of what this process maps there */
};

/* A memory region. Without a mapping, the daemon copies it (mr_pass.c). */
struct region {
	struct region *next;
	struct context *context;
	uint32_t handle;
	uint64_t start, end;
	struct mapping *mapping;
};

/* The lock is never held while the heap is used: an allocator may hold a lock of its
 * own when it unmaps memory. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapping *mappings;
static struct region *regions;

void mr_lock(void) { pthread_mutex_lock(&lock); }
void mr_unlock(void) { pthread_mutex_unlock(&lock); }

void mr_forget(void)
{
	regions = NULL;
	for (struct mapping *m = mappings; m; m = m->next) {
		m->regions = 0;
		m->inherited = true;
	}
}

void mr_each_mapped(void (*f)(uint64_t offset, uint64_t end, void *arg), void *arg)
{
	for (struct mapping *m = mappings; m; m = m->next)
		if (!m->inherited)
			f(m->offset, m->offset + (m->end - m->start), arg);
}

/* pages widens a range to whole pages. False if there is nothing in it, or it
 * passes the end of the address space. */
static bool pages(uint64_t *start, uint64_t *end, uint64_t length)
{
	*end = *start + length;
	if (length == 0 || *end < *start || *end > UINT64_MAX - MR_PAGE)
		return false;
	*start &= ~(MR_PAGE - 1);
	*end = (*end + MR_PAGE - 1) & ~(MR_PAGE - 1);
	return true;
}

/* ---- the daemon's mappings ---- */

/* covering finds the mapping that the daemon will use for a range. */
static struct mapping *covering(struct context *c, uint64_t start, uint64_t end)
{
	for (struct mapping *m = mappings; m; m = m->next)
		if (m->context == c && m->known && !m->inherited && m->start <= start && end <= m->end)
			return m;
	return NULL;
}

/* unmap tells the daemon to forget a mapping; regions keep what they have. */
static void unmap(struct mapping *m)
{
	struct unmap_memory cmd = {
		.h = { .command = EXT_UNMAP_MEMORY, .in_words = sizeof cmd / 4 },
		.handle = m->handle,
	};
	m->known = false;
	context_call(m->context, &cmd, sizeof cmd, -1, NULL, 0);
}

/* take_unused removes a mapping that nobody needs from the list, NULL if there is
 * none. */
static struct mapping *take_unused(void)
{
	for (struct mapping **p = &mappings; *p; p = &(*p)->next) {
		struct mapping *m = *p;
		if (!m->known && m->regions == 0) {
			*p = m->next;
			return m;
		}
	}
	return NULL;
}

static void free_unused(void)
{
	for (;;) {
		mr_lock();
		struct mapping *m = take_unused();
		mr_unlock();
		if (!m)
			return;
		free(m);
	}
}

/* forget_stale unmaps what the daemon would take a range for and is not what lies
 * there now: at offset of the memfd, or nowhere in it. */
static void forget_stale(struct context *c, uint64_t start, uint64_t end, bool ours, uint64_t offset)
{
	for (struct mapping *m = mappings; m; m = m->next)
		if (m->context == c && m->known && m->start < end && start < m->end &&
		    !(ours && !m->inherited && m->offset - m->start == offset - start))
			unmap(m);
}

/* map makes the daemon map a range; m becomes the mapping. */
static bool map(struct mapping *m, struct context *c, uint64_t start, uint64_t end, uint64_t offset)
{
	struct map_memory cmd = {
		.h = { .command = EXT_MAP_MEMORY, .in_words = sizeof cmd / 4, .out_words = 2 },
		.base = start, .length = end - start, .offset = offset,
	};
	uint32_t answer[2];
	if (context_call(c, &cmd, sizeof cmd, backing_fd(), answer, sizeof answer) != 0)
		return false;
	*m = (struct mapping){ mappings, c, answer[0], start, end, offset, 0, true, false };
	mappings = m;
	return true;
}

/* ---- policy ---- */

/* may_replace: the environment can forbid it. */
static bool may_replace(void)
{
	const char *mode = getenv("ROCED_MR");
	return !mode || (strcmp(mode, "pass") != 0 && strcmp(mode, "ptrace") != 0);
}

/* seen_through_proc: some of a range is in a region that the daemon accesses through
 * /proc, which it could not while the pages are replaced. */
static bool seen_through_proc(uint64_t start, uint64_t end)
{
	for (struct region *r = regions; r; r = r->next)
		if (!r->mapping && r->start < end && start < r->end)
			return true;
	return false;
}

/* place is the state of a range: whether the memfd is what lies there. */
struct place {
	uint64_t at, offset;
	bool ours;
};

static bool look(const struct vma *v, void *arg)
{
	struct place *p = arg;
	p->ours = v->kind == VMA_OURS && v->start == p->at && (!p->ours || p->offset == v->offset);
	p->at = v->end;
	p->offset = v->offset + (v->end - v->start);
	return p->ours;
}

/* find reports whether a range is of the memfd, consecutive from *offset on. */
static bool find(uint64_t start, uint64_t end, uint64_t *offset)
{
	struct place p = { .at = start };
	if (!maps_walk(start, end, look, &p) || !p.ours || p.at != end || backing_fd() < 0)
		return false;
	*offset = p.offset - (end - start);
	return true;
}

bool mr_prepare(struct context *c, uint64_t start, uint64_t length)
{
	uint64_t end, offset = 0;
	struct mapping *fresh = malloc(sizeof *fresh);
	if (!fresh || !pages(&start, &end, length)) {
		free(fresh);
		return true;
	}
	mr_lock();
	bool ours = may_replace() && (find(start, end, &offset) ||
				      (!seen_through_proc(start, end) && replace(start, end, &offset)));
	forget_stale(c, start, end, ours, offset);
	if (ours && !covering(c, start, end) && map(fresh, c, start, end, offset))
		fresh = NULL;
	mr_unlock();
	free(fresh);
	free_unused();
	return ours;
}

void mr_abandoned(struct context *c, uint64_t start, uint64_t length)
{
	uint64_t end;
	if (!pages(&start, &end, length))
		return;
	mr_lock();
	struct mapping *m = covering(c, start, end);
	if (m && m->regions == 0)
		unmap(m);
	mr_unlock();
	free_unused();
}

void mr_registered(struct context *c, uint32_t handle, uint64_t start, uint64_t length)
{
	uint64_t end;
	struct region *r = malloc(sizeof *r);
	if (!r || !pages(&start, &end, length)) {
		free(r);
		return;
	}
	mr_lock();
	*r = (struct region){ regions, c, handle, start, end, covering(c, start, end) };
	if (r->mapping)
		r->mapping->regions++;
	regions = r;
	mr_unlock();
}

void mr_released(struct context *c, uint32_t handle)
{
	struct region **p = &regions, *r;
	mr_lock();
	while (*p && ((*p)->context != c || (*p)->handle != handle))
		p = &(*p)->next;
	r = *p;
	if (r) {
		*p = r->next;
		if (r->mapping && --r->mapping->regions == 0 && r->mapping->known)
			unmap(r->mapping);
	}
	mr_unlock();
	free(r);
	free_unused();
}

/* take_region removes a region of a connection from the list, NULL if there is none. */
static struct region *take_region(struct context *c)
{
	for (struct region **p = &regions; *p; p = &(*p)->next) {
		struct region *r = *p;
		if (r->context != c)
			continue;
		*p = r->next;
		if (r->mapping)
			r->mapping->regions--;
		return r;
	}
	return NULL;
}

void mr_context_closed(struct context *c)
{
	struct region *r;
	do {
		mr_lock();
		r = take_region(c);
		for (struct mapping *m = mappings; !r && m; m = m->next)
			m->known = m->known && m->context != c;
		mr_unlock();
		free(r);
	} while (r);
	free_unused();
}
