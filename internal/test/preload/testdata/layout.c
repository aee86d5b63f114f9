/* The words that poll.c and provider.c use are where it says. */
#include <infiniband/verbs.h>
#include <stddef.h>

#include "../../../../preload/layout.h"

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
_Static_assert(offsetof(struct ibv_cq_ex, start_poll) == START_POLL * sizeof(void *), "start_poll");

int main(void)
{
	return 0;
}
