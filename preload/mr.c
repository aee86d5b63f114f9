/* Regions. */
#include "mr.h"

#include <stdlib.h>
#include <string.h>

/* A memory region. Without a mapping, the daemon copies it (mr_pass.c). */
struct region {
	struct region *next;
	struct context *context;
	uint32_t handle;
	uint64_t start, end;
	struct mapping *mapping;
};

static struct region *regions;

void mr_forget(void)
{
	regions = NULL;
	mappings_forget();
}

/* pages widens a range to whole pages. It returns false for an empty range and for one that
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

/* ---- policy ---- */

/* may_replace returns false if ROCED_MR forbids replacement. */
static bool may_replace(void)
{
	const char *mode = getenv("ROCED_MR");
	return !mode || (strcmp(mode, "pass") != 0 && strcmp(mode, "ptrace") != 0);
}

/* in_copied_region returns true if a region that the daemon accesses through /proc overlaps
 * the range. During a replacement such accesses would fail. */
static bool in_copied_region(uint64_t start, uint64_t end)
{
	for (struct region *r = regions; r; r = r->next)
		if (!r->mapping && r->start < end && start < r->end)
			return true;
	return false;
}

/* place makes a range memory of the memfd, with all pages allocated. It returns the number of parts,
 * 0 if that is impossible. If *m lacks room for them, place stores none. The caller holds the lock. */
static unsigned place(struct mapping *m, unsigned room, uint64_t start, uint64_t end)
{
	unsigned n = may_replace() ? replace(start, end, m->part, room, !in_copied_region(start, end)) : 0;
	for (unsigned i = 0; n <= room && i < n; i++)
		if (!backing_allocate(m->part[i].start, m->part[i].end, m->part[i].offset))
			return 0;
	return n;
}

/* mapped makes a range memory that the daemon maps, in a new mapping with room for some parts. It
 * returns the number of parts, 0 if that is impossible. */
static unsigned mapped(struct mr_source *s, struct context *c, uint64_t start, uint64_t end, unsigned room, bool together)
{
	struct mapping *fresh = malloc(sizeof *fresh + room * sizeof fresh->part[0]);
	unsigned n = 0;
	if (fresh) {
		mr_lock();
		n = place(fresh, room, start, end);
		if (n > 0 && n <= room) {
			fresh->context = c;
			fresh->n = n;
			*s = mapping_use(fresh, together);
		}
		mr_unlock();
	}
	if (s->mapping != fresh)
		free(fresh);
	return n;
}

struct mr_source mr_prepare(struct context *c, uint64_t start, uint64_t length, bool write, unsigned ways)
{
	uint64_t from = start, end;
	unsigned room = 1, n;
	struct mr_source s = { .kind = MR_ANY };
	if (!pages(&start, &end, length))
		return s;
	maps_keep();
	s.kind = MR_COPIED;
	for (int attempt = 0; s.kind == MR_COPIED && attempt < 2; attempt++) {
		if (attempt > 0)
			mappings_trim(c, true);
		while ((n = mapped(&s, c, start, end, room, ways & MR_TOGETHER)) > room)
			room = n;
		if (n == 0)
			break;
	}
	if (s.kind == MR_COPIED && ways & MR_SHARED && may_replace())
		shared_prepare(&s, from, length, write);
	return s;
}

void mr_abandoned(struct mr_source *source)
{
	struct mapping *never = source->kind == MR_MAP ? source->mapping : NULL;
	mr_lock();
	if (!never)
		mapping_leave(source->mapping);
	if (source->given_up)
		mapping_add(source->given_up);
	mr_unlock();
	free(never);
	source->mapping = source->given_up = NULL;
}

void mr_mapped(struct mr_source *source, uint32_t handle)
{
	source->mapping->handle = handle;
	mr_lock();
	mapping_add(source->mapping);
	mr_unlock();
	free(source->given_up);
	source->given_up = NULL;
	source->kind = MR_MAPPED;
}

void mr_registered(struct context *c, uint32_t handle, uint64_t start, uint64_t length, struct mr_source *source)
{
	uint64_t end;
	if (source->kind == MR_FILE)
		return; /* the daemon's region owns all of it */
	struct region *r = malloc(sizeof *r);
	if (!r || !pages(&start, &end, length)) {
		free(r); /* its mapping stays in use */
		return;
	}
	mr_lock();
	*r = (struct region){ regions, c, handle, start, end, source->mapping };
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
		mapping_leave(r->mapping);
	}
	mr_unlock();
	free(r);
	mappings_trim(c, false);
}

/* take_region removes a region of a context from the list, NULL if there is none. The caller
 * holds the lock. */
static struct region *take_region(struct context *c)
{
	for (struct region **p = &regions; *p; p = &(*p)->next) {
		struct region *r = *p;
		if (r->context != c)
			continue;
		*p = r->next;
		return r;
	}
	return NULL;
}

void mr_context_closed(struct context *c)
{
	struct region *r;
	struct mapping *m;
	do {
		mr_lock();
		r = take_region(c);
		m = r ? NULL : mapping_take(c);
		mr_unlock();
		free(r);
		free(m);
	} while (r || m);
}
