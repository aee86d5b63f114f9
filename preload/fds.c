/*
 * The table of descriptors.
 *
 * Look-ups take no lock, because every read() and write() of a program does one. A program
 * that closes a descriptor while another thread starts to use it gets an operation on the
 * wrong file, as with a kernel. A thread that already waits in an operation holds a
 * reference to the file.
 *
 * Between vfork() and exec() a child has its private_file descriptors, but its parent's memory and
 * so its parent's table. It must not change the table.
 */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	CHUNK = 1024,
	CHUNKS = 1024,
	FIRST_PRIVATE = 200, /* programs may depend on small numbers being free */
};

typedef _Atomic(struct file *) entry;
static _Atomic(entry *) table[CHUNKS];

/* The file of all private descriptors. */
static struct file private_file = { .kind = FD_PRIVATE };

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
	return f != &private_file ? f : NULL;
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
	if (f != &private_file && atomic_fetch_sub(&f->refs, 1) == 1)
		f->release(f);
}

void file_cleanup(void *f)
{
	file_put(f);
}

/* enter assigns f to fd. A previous entry is stale: the program closed its descriptor
 * with a bare system call. */
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
	atomic_fetch_sub(&f->refs, 1); /* without release: the caller frees f */
	return -1;
}

/* ---- private descriptors ---- */

int fd_private_dup(int fd)
{
	int high = syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, FIRST_PRIVATE);
	if (high < 0) /* RLIMIT_NOFILE may be lower */
		high = syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);
	if (high >= 0 && enter(high, &private_file) < 0) {
		syscall(SYS_close, high);
		high = -1;
	}
	return high;
}

void fd_private_close(int fd)
{
	entry *e = entry_of(fd);
	struct file *private = &private_file;
	/* After a bare close() the program may have another file at this number. */
	if (e && atomic_compare_exchange_strong(e, &private, NULL))
		syscall(SYS_close, fd);
}

int fd_private(int fd)
{
	int high = fd < 0 ? -1 : fd_private_dup(fd);
	KEEP_ERRNO;
	if (fd >= 0)
		syscall(SYS_close, fd);
	return high;
}

bool fd_is_private(int fd)
{
	return lookup(fd) == &private_file;
}

void fd_forget(int fd)
{
	struct file *f = fd_file(fd);
	if (!f || !process_owns_memory())
		return;
	KEEP_ERRNO;
	if (atomic_compare_exchange_strong(entry_of(fd), &(struct file *){ f }, NULL))
		file_put(f);
}

unsigned fd_next(unsigned fd, unsigned last)
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

