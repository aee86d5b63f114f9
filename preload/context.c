/* A verbs context: one connection, and the commands of the library on it. */
#include "context.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

struct context *context_of(int fd)
{
	struct file *f = fd_file(fd);
	return f && f->kind == FD_UVERBS ? (struct context *)f : NULL;
}

void context_put(struct context *c)
{
	if (atomic_fetch_sub(&c->holders, 1) != 1)
		return;
	objects_free(&c->objects);
	doorbell_free(c);
	call_lock_free(c->call);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

int context_send(struct context *c, const void *cmd, size_t n, const int *fds, size_t nfds)
{
	if (nfds == 0 && !atomic_load(&c->dead) && direct_call(c, cmd, n))
		return 0;
	if (!atomic_load(&c->dead))
		return conn_call(c->fd, cmd, n, fds, nfds, &c->answer);
	c->answer.nfd = 0;
	return c->answer.ret = -EIO;
}

int context_call_locked(struct context *c, const void *cmd, size_t n, const int *fds, size_t nfds, void *resp,
			size_t resp_len)
{
	int ret = context_send(c, cmd, n, fds, nfds);
	if (ret == 0) {
		if (resp)
			answer_copy(&c->answer, resp, resp_len);
		answer_close(&c->answer, 0);
	}
	return ret;
}

int context_call(struct context *c, const void *cmd, size_t n, int send_fd, void *resp, size_t resp_len)
{
	call_lock(c->call, c->fd);
	int ret = context_call_locked(c, cmd, n, &send_fd, send_fd >= 0, resp, resp_len);
	call_unlock(c->call);
	return ret;
}

void context_start_doorbells(struct context *c)
{
	struct ib_uverbs_cmd_hdr cmd = { .command = EXT_DOORBELL, .in_words = sizeof cmd / 4,
					 .out_words = sizeof(struct doorbell) / 4 };
	if (context_send(c, &cmd, sizeof cmd, NULL, 0) != 0)
		return;
	doorbell_map(c, &c->answer);
	answer_close(&c->answer, 0);
}
