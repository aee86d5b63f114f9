/*
 * close, dup, fcntl, ioctl and similar functions.
 *
 * Private descriptors do not exist for the program: close() fails with EBADF, close_range()
 * skips them.
 */
#include "interpose.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4 /* Linux 5.11 */
#endif

EXPORT int close(int fd)
{
	if (fd_is_private(fd)) {
		errno = EBADF;
		return -1;
	}
	fd_forget(fd);
	shared_closing(fd, fd);
	return syscall(SYS_close, fd);
}

/* close_range closes the ranges between private descriptors. */
EXPORT int close_range(unsigned first, unsigned last, int flags)
{
	if (last > INT_MAX)
		last = INT_MAX; /* the highest descriptor; so last + 1 does not overflow */
	if (first > last || flags & CLOSE_RANGE_CLOEXEC || !process_owns_memory())
		return syscall(SYS_close_range, first, last, flags);
	shared_closing(first, last);
	for (unsigned fd = first; first <= last; fd++) {
		fd = fd_next(fd, last);
		if (fd <= last && !fd_is_private(fd)) {
			fd_forget(fd);
			continue;
		}
		if (first < fd && syscall(SYS_close_range, first, fd - 1, flags) != 0)
			return -1;
		first = fd + 1;
	}
	return 0;
}

EXPORT void closefrom(int low)
{
	close_range(low < 0 ? 0 : low, UINT_MAX, 0);
}

/* ---- duplicates ---- */

/* share assigns the file of fd to its duplicate. */
static int share(int fd, int dup)
{
	struct file *f = fd_file(fd);
	int was = errno;
	if (dup >= 0 && f && process_owns_memory() && fd_set_file(dup, f) < 0) {
		syscall(SYS_close, dup);
		errno = EMFILE;
		return -1;
	}
	return keep_errno(was, dup);
}

EXPORT int dup(int fd)
{
	return share(fd, syscall(SYS_dup, fd));
}

EXPORT int dup3(int fd, int to, int flags)
{
	if (fd_is_private(to) && process_owns_memory()) {
		errno = EBUSY;
		return -1;
	}
	/* A failed duplication must not change `to`. */
	if (fd != to && !(flags & ~O_CLOEXEC) && syscall(SYS_fcntl, fd, F_GETFD) >= 0)
		fd_forget(to), shared_closing(to, to);
	return share(fd, syscall(SYS_dup3, fd, to, flags));
}

EXPORT int dup2(int fd, int to)
{
	if (fd == to)
		return syscall(SYS_fcntl, fd, F_GETFD) < 0 ? -1 : fd;
	return dup3(fd, to, 0);
}

static int do_fcntl(int fd, int cmd, void *arg)
{
	int r = syscall(SYS_fcntl, fd, cmd, arg);
	return cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC ? share(fd, r) : r;
}

EXPORT int fcntl(int fd, int cmd, ...)
{
	va_list v;
	va_start(v, cmd);
	void *arg = va_arg(v, void *);
	va_end(v);
	return do_fcntl(fd, cmd, arg);
}

EXPORT int fcntl64(int fd, int cmd, ...)
{
	va_list v;
	va_start(v, cmd);
	void *arg = va_arg(v, void *);
	va_end(v);
	return do_fcntl(fd, cmd, arg);
}

/* ENOTTY makes libibverbs use the write() ABI of uverbs instead of the ioctl() ABI. */
EXPORT int ioctl(int fd, unsigned long request, ...)
{
	va_list v;
	va_start(v, request);
	void *arg = va_arg(v, void *);
	va_end(v);
	enum fd_kind k = fd_kind(fd);
	if (k == FD_UVERBS || k == FD_CM) {
		errno = ENOTTY;
		return -1;
	}
	return syscall(SYS_ioctl, fd, request, arg);
}
