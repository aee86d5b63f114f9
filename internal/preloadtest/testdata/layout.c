/* The words of struct ibv_context that poll.c uses are where it says. */
#include <infiniband/verbs.h>
#include <stddef.h>

#include "../../../preload/layout.h"

_Static_assert(offsetof(struct ibv_context, ops.poll_cq) == OPS_POLL_CQ * sizeof(void *), "poll_cq");
_Static_assert(offsetof(struct ibv_context, cmd_fd) == CMD_FD * sizeof(void *), "cmd_fd");

int main(void)
{
	return 0;
}
