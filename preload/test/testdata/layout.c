/* Compares the offsets of preload/layout.h with the header of libibverbs. */
#include <infiniband/verbs.h>
#include <stddef.h>

#include "../../layout.h"

_Static_assert(offsetof(struct ibv_context, ops.poll_cq) == OPS_POLL_CQ * sizeof(void *), "poll_cq");
_Static_assert(offsetof(struct ibv_context, cmd_fd) == CMD_FD * sizeof(void *), "cmd_fd");
_Static_assert(offsetof(struct ibv_context, abi_compat) == ABI_COMPAT * sizeof(void *), "abi_compat");
_Static_assert(sizeof(struct ibv_context) == CONTEXT_WORDS * sizeof(void *), "context");
_Static_assert(offsetof(struct verbs_context, context) - offsetof(struct verbs_context, sz) == -VERBS_SIZE * sizeof(void *), "sz");
_Static_assert(offsetof(struct verbs_context, context) - offsetof(struct verbs_context, create_cq_ex) ==
		       -CREATE_CQ_EX * sizeof(void *), "create_cq_ex");
_Static_assert(offsetof(struct verbs_context, context) - offsetof(struct verbs_context, create_qp_ex) ==
		       -CREATE_QP_EX * sizeof(void *), "create_qp_ex");
_Static_assert(offsetof(struct ibv_cq_ex, next_poll) == NEXT_POLL * sizeof(void *), "next_poll");
_Static_assert(offsetof(struct ibv_cq_ex, end_poll) == END_POLL * sizeof(void *), "end_poll");
_Static_assert(offsetof(struct ibv_qp_init_attr_ex, comp_mask) == QP_COMP_MASK * 4, "comp_mask");
_Static_assert((int)IBV_QP_INIT_ATTR_SEND_OPS_FLAGS == (int)QP_SEND_OPS, "send_ops_flags");
_Static_assert(offsetof(struct ibv_qp_ex, wr_set_inline_data) == SET_INLINE_DATA * sizeof(void *), "wr_set_inline_data");
_Static_assert(offsetof(struct ibv_qp_ex, wr_set_inline_data_list) == SET_INLINE_DATA_LIST * sizeof(void *),
	       "wr_set_inline_data_list");
_Static_assert(offsetof(struct ibv_qp_ex, wr_flags) == WR_FLAGS * sizeof(void *), "wr_flags");
_Static_assert(offsetof(struct ibv_qp_ex, wr_atomic_fetch_add) == WR_FETCH_ADD * sizeof(void *), "wr_atomic_fetch_add");
_Static_assert(offsetof(struct ibv_qp_ex, wr_rdma_read) == WR_READ * sizeof(void *), "wr_rdma_read");
_Static_assert(offsetof(struct ibv_qp_ex, wr_send_inv) == WR_SEND_INV * sizeof(void *), "wr_send_inv");
_Static_assert((int)IBV_SEND_INLINE == (int)SEND_INLINE, "inline");
_Static_assert(offsetof(struct verbs_context, context) - offsetof(struct verbs_context, query_rt_values) ==
		       -QUERY_RT_VALUES * sizeof(void *), "query_rt_values");
_Static_assert(offsetof(struct ibv_cq_ex, context) == CQ_CONTEXT * sizeof(void *), "context of a queue");
_Static_assert(offsetof(struct ibv_cq_ex, handle) == CQ_HANDLE * sizeof(void *), "handle");
_Static_assert(offsetof(struct ibv_cq_ex, read_completion_ts) == READ_COMPLETION_TS * sizeof(void *), "read_completion_ts");
_Static_assert(offsetof(struct ibv_cq_ex, read_completion_wallclock_ns) == READ_COMPLETION_WALLCLOCK * sizeof(void *),
	       "read_completion_wallclock_ns");
_Static_assert(offsetof(struct ibv_cq_init_attr_ex, wc_flags) == offsetof(struct cq_init_attr, wc_flags), "wc_flags");
_Static_assert(offsetof(struct ibv_cq_init_attr_ex, flags) == offsetof(struct cq_init_attr, flags), "flags");
_Static_assert(sizeof(struct ibv_cq_init_attr_ex) == sizeof(struct cq_init_attr), "ibv_cq_init_attr_ex");
_Static_assert((int)IBV_WC_EX_WITH_COMPLETION_TIMESTAMP == (int)WC_TIMESTAMP, "timestamp");
_Static_assert((int)IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK == (int)WC_TIMESTAMP_WALLCLOCK, "wallclock");
_Static_assert((int)IBV_CQ_INIT_ATTR_MASK_PD == (int)CQ_PARENT_DOMAIN, "parent domain");
_Static_assert(offsetof(struct ibv_values_ex, raw_clock) == offsetof(struct values, raw_clock), "raw_clock");
_Static_assert((int)IBV_VALUES_MASK_RAW_CLOCK == (int)VALUES_RAW_CLOCK, "values");
_Static_assert(offsetof(struct ibv_cq_ex, start_poll) == START_POLL * sizeof(void *), "start_poll");
_Static_assert(offsetof(struct ibv_ah_attr, dlid) == AH_DLID, "dlid");
_Static_assert(offsetof(struct ibv_ah_attr, is_global) == AH_IS_GLOBAL, "is_global");
_Static_assert(offsetof(struct ibv_wc, sl) == WC_SL && sizeof(struct ibv_wc) == WC_SIZE, "sl");
_Static_assert(offsetof(struct ibv_pd, context) == 0, "context of a protection domain");

_Static_assert(offsetof(struct verbs_context, context) - offsetof(struct verbs_context, modify_cq) == -MODIFY_CQ * sizeof(void *),
	       "modify_cq");
_Static_assert(offsetof(struct ibv_modify_cq_attr, moderate.cq_count) == offsetof(struct modify_cq_attr, count) &&
		       offsetof(struct ibv_modify_cq_attr, moderate.cq_period) == offsetof(struct modify_cq_attr, period_us),
	       "moderate");
_Static_assert((int)IBV_CQ_ATTR_MODERATE == (int)CQ_MODERATE, "moderate bit");
_Static_assert((int)IBV_CQ_INIT_ATTR_MASK_FLAGS == (int)CQ_FLAGS, "mask of flags");
_Static_assert((int)IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN == (int)CQ_IGNORE_OVERRUN, "ignore_overrun");
_Static_assert(offsetof(struct ibv_qp_init_attr_ex, create_flags) == QP_CREATE_FLAGS * 4, "create_flags");
_Static_assert((int)IBV_QP_INIT_ATTR_CREATE_FLAGS == (int)QP_FLAGS, "mask of create_flags");
_Static_assert((int)IBV_QP_CREATE_BLOCK_SELF_MCAST_LB == (int)QP_BLOCK_SELF_MCAST, "block_self_mcast_lb");

int main(void)
{
	return 0;
}
