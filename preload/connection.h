/*
 * How the library finds the daemon and talks to it.
 *
 *   tree.c       the directories of the daemon
 *   rundir.c     which daemon the library trusts
 *   conn.c       a command and its answer on a connection
 *   call_lock.c  the lock of a connection
 */
#ifndef ROCED_CONNECTION_H
#define ROCED_CONNECTION_H

#include "process.h"

/* ---- tree.c ---- */

/* preload_active returns true if the environment names a daemon. */
bool preload_active(void);
/* run_dir returns the daemon's run directory (ROCED_RUN_DIR), sysfs_dir the root of its
 * sysfs tree (SYSFS_PATH); NULL if not set. */
const char *run_dir(void);
const char *sysfs_dir(void);
/* path_below returns true if path is prefix or lies below it. */
bool path_below(const char *path, const char *prefix);
/* path_lists_pci returns true for the folder of all PCI devices below sys, which is /sys or
 * the daemon's tree. */
bool path_lists_pci(const char *path, const char *sys);
/* read_file reads a small file as a string; false if it is missing or empty. */
bool read_file(const char *path, char *buf, size_t size);
/* class_rdev returns the device number of a class device ("misc/rdma_cm"), 0 if the
 * daemon's tree has no such device. */
uint64_t class_rdev(const char *class_device);

/* ---- rundir.c: both return false with errno set, and print the reason ---- */

/* rundir_trusted returns false if another user may have prepared the run directory. */
bool rundir_trusted(void);
/* rundir_peer_trusted returns false if the daemon at the other end of a connection belongs to
 * neither the owner of the run directory nor root. */
bool rundir_peer_trusted(int fd);

/* ---- conn.c ---- */

#define MAX_MESSAGE 16384
#define MAX_FDS 4

enum answer_fd_kind { ANSWER_NUMBER = 1, ANSWER_MEMORY, ANSWER_EVENTFD };

struct answer_fd {
	uint64_t arg;
	uint32_t kind;
	uint32_t size;
	int fd;
};

/* An answer of the daemon. The caller owns the descriptors. A failure has no descriptors;
 * its body is a sentence for the user, possibly empty. */
struct answer {
	int ret; /* 0 or -errno */
	size_t len;
	unsigned nfd;
	struct answer_fd fd[MAX_FDS];
	uint8_t body[MAX_MESSAGE];
};

/* conn_dial connects to a socket in the run directory; -1 with errno set. */
int conn_dial(const char *name);
/* conn_call sends a command with nfds descriptors, waits for the answer and returns
 * answer->ret. It returns -EIO if the daemon is gone or the answer is malformed. The
 * caller serialises the calls on a connection (struct call_lock). */
int conn_call(int fd, const void *cmd, size_t n, const int *fds, size_t nfds, struct answer *a);
/* conn_ended explains that the daemon has ended, or has closed a connection. The library calls it when a connection hangs up. */
void conn_ended(void);
/* conn_hung_up returns true if the daemon has closed its end. */
bool conn_hung_up(int fd);
/* answer_copy copies the body to a program's buffer and fills the rest with zeros. */
void answer_copy(const struct answer *a, void *to, size_t room);
/* answer_close closes the descriptors from index i on. */
void answer_close(struct answer *a, unsigned i);

/* ---- call_lock.c ---- */

/* Serialises the commands on a connection. fork() shares a connection, so processes
 * share the lock, too. */
struct call_lock {
	pthread_mutex_t mutex;
	/* The daemon's handle of the process that owns the regions registered next, and
	 * whether there is one (mr_pass.c). The mutex guards both. */
	uint32_t memory;
	bool passed;
};

/* call_lock_new returns NULL if there is no memory. */
struct call_lock *call_lock_new(void);
void call_lock_free(struct call_lock *l);
/* call_lock locks connection fd. If a process died during a command, the next answer
 * cannot be assigned to a command; then call_lock shuts the connection down. */
void call_lock(struct call_lock *l, int fd);
void call_unlock(struct call_lock *l);

#endif
