/*
 * Descriptors through which the daemon reaches memory that it has not mapped: of this
 * process's /proc/self/mem, and of maps, which shows the writable parts.
 *
 * A descriptor refers to the address space of the process that opened it. The kernel checks
 * the rights of that process at open() only: the daemon needs neither ptrace rights nor a
 * common PID namespace. A child of fork() has another address space and passes its own.
 */
#include "mr.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

struct pass {
	struct ib_uverbs_cmd_hdr h;
	uint32_t handle, reserved;
};

/* select_memory makes the daemon place regions in the process with handle c->memory or, with
 * descriptors, in a new process, which gets a handle. */
static int select_memory(struct context *c, const int *fds, size_t nfds)
{
	struct pass cmd = {
		.h = { .command = EXT_PASS_MEMORY, .in_words = sizeof cmd / 4, .out_words = 2 },
		.handle = c->memory,
	};
	uint32_t answer[2];
	int ret = context_call_locked(c, &cmd, sizeof cmd, fds, nfds, answer, sizeof answer);
	if (ret)
		return ret;
	c->passer = process_id();
	c->memory = c->call->memory = answer[0];
	c->call->passed = true;
	return 0;
}

/* open_proc opens a file in /proc; the descriptor or -errno. */
static int open_proc(const char *path, int mode)
{
	int fd = syscall(SYS_openat, AT_FDCWD, path, mode | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* pass_own passes the descriptors of this process. */
static int pass_own(struct context *c)
{
	int fds[] = { open_proc("/proc/self/mem", O_RDWR), open_proc("/proc/self/maps", O_RDONLY) };
	int ret = fds[0] < 0 ? fds[0] : fds[1] < 0 ? fds[1] : select_memory(c, fds, 2);
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			syscall(SYS_close, fds[i]);
	return ret;
}

/* permit allows the daemon to trace this process where Yama restricts that to ancestors. */
static void permit(struct context *c)
{
	struct ucred peer;
	socklen_t n = sizeof peer;
	if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.pid > 0)
		prctl(PR_SET_PTRACER, peer.pid);
}

int pass_memory(struct context *c)
{
	int ret = -ENOENT;
	const char *mode = getenv("ROCED_MR");
	if (mode && !strcmp(mode, "ptrace"))
		return -EOPNOTSUPP;
	if (c->passer == process_id() && c->call->passed) {
		if (c->memory == c->call->memory)
			return 0;
		ret = select_memory(c, NULL, 0); /* another process used the context meanwhile */
	}
	if (ret == -ENOENT)
		ret = pass_own(c);
	return ret;
}

int pass_memory_needed(struct context *c)
{
	int ret = pass_memory(c);
	if (ret == 0 || ret == -EIO)
		return ret;
	explain("roced: cannot pass this process's memory to the daemon (/proc/self/mem: %s): "
		"check that /proc is mounted and that the daemon is not older than libroced.so", strerror(-ret));
	/* The daemon tries to open the memory of the process that connected. */
	if (c->call->passed || c->opener != process_id())
		return -EOPNOTSUPP;
	permit(c);
	return 0;
}
