/* Functions of sockets. They emulate the addresses and options of RDMA netlink. */
#include "interpose.h"

#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_netlink(int fd) { return fd_kind(fd) == FD_NETLINK; }

/* Over this netlink a kernel with InfiniBand would list its own devices. */
EXPORT int socket(int domain, int type, int protocol)
{
	if (domain == AF_NETLINK && protocol == NETLINK_RDMA && preload_active())
		return netlink_open(type);
	return syscall(SYS_socket, domain, type, protocol);
}

EXPORT int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	if (is_netlink(fd))
		return 0;
	REAL(bind);
	return real_bind(fd, addr, len);
}

EXPORT int getsockname(int fd, struct sockaddr *restrict addr, socklen_t *restrict len)
{
	if (is_netlink(fd)) {
		netlink_address(addr, len, process_id());
		return 0;
	}
	REAL(getsockname);
	return real_getsockname(fd, addr, len);
}

EXPORT int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	if (level == SOL_NETLINK && is_netlink(fd))
		return 0;
	REAL(setsockopt);
	return real_setsockopt(fd, level, name, value, len);
}

EXPORT ssize_t sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *addr, socklen_t len)
{
	REAL(sendto);
	if (is_netlink(fd))
		return real_sendto(fd, buf, n, flags | MSG_NOSIGNAL, NULL, 0);
	return real_sendto(fd, buf, n, flags, addr, len);
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	REAL(sendmsg);
	if (!is_netlink(fd))
		return real_sendmsg(fd, m, flags);
	struct msghdr plain = { .msg_iov = m->msg_iov, .msg_iovlen = m->msg_iovlen };
	return real_sendmsg(fd, &plain, flags | MSG_NOSIGNAL);
}

EXPORT ssize_t recvfrom(int fd, void *restrict buf, size_t n, int flags, struct sockaddr *restrict addr,
			socklen_t *restrict len)
{
	REAL(recvfrom);
	if (!is_netlink(fd))
		return real_recvfrom(fd, buf, n, flags, addr, len);
	ssize_t got = real_recvfrom(fd, buf, n, flags, NULL, NULL);
	if (got >= 0)
		netlink_address(addr, len, 0);
	return got;
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	REAL(recvmsg);
	if (!is_netlink(fd))
		return real_recvmsg(fd, m, flags);
	struct msghdr plain = { .msg_iov = m->msg_iov, .msg_iovlen = m->msg_iovlen };
	ssize_t got = real_recvmsg(fd, &plain, flags);
	if (got < 0)
		return got;
	netlink_address(m->msg_name, &m->msg_namelen, 0);
	m->msg_controllen = 0;
	m->msg_flags = plain.msg_flags;
	return got;
}
