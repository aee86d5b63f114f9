/* Offsets in structures of libibverbs, in words of a pointer's size. These parts of the
 * structures belong to its ABI. A test compares the numbers with its header. */
#ifndef ROCED_LAYOUT_H
#define ROCED_LAYOUT_H

#include <stdint.h>
#include <time.h>

/* struct ibv_context has a pointer, 32 operations, cmd_fd and more. All bits of abi_compat, its
 * last member, are set if it is part of a struct verbs_context. */
enum { OPS_POLL_CQ = 1 + 11, CMD_FD = 1 + 32, ABI_COMPAT = 40, CONTEXT_WORDS = 41 };

/* The rest of struct verbs_context precedes its struct ibv_context and grows at its start. Its
 * last member is the size of the whole in bytes. */
enum { VERBS_SIZE = -1, CREATE_QP_EX = -7, CREATE_CQ_EX = -15, QUERY_RT_VALUES = -16,
       MODIFY_CQ = -23 };

/* struct ibv_cq_ex, which starts like struct ibv_cq */
enum { CQ_CONTEXT = 0, CQ_HANDLE = 3, START_POLL = 18, NEXT_POLL, END_POLL, READ_COMPLETION_TS = 31, READ_COMPLETION_WALLCLOCK = 35 };

/* struct ibv_cq_init_attr_ex. A bit of comp_mask indicates the last member. */
struct cq_init_attr {
	uint32_t cqe;
	void *cq_context, *channel;
	uint32_t comp_vector;
	uint64_t wc_flags;
	uint32_t comp_mask, flags;
	void *parent_domain;
};
enum { WC_TIMESTAMP = 1 << 7, WC_TIMESTAMP_WALLCLOCK = 1 << 11, CQ_FLAGS = 1 << 0, CQ_PARENT_DOMAIN = 1 << 1,
       CQ_IGNORE_OVERRUN = 1 << 1 };

/* struct ibv_values_ex */
struct values {
	uint32_t comp_mask;
	struct timespec raw_clock;
};
enum { VALUES_RAW_CLOCK = 1 };

/* struct ibv_modify_cq_attr */
struct modify_cq_attr {
	uint32_t attr_mask;
	uint16_t count, period_us;
};
enum { CQ_MODERATE = 1 << 0 };

/* struct ibv_qp_init_attr_ex, in 32-bit words, and its bits for create_flags and the extended
 * send operations */
enum { QP_COMP_MASK = 4 * sizeof(void *) / 4 + 7, QP_CREATE_FLAGS = QP_COMP_MASK + 1 + 2 * sizeof(void *) / 4,
       QP_FLAGS = 1 << 2, QP_SEND_OPS = 1 << 6, QP_BLOCK_SELF_MCAST = 1 << 1 };

/* struct ibv_qp_ex, and a flag of its wr_flags */
enum { WR_FLAGS = 22, WR_CMP_SWP, WR_FETCH_ADD, WR_READ = 27, WR_WRITE, WR_WRITE_IMM, WR_SEND, WR_SEND_IMM, WR_SEND_INV,
       SET_INLINE_DATA = 36, SET_INLINE_DATA_LIST };
enum { SEND_INLINE = 1 << 3 };

/* struct ibv_ah_attr, in bytes */
enum { AH_DLID = 24, AH_IS_GLOBAL = 29 };

/* struct ibv_wc, in bytes */
enum { WC_SL = 44, WC_SIZE = 48 };

/* HOOK stores the provider's function in stock and replaces it with ours. It keeps a function
 * that is not the provider's. */
#define HOOK(word, stock, ours)                                                                 \
	do {                                                                                    \
		__typeof__(&(ours)) p = (__typeof__(&(ours)))(word), none = NULL;               \
		if (p && p != (ours) && (atomic_compare_exchange_strong(&(stock), &none, p) || none == p)) \
			(word) = (void *)(ours);                                                \
	} while (0)

#endif
