/*
 * Corrections of rdma-core's rxe provider (providers/rxe/rxe.c), whose errors programs would
 * attribute to the NIC:
 *
 * - ibv_next_poll() that finds no further completion releases the queue's lock, and in release
 *   44 advances the ring. ibv_end_poll(), which must follow, does both again. So it consumes a
 *   completion that does not exist, and the ring looks full of old ones. (Fixed in 65.)
 * - ibv_wr_set_inline_data_list() sets the length to 0. (Fixed in 65.)
 *
 * The daemon corrects ibv_wr_set_sge_list(), which uses the first length n times.
 */
#include "interpose.h"

#include <string.h>

struct data_buf {
	void *addr;
	size_t length;
};

typedef int start_fn(void *cq, void *attr);
typedef int next_fn(void *cq);
typedef void end_fn(void *cq);
typedef void *create_fn(void *context, void *attr);
typedef void inline_fn(void *qp, void *addr, size_t length);
typedef void list_fn(void *qp, size_t n, const struct data_buf *list);

/* The functions of the provider. All devices have the same ones. */
static _Atomic(start_fn *) stock_start;
static _Atomic(next_fn *) stock_next; /* never called */
static _Atomic(end_fn *) stock_end;
static _Atomic(create_fn *) stock_create;
static _Atomic(list_fn *) stock_list;

/* The completion queues in which this thread has found the end, and which it has not called
 * ibv_end_poll() for: the provider knows nothing of such a poll any more. */
enum { MANY = 8 };
static __thread void *over[MANY];
static __thread unsigned int overs;

/* forget says whether a queue was one of them. */
static bool forget(void *cq)
{
	for (unsigned int i = overs; i-- > 0;)
		if (over[i] == cq) {
			over[i] = over[--overs];
			return true;
		}
	return false;
}

static int whole_start(void *cq, void *attr)
{
	forget(cq);
	return atomic_load_explicit(&stock_start, memory_order_relaxed)(cq, attr);
}

/* whole_next ends the poll and begins another one, which costs a lock more: a completion of
 * many takes 11 ns in all then, about 1 % of what a message takes. */
static int whole_next(void *cq)
{
	uint64_t none = 0; /* struct ibv_poll_cq_attr */
	atomic_load_explicit(&stock_end, memory_order_relaxed)(cq);
	int err = atomic_load_explicit(&stock_start, memory_order_relaxed)(cq, &none);
	if (err) {
		if (overs == MANY)
			forget(over[0]);
		over[overs++] = cq;
	}
	return err;
}

static void whole_end(void *cq)
{
	if (!forget(cq))
		atomic_load_explicit(&stock_end, memory_order_relaxed)(cq);
}

void provider_mend_cq(void **cq)
{
	HOOK(cq[START_POLL], stock_start, whole_start);
	HOOK(cq[NEXT_POLL], stock_next, whole_next);
	HOOK(cq[END_POLL], stock_end, whole_end);
}

/* joined_list copies a list into one buffer and sends that. */
static void joined_list(void *qp, size_t n, const struct data_buf *list)
{
	char whole[4096]; /* more than the max_inline_data of a queue pair */
	size_t length = 0;
	for (size_t i = 0; i < n; i++) {
		if (list[i].length > sizeof whole - length) { /* the provider reports the error */
			atomic_load(&stock_list)(qp, n, list);
			return;
		}
		memcpy(whole + length, list[i].addr, list[i].length);
		length += list[i].length;
	}
	((inline_fn *)((void **)qp)[SET_INLINE_DATA])(qp, whole, length);
}

static void *mending_create(void *context, void *attr)
{
	void **qp = atomic_load(&stock_create)(context, attr);
	if (qp && ((uint32_t *)attr)[QP_COMP_MASK] & QP_SEND_OPS)
		HOOK(qp[SET_INLINE_DATA_LIST], stock_list, joined_list);
	return qp;
}

void provider_mend(void **context)
{
	HOOK(context[CREATE_QP_EX], stock_create, mending_create);
}
