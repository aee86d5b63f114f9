/* The daemon's mappings of the memfd. */
#include "mr.h"

#include <stdlib.h>

#include <rdma/ib_user_verbs.h>

struct map_command {
	struct ib_uverbs_cmd_hdr h;
	struct map_memory map;
};

/* Parts of the memfd after the first one follow the request. */
struct map_part {
	uint64_t length, offset;
};

enum { MAP_KNOWN = 1 }; /* flags: the daemon knows the memfd by its number */

#define NO_HANDLE UINT32_MAX

struct unmap_memory {
	struct ib_uverbs_cmd_hdr h;
	uint32_t handle, reserved;
};

/* Limits on idle mappings. They count against the program's quota of mapped memory. */
enum { IDLE_MAPPINGS = 64, IDLE_BYTES = 64 << 20 };

/* Never use the heap with the lock held: an allocator may hold its own lock when it unmaps
 * memory. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapping *mappings;
static uint64_t departures; /* the clock of mapping.left */

static uint64_t extent_length(const struct extent *e) { return e->end - e->start; }

static uint64_t mapping_length(const struct mapping *m) { return m->part[m->n - 1].end - m->part[0].start; }

void mr_lock(void) { pthread_mutex_lock(&lock); }
void mr_unlock(void) { pthread_mutex_unlock(&lock); }

void mappings_each(void (*f)(uint64_t offset, uint64_t end, void *arg), void *arg)
{
	for (struct mapping *m = mappings; m; m = m->next)
		for (unsigned i = 0; m->users > 0 && i < m->n; i++)
			f(m->part[i].offset, m->part[i].offset + extent_length(&m->part[i]), arg);
}

/* It frees nothing: the child's heap may be locked. */
void mappings_forget(void) { mappings = NULL; }

void mapping_add(struct mapping *m)
{
	m->next = mappings;
	mappings = m;
}

/* covers returns true if a mapping contains all parts of another one. */
static bool covers(const struct mapping *m, const struct mapping *other)
{
	unsigned i = 0, k = 0;
	for (; i < other->n && k < m->n; k += i < other->n) {
		const struct extent *e = &m->part[k];
		for (const struct extent *o = &other->part[i]; i < other->n && e->start <= o->start && o->end <= e->end &&
							       e->offset + (o->start - e->start) == o->offset; o++)
			i++;
	}
	return i == other->n;
}

/* covering returns a mapping of all parts of a new one, or NULL. */
static struct mapping *covering(const struct mapping *fresh)
{
	for (struct mapping *m = mappings; m; m = m->next)
		if (m->context == fresh->context && covers(m, fresh))
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
		sum += mapping_length(m);
	}
	if (idle <= most && sum <= bytes)
		return NULL;
	m = *oldest;
	*oldest = m->next;
	return m;
}

/* take_same removes the idle mapping of exactly this part of the memfd, NULL if there is none.
 * The daemon reuses it although the memory has another address now. The caller holds the lock. */
static struct mapping *take_same(const struct mapping *fresh)
{
	for (struct mapping **p = &mappings, *m; (m = *p); p = &m->next)
		if (m->context == fresh->context && m->users == 0 && m->n == 1 && m->part[0].offset == fresh->part[0].offset &&
		    mapping_length(m) == mapping_length(fresh)) {
			*p = m->next;
			return m;
		}
	return NULL;
}

/* send_map sends a request to map parts of the memfd, with the memfd unless the daemon knows it. */
static bool send_map(const struct mapping *m, bool known, uint32_t answer[2])
{
	struct context *c = m->context;
	struct {
		struct map_command map;
		struct map_part part[PARTS];
	} cmd;
	size_t size = sizeof cmd.map + (m->n - 1) * sizeof cmd.part[0];
	cmd.map = (struct map_command){
		.h = { .command = EXT_MAP_MEMORY, .in_words = size / 4, .out_words = 2 },
		.map = { m->part[0].start, extent_length(&m->part[0]), m->part[0].offset, known ? MAP_KNOWN : 0,
			 known ? c->mapped_number : 0 },
	};
	for (unsigned i = 1; i < m->n; i++)
		cmd.part[i - 1] = (struct map_part){ extent_length(&m->part[i]), m->part[i].offset };
	return context_call(c, &cmd, size, known ? -1 : backing_fd(), answer, 2 * sizeof answer[0]) == 0;
}

/* request_map makes the daemon map new memory. It sends the memfd only if the daemon does not have
 * it, or if another process has sent its own since. */
static bool request_map(struct mapping *m)
{
	struct context *c = m->context;
	uint32_t answer[2];
	bool known = c->mapped_ino == backing_ino() && send_map(m, true, answer);
	if (!known) {
		if (!send_map(m, false, answer))
			return false;
		c->mapped_ino = backing_ino();
		c->mapped_number = answer[1];
	}
	m->handle = answer[0];
	mapping_add(m);
	return true;
}

/* to_map describes a mapping that the daemon makes with the region. The daemon releases another
 * one for it: that of the same memory or, at the limit, the longest idle one. The caller holds
 * the lock. */
static struct mr_source to_map(struct mapping *fresh)
{
	struct context *c = fresh->context;
	struct mr_source s = { .kind = MR_MAP, .handle = NO_HANDLE, .mapping = fresh };
	s.map = (struct map_memory){ fresh->part[0].start, mapping_length(fresh), fresh->part[0].offset, MAP_KNOWN,
				     c->mapped_number };
	s.given_up = take_same(fresh);
	if (!s.given_up)
		s.given_up = take_idle(c, IDLE_MAPPINGS - 1, IDLE_BYTES);
	if (s.given_up)
		s.handle = s.given_up->handle;
	return s;
}

struct mr_source mapping_use(struct mapping *fresh, bool together)
{
	struct mapping *m = covering(fresh);
	fresh->users = 1;
	if (m)
		m->users++;
	else if (together && fresh->n == 1 && fresh->context->mapped_ino == backing_ino())
		return to_map(fresh);
	else if (request_map(fresh))
		m = fresh;
	return m ? (struct mr_source){ .kind = MR_MAPPED, .handle = m->handle, .mapping = m } :
		   (struct mr_source){ .kind = MR_COPIED };
}

void mapping_leave(struct mapping *m)
{
	if (m && --m->users == 0)
		m->left = ++departures;
}

struct mapping *mapping_take(struct context *c)
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

void mappings_trim(struct context *c, bool all)
{
	for (;;) {
		mr_lock();
		struct mapping *m = take_idle(c, all ? 0 : IDLE_MAPPINGS, all ? 0 : IDLE_BYTES);
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
