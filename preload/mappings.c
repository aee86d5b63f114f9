/* The daemon's mappings of the memfd. */
#include "mr.h"

#include <stdlib.h>

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

/* Limits on idle mappings. They count against the program's quota of mapped memory. */
enum { IDLE_MAPPINGS = 64, IDLE_BYTES = 64 << 20 };

/* Never use the heap with the lock held: an allocator may hold its own lock when it unmaps
 * memory. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapping *mappings;
static uint64_t departures; /* the clock of mapping.left */

void mr_lock(void) { pthread_mutex_lock(&lock); }
void mr_unlock(void) { pthread_mutex_unlock(&lock); }

void mappings_each(void (*f)(uint64_t offset, uint64_t end, void *arg), void *arg)
{
	for (struct mapping *m = mappings; m; m = m->next)
		if (m->users > 0)
			f(m->offset, m->offset + (m->end - m->start), arg);
}

/* It frees nothing: the child's heap may be locked. */
void mappings_forget(void) { mappings = NULL; }

void mapping_add(struct mapping *m)
{
	m->next = mappings;
	mappings = m;
}

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

struct mr_source mapping_use(struct mapping *fresh, struct context *c, uint64_t start, uint64_t end, uint64_t offset,
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
