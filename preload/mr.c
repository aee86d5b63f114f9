/* Regions, and the daemon's mappings of their memory. */
#include "mr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/ib_user_verbs.h>

struct map_command {
	struct ib_uverbs_cmd_hdr h;
	struct map_memory map;
};

enum { MAP_KNOWN = 1 }; /* flags: the daemon knows the memfd by its number */

#define NO_HANDLE UINT32_MAX

struct unmap_memory {
	struct ib_uverbs_cmd_hdr h;
	uint32_t handle, reserved;
};

/* A part of the memfd that the daemon has mapped for a connection. It stays mapped after its
 * last region, for the next registration there. */
struct mapping {
	struct mapping *next;
	struct context *context;
	uint32_t handle;
	uint64_t start, end, offset;
	unsigned users; /* regions in it, and registrations in progress */
	uint64_t left;  /* the value of departures when the last user left */
};

/* A memory region. Without a mapping, the daemon copies it (mr_pass.c). */
struct region {
	struct region *next;
	struct context *context;
	uint32_t handle;
	uint64_t start, end;
	struct mapping *mapping;
};

/* Limits on idle mappings. They count against the program's quota of mapped memory. */
enum { IDLE_MAPPINGS = 64, IDLE_BYTES = 64 << 20 };

/* Never use the heap with the lock held: an allocator may hold its own lock when it unmaps
 * memory. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapping *mappings;
static struct region *regions;
static uint64_t departures; /* the clock of mapping.left */

void mr_lock(void) { pthread_mutex_lock(&lock); }
void mr_unlock(void) { pthread_mutex_unlock(&lock); }

/* It frees nothing: the child's heap may be locked. */
void mr_forget(void)
{
	regions = NULL;
	mappings = NULL;
}

