/*
 * libroced: unmodified RDMA programs on a machine without kernel InfiniBand.
 *
 * LD_PRELOAD loads this library between a program (with its stock libibverbs, rxe
 * provider and librdmacm) and the C library. Opening /dev/infiniband/uverbsN connects
 * to the daemon. The write() commands of the kernel's uverbs ABI
 * (rdma/ib_user_verbs.h) travel over that connection (docs/reference/control-protocol.md).
 * All other calls pass through unchanged.
 *
 * The library has layers. Each has one header, which includes the header of the layer
 * below. A file includes the header of its own layer, so it can call its own layer and
 * the layers below. internal/test/arch checks this. From bottom to top:
 *
 *   process.h     the process, the table of descriptors, messages on stderr
 *   connection.h  the daemon's directories; a command and its answer
 *   objects.h     objects of a context; rings in shared memory
 *   context.h     verbs contexts, doorbells, commands of the library itself
 *   maps.h        the address space of the program
 *   backing.h     the memfd of registered memory
 *   mr.h          memory regions: page replacement
 *   events.h      completion channels, asynchronous events, the daemon's death
 *   commands.h    commands of programs: uverbs and rdma_cm
 *   layout.h      the ABI of libibverbs (declares no functions)
 *   interpose.h   the functions of the C library and of libibverbs that are replaced
 *
 * This is the lowest layer:
 *
 *   process.c  which process this is
 *   fds.c      the table of descriptors
 *   explain.c  messages for the user at the terminal
 */
#ifndef ROCED_PROCESS_H
#define ROCED_PROCESS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* KEEP_ERRNO restores errno at the end of the enclosing block. keep_errno restores it if
 * the call succeeded: POSIX permits a change, but some programs depend on none. */
static inline void errno_restore(const int *saved) { errno = *saved; }
#define KEEP_ERRNO __attribute__((cleanup(errno_restore), unused)) const int errno_saved = errno
static inline ssize_t keep_errno(int saved, ssize_t result)
{
	if (result >= 0)
		errno = saved;
	return result;
}

/* ---- process.c ---- */

/* process_id returns the PID of the process that owns this memory. */
pid_t process_id(void);
/* process_owns_memory returns false in a child of vfork(). Such a child uses its parent's
 * memory but has its own descriptors. */
bool process_owns_memory(void);

/* ---- fds.c ---- */

enum fd_kind { FD_NONE, FD_UVERBS, FD_COMP, FD_ASYNC, FD_CM, FD_COUNTER, FD_NETLINK, FD_PRIVATE };

/* The object behind a descriptor. Duplicates of the descriptor share it. */
struct file {
	enum fd_kind kind;
	uint64_t rdev; /* device number of the character device, 0 if there is none */
	atomic_int refs;
	void (*release)(struct file *); /* called after the last reference is dropped */
};

/* fd_file returns the file of a descriptor, NULL if the descriptor is not in the table. */
struct file *fd_file(int fd);
/* fd_kind returns the kind of a descriptor, FD_NONE if it is not in the table. */
enum fd_kind fd_kind(int fd);
/* fd_set_file assigns f to a descriptor and takes a reference. It returns -1 with errno
 * set if the number is too high. */
int fd_set_file(int fd, struct file *f);
/* fd_forget removes a descriptor from the table. Call it before the number is free. */
void fd_forget(int fd);
/* fd_next returns the first descriptor in [fd, last] that is in the table, last + 1 if
 * there is none. */
unsigned fd_next(unsigned fd, unsigned last);

/* file_hold takes a reference. file_put drops one. file_cleanup drops one when a thread
 * is cancelled. */
void file_hold(struct file *f);
void file_put(struct file *f);
void file_cleanup(void *f);

/* Private descriptors belong to the library; the program cannot close them.
 * fd_private_dup duplicates fd into one, or returns -1 with errno set. fd_private does
 * the same and closes fd; it maps -1 to -1. fd_private_close closes one. */
int fd_private_dup(int fd);
int fd_private(int fd);
void fd_private_close(int fd);
bool fd_is_private(int fd);

/* ---- explain.c ---- */

/* explain prints a sentence on standard error if ROCED_EXPLAIN=1: the reason behind an
 * error number. It prints each sentence once. */
void explain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* advise prints why no device is usable, once, unless ROCED_EXPLAIN=0. */
void advise(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
