/*
 * The descriptors by which the daemon gets at memory that it has not mapped: of this
 * process's own /proc/self/mem, and of maps, which tells what may be written.
 *
 * A descriptor stands for the address space of who has opened it, and the kernel asks
 * nobody else for rights: neither ptrace nor a PID namespace in common is needed. A child
 * of fork() has another address space and passes its own.
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

/* tell makes the daemon take regions to be in the process of a handle, or in a new one,
 * which gets a handle. */
static int tell(struct context *c, const int *fds, size_t nfds)
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

/* own_file opens a file of this process in /proc, -errno if it cannot. */
static int own_file(const char *path, int mode)
{
	int fd = syscall(SYS_openat, AT_FDCWD, path, mode | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* pass_own passes this process's memory. */
static int pass_own(struct context *c)
{
	int fds[] = { own_file("/proc/self/mem", O_RDWR), own_file("/proc/self/maps", O_RDONLY) };
	int ret = fds[0] < 0 ? fds[0] : fds[1] < 0 ? fds[1] : tell(c, fds, 2);
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			syscall(SYS_close, fds[i]);
	return ret;
}

/* permit lets the daemon get at this process where only its ancestors may (Yama). */
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
		ret = tell(c, NULL, 0); /* another process has had the context meanwhile */
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
	explain("roced: this process's memory cannot be passed to the daemon (/proc/self/mem: %s): "
		"is /proc mounted here, and the daemon as new as libroced.so?", strerror(-ret));
	/* The daemon opens the memory of the process that has connected, if it may. */
	if (c->call->passed || c->opener != process_id())
		return -EOPNOTSUPP;
	permit(c);
	return 0;
}