void mr_each_mapped(void (*f)(uint64_t offset, uint64_t end, void *arg), void *arg)
{
	for (struct mapping *m = mappings; m; m = m->next)
		if (m->users > 0)
			f(m->offset, m->offset + (m->end - m->start), arg);
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

/* ---- the daemon's mappings ---- */

/* covering returns a mapping of a whole range, which lies at offset of the memfd, or NULL. */
static struct mapping *covering(struct context *c, uint64_t start, uint64_t end, uint64_t offset)
{
	for (struct mapping *m = mappings; m; m = m->next)
		if (m->context == c && m->start <= start && end <= m->end && m->offset + (start - m->start) == offset)
			return m;
	return NULL;
}

/* take_idle removes the longest idle mapping from the list if the idle ones exceed a limit;
 * else NULL. The caller holds the lock. */
static struct mapping *take_idle(struct context *c, unsigned most, uint64_t bytes)
{
	struct mapping **oldest = NULL, *m;
	uint64_t idle = 0, sum = 0;
	for (struct mapping **p = &mappings; (m = *p); p = &m->next) {
		if (m->context != c || m->users > 0)
			continue;
		if (!oldest || m->left < (*oldest)->left)
			oldest = p;
		idle++;
		sum += m->end - m->start;
	}
	if (idle <= most && sum <= bytes)
		return NULL;
	m = *oldest;
	*oldest = m->next;
	return m;
}

/* take_same removes the idle mapping of exactly this part of the memfd, NULL if there is none.
 * The daemon reuses it although the memory has another address now. The caller holds the lock. */
static struct mapping *take_same(struct context *c, uint64_t offset, uint64_t length)
{
	for (struct mapping **p = &mappings, *m; (m = *p); p = &m->next)
		if (m->context == c && m->users == 0 && m->offset == offset && m->end - m->start == length) {
			*p = m->next;
			return m;
		}
	return NULL;
}

/* trim makes the daemon unmap idle mappings beyond the limits. */
static void trim(struct context *c, unsigned most, uint64_t bytes)
{
	for (;;) {
		mr_lock();
		struct mapping *m = take_idle(c, most, bytes);
		mr_unlock();
		if (!m)
			return;
		struct unmap_memory cmd = {
			.h = { .command = EXT_UNMAP_MEMORY, .in_words = sizeof cmd / 4 },
			.handle = m->handle,
		};
		context_call(c, &cmd, sizeof cmd, -1, NULL, 0);
		free(m);
	}
}

/* request_map makes the daemon map a range and fills *m. It sends the memfd only if the daemon
 * does not have it, or if another process has sent its own since. */
static bool request_map(struct mapping *m, struct context *c, uint64_t start, uint64_t end, uint64_t offset)
{
	struct map_command cmd = {
		.h = { .command = EXT_MAP_MEMORY, .in_words = sizeof cmd / 4, .out_words = 2 },
		.map = { start, end - start, offset, MAP_KNOWN, c->mapped_number },
	};
	uint32_t answer[2];
	bool known = c->mapped_ino == backing_ino() && context_call(c, &cmd, sizeof cmd, -1, answer, sizeof answer) == 0;
	if (!known) {
		cmd.map.flags = cmd.map.memory = 0;
		if (context_call(c, &cmd, sizeof cmd, backing_fd(), answer, sizeof answer) != 0)
			return false;
		c->mapped_ino = backing_ino();
		c->mapped_number = answer[1];
	}
	*m = (struct mapping){ mappings, c, answer[0], start, end, offset, 1, 0 };
	mappings = m;
	return true;
}

/* leave drops a use of a mapping. The caller holds the lock. */
static void leave(struct mapping *m)
{
	if (m && --m->users == 0)
		m->left = ++departures;
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

/* to_map describes a mapping that the daemon makes with the region. The daemon releases another
 * one for it: that of the same memory or, at the limit, the longest idle one. The caller holds
 * the lock. */
static struct mr_source to_map(struct mapping *fresh, struct context *c, uint64_t start, uint64_t end, uint64_t offset)
{
	struct mr_source s = { .kind = MR_MAP, .handle = NO_HANDLE, .mapping = fresh };
	s.map = (struct map_memory){ start, end - start, offset, MAP_KNOWN, c->mapped_number };
	s.given_up = take_same(c, offset, end - start);
	if (!s.given_up)
		s.given_up = take_idle(c, IDLE_MAPPINGS - 1, IDLE_BYTES);
	if (s.given_up)
		s.handle = s.given_up->handle;
	*fresh = (struct mapping){ NULL, c, NO_HANDLE, start, end, offset, 1, 0 };
	return s;
}

/* use finds or makes the mapping of a range of the memfd and counts a use. A new one is stored
 * in fresh. The result is MR_COPIED if the daemon refuses. The caller holds the lock. */
static struct mr_source use(struct mapping *fresh, struct context *c, uint64_t start, uint64_t end, uint64_t offset,
			    bool together)
{
	struct mapping *m = covering(c, start, end, offset);
	if (m)
		m->users++;
	else if (together && c->mapped_ino == backing_ino())
		return to_map(fresh, c, start, end, offset);
	else if (request_map(fresh, c, start, end, offset))
		m = fresh;
	return m ? (struct mr_source){ .kind = MR_MAPPED, .handle = m->handle, .mapping = m } :
		   (struct mr_source){ .kind = MR_COPIED };
}

struct mr_source mr_prepare(struct context *c, uint64_t start, uint64_t length, bool together)
{
	uint64_t end, offset = 0;
	struct mr_source s = { .kind = MR_ANY };
	struct mapping *fresh = malloc(sizeof *fresh);
	if (!fresh || !pages(&start, &end, length)) {
		free(fresh);
		return s;
	}
	maps_keep();
	s.kind = MR_COPIED;
	for (int attempt = 0; s.kind == MR_COPIED && attempt < 2; attempt++) {
		if (attempt > 0)
			trim(c, 0, 0);
		mr_lock();
		bool ours = may_replace() && replace(start, end, &offset, !in_copied_region(start, end)) &&
			    backing_allocate(offset, end - start);
		if (ours)
			s = use(fresh, c, start, end, offset, together);
		mr_unlock();
		if (!ours)
			break;
	}
	if (s.mapping != fresh)
		free(fresh);
	return s;
}

void mr_abandoned(struct mr_source *source)
{
	struct mapping *never = source->kind == MR_MAP ? source->mapping : NULL;
	mr_lock();
	if (!never)
		leave(source->mapping);
	if (source->given_up) {
		source->given_up->next = mappings;
		mappings = source->given_up;
	}
	mr_unlock();
	free(never);
	source->mapping = source->given_up = NULL;
}

void mr_mapped(struct mr_source *source, uint32_t handle)
{
	source->mapping->handle = handle;
	mr_lock();
	source->mapping->next = mappings;
	mappings = source->mapping;
	mr_unlock();
	free(source->given_up);
	source->given_up = NULL;
	source->kind = MR_MAPPED;
}

void mr_registered(struct context *c, uint32_t handle, uint64_t start, uint64_t length, struct mr_source *source)
{
	uint64_t end;
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
		leave(r->mapping);
	}
	mr_unlock();
	free(r);
	trim(c, IDLE_MAPPINGS, IDLE_BYTES);
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

/* take_mapping does the same for a mapping. */
static struct mapping *take_mapping(struct context *c)
{
	for (struct mapping **p = &mappings; *p; p = &(*p)->next) {
		struct mapping *m = *p;
		if (m->context != c)
			continue;
		*p = m->next;
		return m;
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
		m = r ? NULL : take_mapping(c);
		mr_unlock();
		free(r);
		free(m);
	} while (r || m);
}
