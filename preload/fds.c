/*
 * Which descriptors are ours, and the functions that act on descriptors.
 *
 * Look-ups take no lock: every read() and write() of a program passes here. A
 * program that closes a descriptor while another of its threads begins to use it gets
 * what it gets from a kernel too: an operation on the wrong file. Who waits in an
 * operation already holds what the descriptor stood for.
 *
 * Descriptors of the library's own are not there for the program: closing them fails
 * with EBADF, closing all that there are spares them.
 *
 * Between vfork() and exec() a child has descriptors of its own, but the memory of its
 * parent, and so the parent's table: it must change nothing there.
 */
#include "preload.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4 /* Linux 5.11 */
#endif

enum {
	CHUNK = 1024,
	CHUNKS = 1024,
	FIRST_OWN = 200, /* out of the way of programs that count on small numbers */
};

typedef _Atomic(struct file *) entry;
static _Atomic(entry *) table[CHUNKS];

/* What descriptors of the library's own stand for. */
static struct file own = { .kind = FD_OWN };

#ifdef __GLIBC__
/* Functions of which there are versions, and the present one: what dlsym() finds behind
 * us is another one before glibc 2.36 (sourceware.org/bugzilla 14932). That of libibverbs
 * would call us again. */
static const struct {
	const char *name, *version;
} present[] = {
	{ "ibv_open_device", "IBVERBS_1.1" },
	{ "realpath", "GLIBC_2.3" },
	{ "fopen", "GLIBC_2.1" },     /* i386 */
	{ "scandir64", "GLIBC_2.2" }, /* i386 */
};
#endif

void *rv_next(const char *name)
{
#ifdef __GLIBC__
	for (size_t i = 0; i < sizeof present / sizeof *present; i++) {
		void *f = strcmp(name, present[i].name) ? NULL : dlvsym(RTLD_NEXT, name, present[i].version);
		if (f)
			return f;
	}
#endif
	return dlsym(RTLD_NEXT, name);
}

static entry *entry_of(int fd)
{
	if (fd < 0 || fd >= CHUNK * CHUNKS)
		return NULL;
	entry *chunk = atomic_load_explicit(&table[fd / CHUNK], memory_order_acquire);
	return chunk ? &chunk[fd % CHUNK] : NULL;
}

static struct file *lookup(int fd)
{
	entry *e = entry_of(fd);
	return e ? atomic_load_explicit(e, memory_order_acquire) : NULL;
}

struct file *fd_file(int fd)
{
	struct file *f = lookup(fd);
	return f != &own ? f : NULL;
}

enum fd_kind fd_kind(int fd)
{
	struct file *f = fd_file(fd);
	return f ? f->kind : FD_NONE;
}

/* ---- files ---- */

void file_hold(struct file *f)
{
	atomic_fetch_add(&f->refs, 1);
}

void file_put(struct file *f)
{
	if (f != &own && atomic_fetch_sub(&f->refs, 1) == 1)
		f->release(f);
}

void file_cleanup(void *f)
{
	file_put(f);
}

/* enter makes fd stand for f. What it stood for has been closed behind our back. */
static int enter(int fd, struct file *f)
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
	struct file *old = atomic_exchange(entry_of(fd), f);
	if (old)
		file_put(old);
	return 0;
}

int fd_set_file(int fd, struct file *f)
{
	file_hold(f);
	if (enter(fd, f) == 0)
		return 0;
	atomic_fetch_sub(&f->refs, 1); /* not the last: the caller disposes of f */
	return -1;
}

/* ---- descriptors of the library's own ---- */

int fd_keep(int fd)
{
	int high = syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, FIRST_OWN);
	if (high < 0) /* a program may have so few */
		high = syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);
	if (high >= 0 && enter(high, &own) < 0) {
		syscall(SYS_close, high);
		high = -1;
	}
	return high;
}

void fd_drop(int fd)
{
	entry *e = entry_of(fd);
	struct file *mine = &own;
	/* Whoever went past us and closed it may have another file there by now. */
	if (e && atomic_compare_exchange_strong(e, &mine, NULL))
		syscall(SYS_close, fd);
}

int fd_own(int fd)
{
	int high = fd < 0 ? -1 : fd_keep(fd);
	KEEP_ERRNO;
	if (fd >= 0)
		syscall(SYS_close, fd);
	return high;
}

/* ---- closing ---- */

/* forget is to be called before the number of a descriptor becomes free. */
static void forget(int fd)
{
	struct file *f = fd_file(fd);
	if (!f || !process_owns_memory())
		return;
	KEEP_ERRNO;
	if (atomic_compare_exchange_strong(entry_of(fd), &(struct file *){ f }, NULL))
		file_put(f);
}

EXPORT int close(int fd)
{
	if (lookup(fd) == &own) {
		errno = EBADF;
		return -1;
	}
	forget(fd);
	return syscall(SYS_close, fd);
}

/* next_entry is the first descriptor from fd to last that we know, last + 1 if there is
 * none. */
static unsigned next_entry(unsigned fd, unsigned last)
{
	while (fd <= last && fd < CHUNK * CHUNKS) {
		if (!atomic_load(&table[fd / CHUNK]))
			fd = (fd / CHUNK + 1) * CHUNK;
		else if (!lookup(fd))
			fd++;
		else
			return fd;
	}
	return last + 1;
}

/* close_range closes pieces between the descriptors of the library's own. */
EXPORT int close_range(unsigned first, unsigned last, int flags)
{
	if (last > INT_MAX)
		last = INT_MAX; /* there are no higher descriptors, and last + 1 is one more */
	if (first > last || flags & CLOSE_RANGE_CLOEXEC || !process_owns_memory())
		return syscall(SYS_close_range, first, last, flags);
	for (unsigned fd = first; first <= last; fd++) {
		fd = next_entry(fd, last);
		if (fd <= last && lookup(fd) != &own) {
			forget(fd);
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

/* share makes a duplicate stand for the same as fd. */
static int share(int fd, int dup)
{
	struct file *f = fd_file(fd);
	int was = errno;
	if (dup >= 0 && f && process_owns_memory() && fd_set_file(dup, f) < 0) {
		syscall(SYS_close, dup);
		errno = EMFILE;
		return -1;
	}
	return kept(was, dup);
}

EXPORT int dup(int fd)
{
	return share(fd, syscall(SYS_dup, fd));
}

EXPORT int dup3(int fd, int to, int flags)
{
	if (lookup(to) == &own && process_owns_memory()) {
		errno = EBUSY;
		return -1;
	}
	/* A duplication that fails leaves `to` as it is. */
	if (fd != to && !(flags & ~O_CLOEXEC) && syscall(SYS_fcntl, fd, F_GETFD) >= 0)
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
