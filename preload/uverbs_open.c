/* Opening a verbs device. */
#include "commands.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

enum { EXT_VERSION = 2, HELLO_ROOM = 264 };

struct hello {
	struct ib_uverbs_cmd_hdr h;
	uint32_t version;
};

/* context_closed closes the connection after the program has closed the device. Channels
 * may still be open. */
static void context_closed(struct file *f)
{
	struct context *c = (struct context *)f;
	death_unwatch(c);
	mr_context_closed(c);
	fd_private_close(c->fd);
	fd_private_close(c->rings);
	context_put(c);
}

/* say_hello requests the memfd of the context; -1 with errno set. */
static int say_hello(struct context *c)
{
	struct hello h = { .h = { .command = EXT_HELLO, .in_words = sizeof h / 4, .out_words = HELLO_ROOM / 4 },
			   .version = EXT_VERSION };
	struct answer *a = &c->answer;
	int r = conn_call(c->fd, &h, sizeof h, NULL, 0, a);
	if (r == 0 && a->nfd == 1 && a->fd[0].kind == ANSWER_MEMORY)
		return a->fd[0].fd;
	answer_close(a, 0);
	errno = r < 0 ? -r : EPROTO;
	return -1;
}

/* context_abort frees the resources of a context_open that failed. */
static void context_abort(struct context *c)
{
	int err = errno;
	if (c->rings >= 0)
		fd_private_close(c->rings);
	if (c->fd >= 0)
		fd_private_close(c->fd);
	if (c->call)
		call_lock_free(c->call);
	free(c);
	errno = err;
}

/* context_open connects. It returns the program's descriptor, or -1 with errno set. */
static int context_open(struct context *c, const char *name)
{
	char class_device[64];
	snprintf(class_device, sizeof class_device, "infiniband_verbs/%s", name);
	c->file = (struct file){ .kind = FD_UVERBS, .rdev = class_rdev(class_device), .release = context_closed };
	c->opener = process_id();
	atomic_init(&c->watcher, process_id());
	atomic_init(&c->holders, 1);
	pthread_mutex_init(&c->lock, NULL);
	c->rings = -1;
	c->fd = fd_private(conn_dial(name));
	c->call = c->fd < 0 ? NULL : call_lock_new();
	int fd = c->call ? say_hello(c) : -1;
	if (fd >= 0 && (c->rings = fd_private_dup(fd)) >= 0 && fd_set_file(fd, &c->file) == 0)
		return fd;
	if (fd >= 0)
		syscall(SYS_close, fd);
	return -1;
}

int uverbs_open(const char *name, int flags)
{
	struct context *c = calloc(1, sizeof *c);
	if (!c)
		return -1;
	int fd = context_open(c, name);
	if (fd < 0) {
		context_abort(c);
		return -1;
	}
	if (!(flags & O_CLOEXEC))
		syscall(SYS_fcntl, fd, F_SETFD, 0);
	death_watch(c);
	report_start(c);
	return fd;
}

