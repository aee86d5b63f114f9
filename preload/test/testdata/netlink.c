/* A socket of RDMA netlink behaves like the kernel's. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <rdma/rdma_netlink.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GET = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET) };

static const struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };

static int netlink(int type)
{
	struct sockaddr_nl me = { .nl_family = AF_NETLINK };
	socklen_t len = sizeof me;
	int one = 1, size = 32768, fd = socket(AF_NETLINK, type, NETLINK_RDMA);
	CHECK(fd >= 0);
	CHECK(setsockopt(fd, SOL_NETLINK, NETLINK_EXT_ACK, &one, sizeof one) == 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size) == 0);
	CHECK(bind(fd, (struct sockaddr *)&me, sizeof me) == 0);
	CHECK(getsockname(fd, (struct sockaddr *)&me, &len) == 0);
	CHECK(len == sizeof me && me.nl_family == AF_NETLINK && me.nl_pid == (unsigned)getpid());
	return fd;
}

/* ask sends a request without attributes. */
static void ask(int fd, int kind, int flags, uint32_t seq)
{
	struct nlmsghdr h = { .nlmsg_len = sizeof h, .nlmsg_type = kind, .nlmsg_flags = NLM_F_REQUEST | flags, .nlmsg_seq = seq };
	CHECK(sendto(fd, &h, sizeof h, 0, (struct sockaddr *)&kernel, sizeof kernel) == sizeof h);
}

/* got receives a message and returns its error number, -1 for an answer, 0 for the end. */
static int got(int fd, uint32_t seq)
{
	static char buf[8192];
	struct sockaddr_nl from = { 0 };
	struct iovec io = { buf, sizeof buf };
	struct msghdr m = { .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &io, .msg_iovlen = 1 };
	ssize_t length = recv(fd, NULL, 0, MSG_PEEK | MSG_TRUNC);
	ssize_t n = recvmsg(fd, &m, 0);
	struct nlmsghdr *h = (struct nlmsghdr *)buf;
	CHECK(n >= (ssize_t)sizeof *h && n == length && h->nlmsg_len == n && h->nlmsg_seq == seq);
	CHECK(m.msg_namelen == sizeof from && from.nl_family == AF_NETLINK && from.nl_pid == 0);
	if (h->nlmsg_type == NLMSG_ERROR)
		return -((struct nlmsgerr *)NLMSG_DATA(h))->error;
	return h->nlmsg_type == NLMSG_DONE ? 0 : -1;
}

static void requests(void)
{
	int fd = netlink(SOCK_RAW | SOCK_CLOEXEC), twin = dup(fd);
	CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC && twin >= 0);
	ask(fd, GET, NLM_F_DUMP, 7);
	CHECK(got(twin, 7) == -1 && got(fd, 7) == 0);
	ask(twin, GET, 0, 8);
	CHECK(got(fd, 8) == EINVAL);
	ask(fd, RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_SET), NLM_F_ACK, 9);
	CHECK(got(fd, 9) == EOPNOTSUPP);
	ask(fd, RDMA_NL_GET_TYPE(RDMA_NL_LS, 0), 0, 10);
	CHECK(got(fd, 10) == EOPNOTSUPP);
	CHECK(close(fd) == 0 && close(twin) == 0);
}

static void nonblocking(void)
{
	char buf[8192];
	struct sockaddr_nl from = { 0 };
	socklen_t len = sizeof from;
	int fd = netlink(SOCK_DGRAM | SOCK_NONBLOCK);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	CHECK(fcntl(fd, F_GETFD) == 0);
	FAILS(recv(fd, buf, sizeof buf, 0), EAGAIN);
	struct nlmsghdr h = { .nlmsg_len = sizeof h, .nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_SYS_GET),
			      .nlmsg_flags = NLM_F_REQUEST };
	struct iovec io = { &h, sizeof h };
	struct msghdr m = { .msg_name = (void *)&kernel, .msg_namelen = sizeof kernel, .msg_iov = &io, .msg_iovlen = 1 };
	CHECK(sendmsg(fd, &m, 0) == sizeof h && poll(&p, 1, -1) == 1);
	CHECK(recvfrom(fd, buf, sizeof buf, 0, (struct sockaddr *)&from, &len) > 0 && len == sizeof from && from.nl_family == AF_NETLINK);
	CHECK(write(fd, &h, sizeof h) == sizeof h && poll(&p, 1, -1) == 1 && read(fd, buf, sizeof buf) > 0);
	CHECK(close(fd) == 0);
}

/* Malformed messages have no answer; a later request has one. */
static void garbage(void)
{
	static const struct nlmsghdr bad[] = {
		{ .nlmsg_len = 0, .nlmsg_type = GET, .nlmsg_flags = NLM_F_REQUEST },
		{ .nlmsg_len = 17, .nlmsg_type = GET, .nlmsg_flags = NLM_F_REQUEST },
		{ .nlmsg_len = UINT32_MAX, .nlmsg_type = GET, .nlmsg_flags = NLM_F_REQUEST },
		{ .nlmsg_len = 16, .nlmsg_type = GET },
	};
	int fd = netlink(SOCK_RAW);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		CHECK(send(fd, &bad[i], sizeof bad[i], 0) == sizeof bad[i]);
	CHECK(send(fd, bad, 3, 0) == 3);
	ask(fd, GET, NLM_F_DUMP, 11);
	CHECK(got(fd, 11) == -1 && got(fd, 11) == 0 && close(fd) == 0);
}

/* Other sockets are as before. */
static void others(void)
{
	char text[4] = "";
	int pair[2];
	struct sockaddr_nl me = { .nl_family = AF_NETLINK };
	socklen_t len = sizeof me;
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
	CHECK(sendto(pair[0], "abc", 3, 0, NULL, 0) == 3 && recvfrom(pair[1], text, 4, 0, NULL, NULL) == 3 && !strcmp(text, "abc"));
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&me, sizeof me) == 0);
	CHECK(getsockname(fd, (struct sockaddr *)&me, &len) == 0 && me.nl_pid != 0);
	FAILS(bind(-1, (struct sockaddr *)&me, sizeof me), EBADF);
}

int main(void)
{
	requests();
	nonblocking();
	garbage();
	others();
	return 0;
}
