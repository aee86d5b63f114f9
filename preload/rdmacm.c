/*
 * The rdma_cm ABI (rdma/rdma_user_cm.h). Commands that a program writes to
 * /dev/infiniband/rdma_cm travel to the daemon (docs/reference/control-protocol.md).
 *
 * The program's descriptor is the event socket, so poll(), blocking reads and O_NONBLOCK
 * work. A byte in the socket (the bell) announces events in the daemon. The thread that reads
 * the byte requests one event; the daemon sends another byte if more events wait.
 */
#include "commands.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/rdma_user_cm.h>

/* Extension commands of the daemon. */
enum { CM_EXT_HELLO = 0xc0, CM_EXT_BELL, HELLO_VERSION = 1 };

struct hello {
	struct rdma_ucm_cmd_hdr hdr;
	uint32_t version;
	uint32_t flags;
	char nic[64];
};

struct hello_answer {
	uint32_t version;
	uint32_t event_fd;
};

/* An open rdma_cm device. */
struct cm {
	struct file file;
	int fd; /* the connection; a private descriptor */
	struct call_lock *call; /* one command at a time; guards answer */
	struct answer answer;
};

static void cm_closed(struct file *f)
{
	struct cm *c = (struct cm *)f;
	fd_private_close(c->fd);
	call_lock_free(c->call);
	free(c);
}

/* say_hello opens the context. It returns the event socket, or -1 with errno set. */
static int say_hello(struct cm *c)
{
	struct hello h = { .hdr = { CM_EXT_HELLO, sizeof h - sizeof h.hdr, sizeof(struct hello_answer) },
			   .version = HELLO_VERSION };
	const char *nic = getenv("ROCED_NIC");
	if (nic && strlen(nic) >= sizeof h.nic) {
		errno = ENODEV;
		return -1;
	}
	if (nic)
		strcpy(h.nic, nic);
	int r = conn_call(c->fd, &h, sizeof h, NULL, 0, &c->answer);
	struct hello_answer got;
	if (r == 0 && c->answer.len == sizeof got && c->answer.nfd == 1 && c->answer.fd[0].kind == ANSWER_NUMBER) {
		memcpy(&got, c->answer.body, sizeof got);
		if (got.version == HELLO_VERSION)
			return c->answer.fd[0].fd;
	}
	answer_close(&c->answer, 0);
	errno = r < 0 ? -r : EPROTO;
	return -1;
}

/* set_flags applies the flags of open() to the program's descriptor. */
static int set_flags(int fd, int flags)
{
	if (!(flags & O_CLOEXEC))
		syscall(SYS_fcntl, fd, F_SETFD, 0);
	if (flags & O_NONBLOCK)
		syscall(SYS_fcntl, fd, F_SETFL, O_RDWR | O_NONBLOCK);
	return fd;
}

int rcm_open(int flags)
{
	struct cm *c = calloc(1, sizeof *c);
	if (!c)
		return -1;
	c->file = (struct file){ .kind = FD_CM, .rdev = class_rdev("misc/rdma_cm"), .release = cm_closed };
	c->call = call_lock_new();
	c->fd = c->call ? fd_private(conn_dial("rdma_cm")) : -1;
	int events = c->fd < 0 ? -1 : say_hello(c);
	if (events >= 0 && fd_set_file(events, &c->file) == 0)
		return set_flags(events, flags);
	int err = errno;
	if (events >= 0)
		syscall(SYS_close, events);
	if (c->fd >= 0)
		fd_private_close(c->fd);
	if (c->call)
		call_lock_free(c->call);
	free(c);
	errno = err;
	return -1;
}

/* response_at returns the offset of the response pointer in the structure of a command, -1 if
 * it has none. */
