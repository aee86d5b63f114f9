/*
 * Reports of a program's traffic. "rocectl exec --summary" listens on the socket that
 * ROCED_REPORT names. The library connects to it for each verbs context and passes the
 * connection to the daemon, which writes what the context has done when the context ends, also
 * after the death of the program.
 */
#include "context.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

struct report {
	struct ib_uverbs_cmd_hdr h;
	uint32_t pid, reserved;
	char program[64];
};

/* dial returns a connection to the reader of reports, -1 with errno set. */
static int dial(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	if (strlen(path) >= sizeof a.sun_path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(a.sun_path, path);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
		return fd;
	int err = errno;
	syscall(SYS_close, fd);
	errno = err;
	return -1;
}

void report_start(struct context *c)
{
	KEEP_ERRNO;
	const char *path = getenv("ROCED_REPORT");
	if (!path || !*path)
		return;
	struct report cmd = { .h = { .command = EXT_REPORT, .in_words = sizeof cmd / 4 }, .pid = getpid() };
	snprintf(cmd.program, sizeof cmd.program, "%s", program_invocation_short_name);
	int fd = dial(path);
	int ret = fd < 0 ? -errno : context_call(c, &cmd, sizeof cmd, fd, NULL, 0);
	if (ret < 0)
		explain("roced: the traffic of this program is not reported (%s): %s", path, strerror(-ret));
	if (fd >= 0)
		syscall(SYS_close, fd);
}
