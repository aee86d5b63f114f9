/*
 * RDMA netlink. A netlink socket of the program is a connection to the daemon, which answers
 * its messages (internal/daemon/nldev). The socket keeps message boundaries, so the C
 * library's functions move the messages; only addresses differ.
 */
#include "commands.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static void released(struct file *f) { (void)f; }

/* The file of all these sockets. It holds a reference to itself. */
static struct file netlink_file = { .kind = FD_NETLINK, .refs = 1, .release = released };

/* choose sends the name of the only NIC that the program is to see. */
static bool choose(int fd)
{
	const char *nic = getenv("ROCED_NIC");
	if (!nic)
		nic = "";
	return send(fd, nic, strlen(nic) + 1, MSG_NOSIGNAL) >= 0;
}

int netlink_open(int type)
{
	int fd = conn_dial("netlink");
	if (fd >= 0 && choose(fd) && fd_set_file(fd, &netlink_file) == 0) {
		if (!(type & SOCK_CLOEXEC))
			syscall(SYS_fcntl, fd, F_SETFD, 0);
		if (type & SOCK_NONBLOCK)
			syscall(SYS_fcntl, fd, F_SETFL, O_RDWR | O_NONBLOCK);
		return fd;
	}
	if (fd >= 0)
		syscall(SYS_close, fd);
	errno = EPROTONOSUPPORT; /* as without RDMA in the kernel */
	return -1;
}

void netlink_address(void *to, socklen_t *len, uint32_t port)
{
	struct sockaddr_nl a = { .nl_family = AF_NETLINK, .nl_pid = port };
	if (!to || !len)
		return;
	memcpy(to, &a, *len < sizeof a ? *len : sizeof a);
	*len = sizeof a;
}