static int response_at(uint32_t cmd)
{
	switch (cmd) {
	case RDMA_USER_CM_CMD_CREATE_ID:
		return offsetof(struct rdma_ucm_create_id, response);
	case RDMA_USER_CM_CMD_DESTROY_ID:
	case RDMA_USER_CM_CMD_LEAVE_MCAST:
		return offsetof(struct rdma_ucm_destroy_id, response);
	case RDMA_USER_CM_CMD_QUERY_ROUTE:
	case RDMA_USER_CM_CMD_QUERY:
		return offsetof(struct rdma_ucm_query, response);
	case RDMA_USER_CM_CMD_INIT_QP_ATTR:
		return offsetof(struct rdma_ucm_init_qp_attr, response);
	case RDMA_USER_CM_CMD_GET_EVENT:
		return offsetof(struct rdma_ucm_get_event, response);
	case RDMA_USER_CM_CMD_JOIN_IP_MCAST:
		return offsetof(struct rdma_ucm_join_ip_mcast, response);
	case RDMA_USER_CM_CMD_JOIN_MCAST:
		return offsetof(struct rdma_ucm_join_mcast, response);
	case RDMA_USER_CM_CMD_MIGRATE_ID:
		return offsetof(struct rdma_ucm_migrate_id, response);
	}
	return -1;
}

/* call sends a command and copies the response to the program's buffer; 0 or -errno. The
 * caller holds c->call. */
static int call(struct cm *c, const struct rdma_ucm_cmd_hdr *h, const void *msg, size_t n, int send_fd)
{
	int r = conn_call(c->fd, msg, n, &send_fd, send_fd >= 0, &c->answer);
	answer_close(&c->answer, 0);
	if (r == -EIO && h->cmd == RDMA_USER_CM_CMD_DESTROY_ID && conn_hung_up(c->fd))
		c->answer.len = r = 0; /* the daemon is gone: no events remain */
	int at = response_at(h->cmd);
	if (r < 0 || at < 0)
		return r;
	uint64_t to;
	if (n < sizeof *h + at + sizeof to)
		return -EINVAL;
	memcpy(&to, (const uint8_t *)msg + sizeof *h + at, sizeof to);
	answer_copy(&c->answer, (void *)(uintptr_t)to, h->out);
	return 0;
}

/* take_bell removes a stale bell from the socket after the identifier with its events is
 * destroyed or migrated, and returns it to the daemon. Otherwise the descriptor would stay
 * readable without an event. The caller holds f->call. */
static void take_bell(struct cm *f, int fd)
{
	struct rdma_ucm_cmd_hdr h = { .cmd = CM_EXT_BELL };
	uint8_t bell;
	if (recv(fd, &bell, sizeof bell, MSG_DONTWAIT) > 0 && conn_call(f->fd, &h, sizeof h, NULL, 0, &f->answer) == 0)
		answer_close(&f->answer, 0);
}

/* take_event takes the bell and requests its event; -EAGAIN if there is no bell. Cancellation
 * is disabled, because a cancelled thread would lose the bell. */
static int take_event(struct cm *c, int fd, const struct rdma_ucm_cmd_hdr *h, const void *msg, size_t n)
{
	uint8_t bell;
	int cancel, r = -EAGAIN; /* another thread was faster */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	if (recv(fd, &bell, sizeof bell, MSG_DONTWAIT) > 0) {
		call_lock(c->call, c->fd);
		r = call(c, h, msg, n, -1);
		call_unlock(c->call);
	}
	pthread_setcancelstate(cancel, NULL);
	return r;
}

static int wait_event(struct cm *c, int fd, const struct rdma_ucm_cmd_hdr *h, const void *msg, size_t n)
{
	while (fd_file(fd) == &c->file) {
		uint8_t bell;
		ssize_t k = recv(fd, &bell, sizeof bell, MSG_PEEK);
		if (k < 0)
			return errno == ECONNRESET ? -EIO : -errno;
		if (k == 0 && fd_file(fd) != &c->file)
			return -EBADF; /* the program closed the device */
		if (k == 0) {
			conn_ended();
			return -EIO;
		}
		int r = take_event(c, fd, h, msg, n);
		if (r != -EAGAIN)
			return r;
	}
	return -EBADF;
}

/* get_event waits for an event and is a cancellation point. Like a system call it keeps the
 * context open: if the program closes the descriptor meanwhile, it continues to wait. */
