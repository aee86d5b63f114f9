/*
 * Write protection with userfaultfd while pages are being replaced: a thread that writes to
 * them blocks until guard_drop. The callers hold the lock.
 */
#include "maps.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif
#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13) /* Linux 6.4 */
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

/* The userfaultfd that is kept open, and the process that it belongs to. */
static struct {
	int fd;
	pid_t process;
} guard = { .fd = -1 };

/* The kernel can protect pages that are not populated. */
static bool guards_absent;

/* guard_made enables the features of a userfaultfd; it returns the descriptor, or -1. */
static int guard_made(int fd)
{
	enum { BASIC = UFFD_FEATURE_PAGEFAULT_FLAG_WP };
	struct uffdio_api api = { .api = UFFD_API, .features = BASIC | UFFD_FEATURE_WP_UNPOPULATED };
	if (fd < 0)
		return fd;
	guards_absent = syscall(SYS_ioctl, fd, UFFDIO_API, &api) == 0;
	api = (struct uffdio_api){ .api = UFFD_API, .features = BASIC };
	if (guards_absent || syscall(SYS_ioctl, fd, UFFDIO_API, &api) == 0)
		return fd;
	syscall(SYS_close, fd);
	return -1;
}

/* guard_keep opens a userfaultfd that also handles faults in the kernel, unless there is one. */
static void guard_keep(void)
{
	pid_t self = syscall(SYS_getpid);
	if (guard.process == self)
		return;
	if (guard.fd >= 0)
		fd_private_close(guard.fd); /* it belongs to the parent */
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
#ifdef USERFAULTFD_IOC_NEW
	if (fd < 0) {
		int dev = syscall(SYS_openat, AT_FDCWD, "/dev/userfaultfd", O_RDWR | O_CLOEXEC);
		if (dev >= 0) {
			fd = syscall(SYS_ioctl, dev, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
			syscall(SYS_close, dev);
		}
	}
#endif
	guard.fd = fd_private(guard_made(fd));
	guard.process = self;
}

/* Without the privilege to handle faults in the kernel, system calls of other threads that
 * write to protected pages fail. So such a userfaultfd suits programs with one thread only. */
int guard_open(void)
{
	guard_keep();
	/* The second thread is the library's (death.c); it does not write to such memory. */
	if (guard.fd < 0 && maps_threads() <= 2)
		return guard_made(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
	return guard.fd;
}

/* After a failure the next replacement opens a new userfaultfd: the program may have closed
 * this one with a bare system call. */
void guard_close(int fd, bool replaced)
{
	if (fd != guard.fd) {
		syscall(SYS_close, fd);
	} else if (!replaced) {
		fd_private_close(fd);
		guard.fd = -1;
		guard.process = 0;
	}
}

/* Older kernels protect populated pages only, so populate all of them first. */
bool guard_raise(int guard, uint64_t start, uint64_t end)
{
	struct uffdio_register r = { .range = { start, end - start }, .mode = UFFDIO_REGISTER_MODE_WP };
	struct uffdio_writeprotect w = { .range = r.range, .mode = UFFDIO_WRITEPROTECT_MODE_WP };
	return (guards_absent || syscall(SYS_madvise, start, end - start, MADV_POPULATE_READ) == 0) &&
	       syscall(SYS_ioctl, guard, UFFDIO_REGISTER, &r) == 0 &&
	       syscall(SYS_ioctl, guard, UFFDIO_WRITEPROTECT, &w) == 0;
}

void guard_drop(int guard, uint64_t start, uint64_t end, bool replaced)
{
	struct uffdio_range r = { start, end - start };
	if (!replaced)
		syscall(SYS_ioctl, guard, UFFDIO_UNREGISTER, &r);
	syscall(SYS_ioctl, guard, UFFDIO_WAKE, &r);
}
