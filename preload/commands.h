/*
 * Commands of programs.
 *
 *   uverbs_open.c    opening a verbs device
 *   uverbs.c         commands to a verbs device
 *   uverbs_answer.c  their answers
 *   rdmacm.c         the rdma_cm ABI
 *   netlink.c        RDMA netlink
 */
#ifndef ROCED_COMMANDS_H
#define ROCED_COMMANDS_H

#include "events.h"

#include <sys/socket.h>

#include <rdma/ib_user_verbs.h>

enum { HDR = sizeof(struct ib_uverbs_cmd_hdr), EX_HDR = HDR + sizeof(struct ib_uverbs_ex_cmd_hdr) };

/* A command of the program to a verbs device. */
struct command {
	struct context *c;
	uint8_t bytes[MAX_MESSAGE]; /* a copy, because the library translates some fields */
	size_t n;
	uint32_t number;
	bool extended;
	void *response; /* the program's buffer */
	size_t room;
	struct object *object;   /* that the command creates, resizes or destroys */
	struct mr_source source; /* of a registration */
};

/* ---- uverbs_open.c ---- */

/* uverbs_open opens /dev/infiniband/<name>; -1 with errno set. */
int uverbs_open(const char *name, int flags);

/* ---- uverbs.c ---- */

/* uverbs_write executes a command that a program writes to a verbs device. */
ssize_t uverbs_write(struct context *c, const void *buf, size_t n);
/* uverbs_flags are flags that the provider does not pass on. Commands of this thread that create
 * completion queues or queue pairs get them in addition: plain commands in their reserved field. */
extern __thread uint32_t uverbs_flags;

/* The descriptor of the memory that this thread registers with REG_MR, at the offset that the command has as start. */
struct dmabuf {
	int fd;
};
extern __thread struct dmabuf *uverbs_dmabuf;

/* ---- uverbs_answer.c: the caller holds c->call ---- */

/* answer_settle updates the table of objects after a command; 0 or -errno. */
int answer_settle(struct command *m);
/* answer_take_fds assigns the descriptors of an answer to new channels; 0 or -errno. */
int answer_take_fds(struct command *m);
/* answer_mapped records the mapping that the daemon made for a region; 0 or -errno. */
int answer_mapped(struct command *m);
/* answer_destroyed answers a destroying command with success: the daemon is gone, and the
 * object with it. */
void answer_destroyed(struct answer *a);
/* command_core returns the command's own structure, behind the headers. */
void *command_core(struct command *m);
/* command_destroys returns true if a command destroys an object. */
bool command_destroys(const struct command *m);

/* ---- rdmacm.c ---- */

/* rcm_open opens /dev/infiniband/rdma_cm; rcm_write executes a command. */
int rcm_open(int flags);
ssize_t rcm_write(int fd, const void *buf, size_t n);

/* ---- netlink.c ---- */

/* netlink_open opens a socket of RDMA netlink with the flags of a socket type; -1 with errno
 * set. netlink_address writes the address of a port, 0 for the kernel, like getsockname(). */
int netlink_open(int type);
void netlink_address(void *to, socklen_t *len, uint32_t port);

#endif