static int get_event(struct cm *c, int fd, const struct rdma_ucm_cmd_hdr *h, const void *msg, size_t n)
{
	int r;
	file_hold(&c->file);
	pthread_cleanup_push(file_cleanup, &c->file);
	r = wait_event(c, fd, h, msg, n);
	pthread_cleanup_pop(1);
	return r;
}

/* set_option appends the option value to the command. */
static int set_option(struct cm *c, const struct rdma_ucm_cmd_hdr *h, const void *msg, size_t n)
{
	struct rdma_ucm_set_option o;
	if (n < sizeof *h + sizeof o)
		return -EINVAL;
	memcpy(&o, (const uint8_t *)msg + sizeof *h, sizeof o);
	size_t len = sizeof *h + sizeof o + o.optlen;
	if (len > MAX_MESSAGE)
		return -EINVAL;
	uint8_t *whole = malloc(len);
	if (!whole)
		return -ENOMEM;
	memcpy(whole, msg, sizeof *h + sizeof o);
	memcpy(whole + sizeof *h + sizeof o, (const void *)(uintptr_t)o.optval, o.optlen);
	call_lock(c->call, c->fd);
	int r = call(c, h, whole, len, -1);
	call_unlock(c->call);
	free(whole);
	return r;
}

/* migrate moves an identifier from another context of the program to c. */
static int migrate(struct cm *c, const struct rdma_ucm_cmd_hdr *h, const void *msg, size_t n)
{
	struct rdma_ucm_migrate_id m;
	if (n < sizeof *h + sizeof m)
		return -EINVAL;
	memcpy(&m, (const uint8_t *)msg + sizeof *h, sizeof m);
	struct file *f = fd_file(m.fd);
	if (!f || f->kind != FD_CM)
		return -EINVAL;
	struct cm *from = (struct cm *)f;
	/* Lock in the order of addresses to avoid a deadlock of two migrations. */
	struct cm *first = from < c ? from : c, *second = from < c ? c : from;
	call_lock(first->call, first->fd);
	if (second != first)
		call_lock(second->call, second->fd);
	int r = call(c, h, msg, n, m.fd);
	if (r == 0 && from != c)
		take_bell(from, m.fd);
	if (second != first)
		call_unlock(second->call);
	call_unlock(first->call);
	return r;
}

/* plain executes a command that does not wait. */
static int plain(struct cm *c, int fd, const struct rdma_ucm_cmd_hdr *h, const void *msg, size_t n)
{
	switch (h->cmd) {
	case RDMA_USER_CM_CMD_SET_OPTION:
		return set_option(c, h, msg, n);
	case RDMA_USER_CM_CMD_MIGRATE_ID:
		return migrate(c, h, msg, n);
	}
	call_lock(c->call, c->fd);
	int r = call(c, h, msg, n, -1);
	if (r == 0 && h->cmd == RDMA_USER_CM_CMD_DESTROY_ID)
		take_bell(c, fd);
	call_unlock(c->call);
	return r;
}

static int command(struct cm *c, int fd, const struct rdma_ucm_cmd_hdr *h, const void *msg, size_t n)
{
	int cancel;
	if (h->cmd == RDMA_USER_CM_CMD_GET_EVENT)
		return get_event(c, fd, h, msg, n);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	file_hold(&c->file); /* the program may close it meanwhile */
	int r = plain(c, fd, h, msg, n);
	file_put(&c->file);
	pthread_setcancelstate(cancel, NULL);
	return r;
}

ssize_t rcm_write(int fd, const void *buf, size_t n)
{
	struct file *f = fd_file(fd);
	struct rdma_ucm_cmd_hdr h;
	int r = -EINVAL;
	if (f && n >= sizeof h && n <= MAX_MESSAGE) {
		memcpy(&h, buf, sizeof h);
		if (h.in + sizeof h <= n)
			r = command((struct cm *)f, fd, &h, buf, n);
	}
	if (r == 0)
		return n;
	errno = -r;
	return -1;
}
