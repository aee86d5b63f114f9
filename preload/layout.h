/* Where libibverbs keeps what poll.c uses of a context: struct ibv_context is a
 * pointer, 32 operations and cmd_fd. Its beginning is part of libibverbs's ABI, and a
 * test compares these numbers with its header. In words of a pointer's size. */
enum { OPS_POLL_CQ = 1 + 11, CMD_FD = 1 + 32 };
