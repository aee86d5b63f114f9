/* Where libibverbs keeps what poll.c uses. These parts of its structures belong to its
 * ABI, and a test compares the numbers with its header. In words of a pointer's size. */

/* struct ibv_context is a pointer, 32 operations, cmd_fd and more; at its end, all bits
 * of abi_compat are set in one that is part of a struct verbs_context. */
enum { OPS_POLL_CQ = 1 + 11, CMD_FD = 1 + 32, ABI_COMPAT = 40, CONTEXT_WORDS = 41 };

/* The rest of struct verbs_context lies before its struct ibv_context and grows at the
 * beginning; the size of the whole, in bytes, comes last. */
enum { VERBS_SIZE = -1, CREATE_CQ_EX = -15 };

/* struct ibv_cq_ex */
enum { START_POLL = 18 };
