/* The memfd whose pages replace private anonymous memory. */
#include "backing.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static struct {
	_Atomic int fd;
	_Atomic uint64_t ino;
	_Atomic uint32_t major, minor;
} file = { .fd = -1 };

int backing_fd(void)
{
	struct stat st;
	int fd = file.fd;
	/* The program may have closed it with a bare system call and opened another file there. */
	return fd >= 0 && fstat(fd, &st) == 0 && st.st_ino == file.ino && major(st.st_dev) == file.major &&
	       minor(st.st_dev) == file.minor ? fd : -1;
}

uint64_t backing_ino(void) { return file.ino; }

#if UINTPTR_MAX < UINT64_MAX
/* A 32-bit program can neither address such a large file nor spare the address space. */
int backing_open(bool *fresh)
{
	(void)fresh;
	return -1;
}
#else
int backing_open(bool *fresh)
{
	struct rlimit limit;
	struct stat st;
	int fd = backing_fd();
	if (fd >= 0)
		return fd;
	/* A write beyond the limit would raise SIGXFSZ. */
	if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY)
		return -1;
	fd = fd_private(memfd_create("roced", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	if (fd < 0)
		return -1;
	if (ftruncate(fd, 1LL << FILE_BITS) != 0 || fstat(fd, &st) != 0) {
		fd_private_close(fd);
		return -1;
	}
	file.ino = st.st_ino;
	file.major = major(st.st_dev);
	file.minor = minor(st.st_dev);
	maps_set_memfd(file.major, file.minor, file.ino);
	file.fd = fd;
	*fresh = true;
	return fd;
}
#endif

void backing_abandon(void)
{
	maps_set_memfd(0, 0, 0);
	fd_private_close(file.fd);
	file.fd = -1;
}

void backing_zero(uint64_t offset, uint64_t length)
{
	int fd = backing_fd();
	if (fd >= 0 && length > 0)
		fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, length);
}

void backing_zero_around(uint64_t offset, uint64_t length)
{
	uint64_t start = offset & ~(STRETCH - 1), end = offset + length;
	backing_zero(start, offset - start);
	backing_zero(end, start + STRETCH - end);
}

/* absent returns the first address of memory of the memfd without a page, end if there is none. */
static uint64_t absent(uint64_t start, uint64_t end)
{
	uint8_t present[1024];
	for (uint64_t n; start < end; start += n * MR_PAGE) {
		n = (end - start) / MR_PAGE;
		if (n > sizeof present)
			n = sizeof present;
		if (syscall(SYS_mincore, start, n * MR_PAGE, present) != 0)
			return start;
		for (uint64_t i = 0; i < n; i++)
			if (!(present[i] & 1))
				return start + i * MR_PAGE;
	}
	return end;
}

bool backing_allocate(uint64_t start, uint64_t end, uint64_t offset)
{
	const uint64_t step = 16 << 20; /* a signal undoes the work of a call */
	uint64_t from = absent(start, end), n;
	for (offset += from - start; from < end; from += n, offset += n) {
		n = end - from < step ? end - from : step;
		while (fallocate(backing_fd(), 0, offset, n) != 0)
			if (errno != EINTR)
				return false;
	}
	return true;
}

bool backing_write(int fd, uint64_t start, uint64_t end, uint64_t offset)
{
	while (start < end) {
		ssize_t n = syscall(SYS_pwrite64, fd, start, end - start, offset);
		if (n <= 0)
			return false;
		start += n;
		offset += n;
	}
	return true;
}
