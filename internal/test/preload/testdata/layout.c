/* The words that poll.c uses are where it says. */
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
_Static_assert(offsetof(struct ibv_cq_ex, start_poll) == START_POLL * sizeof(void *), "start_poll");

int main(void)
{
	return 0;
}
