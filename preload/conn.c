/*
 * A command and its answer on a connection (docs/reference/control-protocol.md). System calls
 * bypass the functions that this library interposes.
 */
#include "connection.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The fixed part of an answer on the wire. */
struct answer_head {
	int32_t ret;
	uint32_t len;
	uint32_t nfd;
	uint32_t reserved;
	struct {
		uint64_t arg;
		uint32_t kind;
		uint32_t size;
	} fd[MAX_FDS];
};
_Static_assert(sizeof(struct answer_head) == 80, "answer header");

enum { MAX_ERRNO = 4095 };

int conn_dial(const char *name)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int n = snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", run_dir(), name);
	if (n < 0 || (size_t)n >= sizeof a.sun_path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	if (!rundir_trusted())
		return -1;
	int fd = syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0 && rundir_peer_trusted(fd))
		return fd;
	int err = errno;
	syscall(SYS_close, fd);
	/* Without a daemon the program sees a missing device. */
	errno = err == EACCES || err == EPERM ? err : ENODEV;
	return -1;
}

/* wait_for blocks until fd is ready. The program may have set O_NONBLOCK. */
static void wait_for(int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };
	poll(&p, 1, -1);
}

static int send_command(int fd, const void *cmd, size_t n, const int *fds, size_t nfds)
{
	struct iovec io = { (void *)cmd, n };
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(MAX_FDS * sizeof(int))];
	} control;
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1 };
	if (nfds > 0) {
		memset(&control, 0, sizeof control);
		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		struct cmsghdr *h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(h), fds, nfds * sizeof(int));
	}
	for (;;) {
		if (syscall(SYS_sendmsg, fd, &m, MSG_NOSIGNAL) >= 0)
			return 0;
		if (errno == EAGAIN)
			wait_for(fd, POLLOUT);
		else if (errno != EINTR)
			return errno == EPIPE || errno == ECONNRESET ? -EIO : -errno;
	}
}

/* take_rights stores the descriptors of a message. */
static void take_rights(struct msghdr *m, struct answer *a)
{
	a->nfd = 0;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n && a->nfd < MAX_FDS; i++)
			memcpy(&a->fd[a->nfd++].fd, CMSG_DATA(h) + i * sizeof(int), sizeof(int));
	}
}

static int receive_answer(int fd, struct answer *a)
{
	struct answer_head head;
	struct iovec io[2] = { { &head, sizeof head }, { a->body, sizeof a->body } };
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(MAX_FDS * sizeof(int))];
	} control;
	struct msghdr m = { .msg_iov = io, .msg_iovlen = 2, .msg_control = &control,
			    .msg_controllen = sizeof control.room };
	ssize_t n;
	while ((n = syscall(SYS_recvmsg, fd, &m, MSG_CMSG_CLOEXEC)) < 0) {
		if (errno == EAGAIN)
			wait_for(fd, POLLIN);
		else if (errno != EINTR)
			return -EIO;
	}
	take_rights(&m, a);
	if (n < (ssize_t)sizeof head || head.len != n - sizeof head || head.nfd != a->nfd || head.ret > 0 ||
	    head.ret < -MAX_ERRNO || m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		answer_close(a, 0);
		return -EIO;
	}
	if (head.ret < 0)
		answer_close(a, 0);
	for (unsigned i = 0; i < a->nfd; i++) {
		a->fd[i].arg = head.fd[i].arg;
		a->fd[i].kind = head.fd[i].kind;
		a->fd[i].size = head.fd[i].size;
	}
	a->len = head.len;
	return head.ret;
}

/* ends returns true if the process at the other end of a socket is ending. Its sockets close one after the other, and
 * those that listen may be the last ones. */
static bool ends(int fd)
{
	enum { PF_EXITING = 4 }; /* linux/sched.h */
	struct ucred peer;
	socklen_t size = sizeof peer;
	char path[32], text[512];
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.pid <= 0)
		return false;
	snprintf(path, sizeof path, "/proc/%d/stat", (int)peer.pid);
	int file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return errno == ENOENT;
	ssize_t n = syscall(SYS_read, file, text, sizeof text - 1);
	syscall(SYS_close, file);
	text[n > 0 ? n : 0] = 0;
	const char *behind = strrchr(text, ')'); /* the name of the program may have spaces */
	unsigned flags = 0;
	if (!behind || sscanf(behind, ") %*c %*d %*d %*d %*d %*d %u", &flags) != 1)
		return n <= 0; /* ESRCH */
	return flags & PF_EXITING;
}

/* runs returns true if a daemon runs in the run directory. */
static bool runs(void)
{
	int fd = conn_dial("netlink");
	if (fd < 0)
		return false;
	bool going = !ends(fd);
	syscall(SYS_close, fd);
	return going;
}

void conn_ended(void)
{
	if (runs())
		explain("roced: the daemon of run directory %s runs, and has closed a connection of this program: a limit of its "
			"configuration is reached (limits; rocectl res show user), or the connection is not permitted (access); its log says which",
			run_dir());
	else
		explain("roced: the daemon of run directory %s has ended: operations on devices that are open now fail; "
			"restart the program once a daemon runs again", run_dir());
}

int conn_call(int fd, const void *cmd, size_t n, const int *fds, size_t nfds, struct answer *a)
{
	a->nfd = 0;
	a->len = 0;
	a->ret = send_command(fd, cmd, n, fds, nfds);
	if (a->ret == 0)
		a->ret = receive_answer(fd, a);
	if (a->ret == -EIO && conn_hung_up(fd))
		conn_ended();
	else if (a->ret < 0 && a->len > 0)
		explain("roced: %.*s", (int)a->len, (const char *)a->body);
	return a->ret;
}

void answer_copy(const struct answer *a, void *to, size_t room)
{
	size_t n = a->len < room ? a->len : room;
	memcpy(to, a->body, n);
	memset((uint8_t *)to + n, 0, room - n);
}

bool conn_hung_up(int fd)
{
	struct pollfd p = { .fd = fd };
	return poll(&p, 1, 0) == 1 && p.revents & (POLLHUP | POLLERR);
}

void answer_close(struct answer *a, unsigned i)
{
	for (; i < a->nfd; i++)
		syscall(SYS_close, a->fd[i].fd);
	a->nfd = 0;
}
