/*
 * Which descriptors are ours, and the functions that act on descriptors.
 *
 * Look-ups take no lock: every read() and write() of a program passes here. A
 * program that closes a descriptor while another of its threads uses it gets what
 * it gets from a kernel too: an operation on the wrong file; objects of ours are
 * freed by the last close.
 */
#include "preload.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHUNK 1024
#define CHUNKS 1024

typedef _Atomic(struct file *) entry;
static _Atomic(entry *) table[CHUNKS];

void *rv_next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

static entry *entry_of(int fd)
{
	if (fd < 0 || fd >= CHUNK * CHUNKS)
		return NULL;
	entry *chunk = atomic_load_explicit(&table[fd / CHUNK], memory_order_acquire);
	return chunk ? &chunk[fd % CHUNK] : NULL;
}

struct file *fd_file(int fd)
{
	entry *e = entry_of(fd);
	return e ? atomic_load_explicit(e, memory_order_acquire) : NULL;
}

enum fd_kind fd_kind(int fd)
{
	struct file *f = fd_file(fd);
	return f ? f->kind : FD_NONE;
}

int fd_set_file(int fd, struct file *f)
{
	if (fd < 0 || fd >= CHUNK * CHUNKS) {
		errno = EMFILE;
		return -1;
	}
	if (!atomic_load(&table[fd / CHUNK])) {
		entry *fresh = calloc(CHUNK, sizeof *fresh), *none = NULL;
		if (!fresh)
			return -1;
		if (!atomic_compare_exchange_strong(&table[fd / CHUNK], &none, fresh))
			free(fresh);
	}
	atomic_fetch_add(&f->refs, 1);
	atomic_store(entry_of(fd), f);
	return 0;
}

int fd_alias(int fd, struct file *f)
{
	if (fd_set_file(fd, f) < 0)
		return -1;
	atomic_fetch_sub(&f->refs, 1);
	return 0;
}

void fd_unalias(int fd)
{
	entry *e = entry_of(fd);
	if (e)
		atomic_store(e, NULL);
	syscall(SYS_close, fd);
}

void file_put(struct file *f)
{
	if (atomic_fetch_sub(&f->refs, 1) == 1)
		f->release(f);
}

/* forget is to be called before the number of a descriptor becomes free. */
static void forget(int fd)
{
	entry *e = entry_of(fd);
	struct file *f = e ? atomic_exchange(e, NULL) : NULL;
	if (f)
		file_put(f);
}

/* share makes a duplicate stand for the same as fd. */
static int share(int fd, int dup)
{
	struct file *f = fd_file(fd);
	if (dup >= 0 && f && fd_set_file(dup, f) < 0) {
		syscall(SYS_close, dup);
		errno = EMFILE;
		return -1;
	}
	return dup;
}

EXPORT int close(int fd)
{
	forget(fd);
	return syscall(SYS_close, fd);
}

EXPORT int dup(int fd)
{
	return share(fd, syscall(SYS_dup, fd));
}

EXPORT int dup3(int fd, int to, int flags)
{
	if (fd != to)
		forget(to);
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

/* The ioctl() ABI of uverbs is not there; libibverbs then uses write(). */
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
