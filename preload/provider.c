/*
 * Corrections of rdma-core's rxe provider (providers/rxe/rxe.c), whose errors programs would
 * attribute to the NIC:
 *
 * - ibv_next_poll() that finds no further completion releases the queue's lock, and in release
 *   44 advances the ring. ibv_end_poll(), which must follow, does both again. So it consumes a
 *   completion that does not exist, and the ring looks full of old ones. (Fixed in 65.)
 * - ibv_wr_set_inline_data_list() sets the length to 0. (Fixed in 65.)
 * - The builders of the extended API (ibv_wr_send() and others) pass IBV_SEND_INLINE on, and the
 *   SGEs of ibv_wr_set_sge() are then sent as data. There the setter alone selects inline data
 *   (ibv_wr_post(3) has no such flag, mlx5 ignores it).
 * - It refuses IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN and IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, and lacks
 *   ibv_modify_cq(). The daemon implements both flags.
 *
 * The daemon corrects ibv_wr_set_sge_list(), which uses the first length n times.
 */
#include "interpose.h"

#include <errno.h>
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

/* The completion queues at whose end this thread has arrived without a call of ibv_end_poll().
 * The provider has already ended these polls and released their locks. */
enum { MAX_ENDED = 8 };
static __thread void *ended[MAX_ENDED];
static __thread unsigned int ended_count;

/* take_ended removes a queue from the list; false if it was not there. */
static bool take_ended(void *cq)
{
	for (unsigned int i = ended_count; i-- > 0;)
		if (ended[i] == cq) {
			ended[i] = ended[--ended_count];
			return true;
		}
	return false;
}

static int mending_start(void *cq, void *attr)
{
	take_ended(cq);
	return atomic_load_explicit(&stock_start, memory_order_relaxed)(cq, attr);
}

/* mending_next ends the poll and starts another one, which costs one more lock: one of many
 * completions then takes 11 ns in all, about 1 % of the time of a message. After ENOENT there is
 * no poll to end: ibv_end_poll() would consume a completion that the program has not seen. */
static int mending_next(void *cq)
{
	uint64_t none = 0; /* struct ibv_poll_cq_attr */
	if (!take_ended(cq))
		atomic_load_explicit(&stock_end, memory_order_relaxed)(cq);
	int err = atomic_load_explicit(&stock_start, memory_order_relaxed)(cq, &none);
	if (err) {
		if (ended_count == MAX_ENDED)
			take_ended(ended[0]);
		ended[ended_count++] = cq;
	}
	return err;
}

static void mending_end(void *cq)
{
	if (!take_ended(cq))
		atomic_load_explicit(&stock_end, memory_order_relaxed)(cq);
}

void provider_mend_cq(void **cq)
{
	HOOK(cq[START_POLL], stock_start, mending_start);
	HOOK(cq[NEXT_POLL], stock_next, mending_next);
	HOOK(cq[END_POLL], stock_end, mending_end);
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

/* BUILDER defines a builder of work requests that hides IBV_SEND_INLINE from the provider's. */
#define BUILDER(name, params, ...)                                                              \
	typedef void name##_fn params;                                                          \
	static _Atomic(name##_fn *) stock_##name;                                               \
	static void name params                                                                 \
	{                                                                                       \
		uint32_t *flags = (uint32_t *)(qp + WR_FLAGS), all = *flags;                    \
		*flags &= ~SEND_INLINE;                                                         \
		atomic_load_explicit(&stock_##name, memory_order_relaxed)(__VA_ARGS__);         \
		*flags = all;                                                                   \
	}
BUILDER(build_cmp_swp, (void **qp, uint32_t key, uint64_t at, uint64_t compare, uint64_t swap), qp, key, at, compare, swap)
BUILDER(build_fetch_add, (void **qp, uint32_t key, uint64_t at, uint64_t add), qp, key, at, add)
BUILDER(build_read, (void **qp, uint32_t key, uint64_t at), qp, key, at)
BUILDER(build_write, (void **qp, uint32_t key, uint64_t at), qp, key, at)
BUILDER(build_write_imm, (void **qp, uint32_t key, uint64_t at, uint32_t imm), qp, key, at, imm)
BUILDER(build_send, (void **qp), qp)
BUILDER(build_send_imm, (void **qp, uint32_t imm), qp, imm)
BUILDER(build_send_inv, (void **qp, uint32_t key), qp, key)

static void mend_qp(void **qp)
{
	HOOK(qp[WR_CMP_SWP], stock_build_cmp_swp, build_cmp_swp);
	HOOK(qp[WR_FETCH_ADD], stock_build_fetch_add, build_fetch_add);
	HOOK(qp[WR_READ], stock_build_read, build_read);
	HOOK(qp[WR_WRITE], stock_build_write, build_write);
	HOOK(qp[WR_WRITE_IMM], stock_build_write_imm, build_write_imm);
	HOOK(qp[WR_SEND], stock_build_send, build_send);
	HOOK(qp[WR_SEND_IMM], stock_build_send_imm, build_send_imm);
	HOOK(qp[WR_SEND_INV], stock_build_send_inv, build_send_inv);
	HOOK(qp[SET_INLINE_DATA_LIST], stock_list, joined_list);
}

/* take_flag clears a flag in a word if the word is valid, and reports whether it was set. */
static uint32_t take_flag(uint32_t *word, uint32_t flag, bool valid)
{
	if (!valid || !(*word & flag))
		return 0;
	*word &= ~flag;
	return flag;
}

void *provider_create_cq(create_cq_fn *create, void *context, struct cq_init_attr *attr)
{
	uverbs_flags = take_flag(&attr->flags, CQ_IGNORE_OVERRUN, attr->comp_mask & CQ_FLAGS);
	void *cq = create(context, attr);
	uverbs_flags = 0;
	return cq;
}

static void *mending_create(void *context, void *attr)
{
	uint32_t *word = attr;
	uint32_t mine = take_flag(&word[QP_CREATE_FLAGS], QP_BLOCK_SELF_MCAST, word[QP_COMP_MASK] & QP_FLAGS);
	uverbs_flags = mine;
	void **qp = atomic_load(&stock_create)(context, attr);
	uverbs_flags = 0;
	if (mine)
		word[QP_CREATE_FLAGS] |= mine;
	if (qp && ((uint32_t *)attr)[QP_COMP_MASK] & QP_SEND_OPS)
		mend_qp(qp);
	return qp;
}

/* modify_cq is ibv_modify_cq(). Moderation may delay events to join them; each arming requests one
 * event only, so the NIC delays none. */
static int modify_cq(void *cq, const struct modify_cq_attr *attr)
{
	(void)cq;
	return attr->attr_mask == CQ_MODERATE ? 0 : EOPNOTSUPP;
}

void provider_mend(void **context)
{
	context[MODIFY_CQ] = (void *)modify_cq;
	HOOK(context[CREATE_QP_EX], stock_create, mending_create);
}
