/*
 * Time stamps of completions, which rdma-core's rxe provider lacks. The NIC stores the time in
 * nanoseconds of CLOCK_MONOTONIC in the slot of each completion, after the part that the
 * provider reads (docs/reference/control-protocol.md). The library creates the queue without
 * time stamps and adds its own functions to read them.
 */
#include "interpose.h"

#include <string.h>

enum { STAMPS = WC_TIMESTAMP | WC_TIMESTAMP_WALLCLOCK };

/* Offsets of the first slot in a completion ring, and of the time in a slot. */
enum { CQ_DATA = 384, SLOT_TIME = 48 };

static int64_t clock_ns(clockid_t id)
{
	struct timespec t;
	clock_gettime(id, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* stamp_in reads the time stamp of the current completion: at the consumer index, which advances
 * when the poll ends or moves to the next completion (provider.c). */
static uint64_t stamp_in(const struct ring *r)
{
	uint32_t log2, mask, at = atomic_load((_Atomic uint32_t *)(r->mem + 256));
	uint64_t stamp;
	memcpy(&log2, r->mem, sizeof log2);
	memcpy(&mask, r->mem + 4, sizeof mask);
	size_t offset = CQ_DATA + ((size_t)(at & mask) << (log2 & 31)) + SLOT_TIME;
	if (offset + sizeof stamp > r->size)
		return 0;
	memcpy(&stamp, r->mem + offset, sizeof stamp);
	return stamp;
}

static uint64_t read_stamp(void *cq)
{
	void **word = cq, **ibv_context = word[CQ_CONTEXT];
	struct context *c = context_of(*(int *)&ibv_context[CMD_FD]);
	uint64_t stamp = 0;
	if (!c)
		return 0;
	pthread_mutex_lock(&c->lock);
	struct object *o = objects_get(&c->objects, OBJ_CQ, *(uint32_t *)&word[CQ_HANDLE]);
	if (o && o->cq.mem)
		stamp = stamp_in(&o->cq);
	pthread_mutex_unlock(&c->lock);
	return stamp;
}

/* The difference of CLOCK_REALTIME and CLOCK_MONOTONIC. The clocks are read one after the other, so
 * a reading gives bounds of the difference only. */
struct difference {
	int64_t least, most;
};

static struct difference read_difference(void)
{
	int64_t before = clock_ns(CLOCK_MONOTONIC), real = clock_ns(CLOCK_REALTIME), after = clock_ns(CLOCK_MONOTONIC);
	return (struct difference){ real - after, real - before };
}

enum { READINGS = 50, TOLERANCE_NS = 1000 };

/* lower_bound returns the largest lower bound of the difference in some readings. */
static int64_t lower_bound(void)
{
	int64_t best = read_difference().least;
	for (int i = 1; i < READINGS; i++) {
		int64_t least = read_difference().least;
		best = least > best ? least : best;
	}
	return best;
}

/* wallclock_offset returns the offset of wall-clock stamps. It is a lower bound of the difference,
 * and stays constant, so that stamps keep their order and their distances. It changes only
 *
 * - upwards, if it is too low by more than the tolerance: the readings were interrupted, or the
 *   clock was set forward;
 * - downwards, if it exceeds an upper bound. A lower bound does so only after the clock was set
 *   back. */
static int64_t wallclock_offset(void)
{
	static _Atomic int64_t offset = INT64_MIN / 2;
	int64_t old = atomic_load(&offset);
	struct difference now = read_difference();
	if (old <= now.most && now.least - old <= TOLERANCE_NS)
		return old;
	int64_t fresh = lower_bound();
	/* If another thread was faster, use its offset. */
	return atomic_compare_exchange_strong(&offset, &old, fresh) ? fresh : old;
}

static uint64_t read_wallclock(void *cq) { return read_stamp(cq) + (uint64_t)wallclock_offset(); }

void *stamp_create(create_cq_fn *create, void *context, void *attr)
{
	struct cq_init_attr plain = { 0 }, *given = attr;
	uint64_t asked = given->wc_flags;
	memcpy(&plain, given, given->comp_mask & CQ_PARENT_DOMAIN ? sizeof plain : offsetof(struct cq_init_attr, parent_domain));
	plain.wc_flags &= ~(uint64_t)STAMPS;
	void **cq = create(context, &plain);
	if (cq && asked & WC_TIMESTAMP)
		cq[READ_COMPLETION_TS] = (void *)read_stamp;
	if (cq && asked & WC_TIMESTAMP_WALLCLOCK)
		cq[READ_COMPLETION_WALLCLOCK] = (void *)read_wallclock;
	return cq;
}

/* As with other NICs, tv_nsec holds the whole clock and tv_sec is 0. */
static int query_rt_values(void *context, struct values *v)
{
	(void)context;
	uint32_t asked = v->comp_mask;
	v->comp_mask = 0;
	if (asked & VALUES_RAW_CLOCK) {
		v->raw_clock = (struct timespec){ .tv_nsec = (long)monotonic_ns() };
		v->comp_mask = VALUES_RAW_CLOCK;
	}
	return 0;
}

void stamp_query(void **ibv_context)
{
	ibv_context[QUERY_RT_VALUES] = (void *)query_rt_values;
}
