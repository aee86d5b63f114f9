/* read() and write() of descriptors in the table. */
#include "interpose.h"

#include <errno.h>
#include <unistd.h>

EXPORT ssize_t write(int fd, const void *buf, size_t n)
{
	struct file *f = fd_file(fd);
	int was = errno;
	if (f && f->kind == FD_UVERBS)
		return keep_errno(was, uverbs_write((struct context *)f, buf, n));
	if (f && f->kind == FD_CM)
		return keep_errno(was, rcm_write(fd, buf, n));
	REAL(write); /* a cancellation point, unlike a bare system call */
	return real_write(fd, buf, n);
}

EXPORT ssize_t read(int fd, void *buf, size_t n)
{
	struct file *f = fd_file(fd);
	int was = errno;
	if (f && (f->kind == FD_COMP || f->kind == FD_ASYNC))
		return keep_errno(was, channel_read((struct channel *)f, fd, buf, n));
	if (f && f->kind == FD_COUNTER) {
		counters_reread(f, fd);
	} else if (f && f->kind != FD_NETLINK) {
		errno = EINVAL;
		return -1;
	}
	REAL(read);
	return real_read(fd, buf, n);
}

/* Programs compiled with _FORTIFY_SOURCE call __read_chk. */
ssize_t __read_chk(int fd, void *buf, size_t n, size_t room);
EXPORT ssize_t __read_chk(int fd, void *buf, size_t n, size_t room)
{
	if (fd_file(fd) && n <= room)
		return read(fd, buf, n);
	REAL(__read_chk);
	return real___read_chk(fd, buf, n, room);
}
