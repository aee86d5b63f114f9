/* Where libibverbs keeps what poll.c and provider.c use. These parts of its structures belong to its
 * ABI, and a test compares the numbers with its header. In words of a pointer's size. */
#include <stdint.h>
#include <time.h>

/* struct ibv_context is a pointer, 32 operations, cmd_fd and more; at its end, all bits
 * of abi_compat are set in one that is part of a struct verbs_context. */
enum { OPS_POLL_CQ = 1 + 11, CMD_FD = 1 + 32, ABI_COMPAT = 40, CONTEXT_WORDS = 41 };

/* The rest of struct verbs_context lies before its struct ibv_context and grows at the
 * beginning; the size of the whole, in bytes, comes last. */
enum { VERBS_SIZE = -1, CREATE_QP_EX = -7, CREATE_CQ_EX = -15, QUERY_RT_VALUES = -16 };

/* struct ibv_cq_ex, which begins like struct ibv_cq */
enum { CQ_CONTEXT = 0, CQ_HANDLE = 3, START_POLL = 18, NEXT_POLL, END_POLL, READ_COMPLETION_TS = 31, READ_COMPLETION_WALLCLOCK = 35 };

/* struct ibv_cq_init_attr_ex. The last member is there if a bit of comp_mask says so. */
struct cq_init_attr {
	uint32_t cqe;
	void *cq_context, *channel;
	uint32_t comp_vector;
	uint64_t wc_flags;
	uint32_t comp_mask, flags;
	void *parent_domain;
};
enum { WC_TIMESTAMP = 1 << 7, WC_TIMESTAMP_WALLCLOCK = 1 << 11, CQ_PARENT_DOMAIN = 1 << 1 };

/* struct ibv_values_ex */
struct values {
	uint32_t comp_mask;
	struct timespec raw_clock;
};
enum { VALUES_RAW_CLOCK = 1 };

/* struct ibv_qp_init_attr_ex, in words of 32 bits, and its bit for extended sending */
enum { QP_COMP_MASK = 4 * sizeof(void *) / 4 + 7, QP_SEND_OPS = 1 << 6 };

/* struct ibv_qp_ex */
enum { SET_INLINE_DATA = 36, SET_INLINE_DATA_LIST };

/* struct ibv_ah_attr, in bytes */
enum { AH_DLID = 24, AH_IS_GLOBAL = 29 };

/* HOOK puts a function of ours in the place of the provider's, which it keeps. One that
 * is not the provider's stays. */
#define HOOK(word, stock, ours)                                                                 \
	do {                                                                                    \
		__typeof__(&(ours)) p = (__typeof__(&(ours)))(word), none = NULL;               \
		if (p && p != (ours) && (atomic_compare_exchange_strong(&(stock), &none, p) || none == p)) \
			(word) = (void *)(ours);                                                \
	} while (0)
