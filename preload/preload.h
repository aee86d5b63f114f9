/*
 * libroced: unmodified RDMA programs on a machine without kernel InfiniBand.
 *
 * Loaded with LD_PRELOAD, this library stands between a program (its stock
 * libibverbs, rxe provider and librdmacm) and the C library. Opening
 * /dev/infiniband/uverbsN becomes a connection to the daemon, and what would be
 * write() commands of the kernel's uverbs ABI (rdma/ib_user_verbs.h) travel over it
 * (docs/reference/control-protocol.md). Everything else passes through untouched.
 *
 *   process.c  which process this is
 *   conn.c     a command and its answer on a connection
 *   uverbs.c   verbs contexts: commands, rings, doorbells
 *   direct.c   commands by shared memory
 *   objects.c  what a context has created: event counts, rings
 *   events.c   completion channels and asynchronous events
 *   death.c    what happens when the daemon dies
 *   fds.c      which descriptors are ours
 *   paths.c    which paths are ours
 *   address.c  who resolves addresses
 *   poll.c     sharing the processor while polling
 *   provider.c errors of the provider, put right
 *   stamp.c    time stamps of completions
 *   explain.c  what the user at the terminal is told
 *   mr.c       memory regions: page replacement
 *   rdmacm.c   the rdma_cm ABI
 */
#ifndef ROCED_PRELOAD_H
#define ROCED_PRELOAD_H

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

#define EXPORT __attribute__((visibility("default")))

/* INTERPOSE exports roced_NAME as NAME in such a way that the dynamic linker takes it for
 * what programs call, but dlsym() does not find it: who looks for a function to overwrite
 * it, as Open MPI does, finds the C library's, which ours calls. A symbol that is not the
 * default version of its name is like that. */
#if !defined __GLIBC__
#elif defined __x86_64__
#define OLDEST "GLIBC_2.2.5"
#elif defined __i386__
#define OLDEST "GLIBC_2.0"
#elif defined __s390__
#define OLDEST "GLIBC_2.2"
#elif defined __arm__
#define OLDEST "GLIBC_2.4"
#elif defined __riscv
#define OLDEST "GLIBC_2.27"
#elif defined __aarch64__ || defined __powerpc64__
#define OLDEST "GLIBC_2.17"
#endif
#ifdef OLDEST
#define INTERPOSE(name) __asm__(".symver roced_" #name ", " #name "@" OLDEST)
#else
#define INTERPOSE(name) __typeof__(roced_##name) name __attribute__((visibility("default"), alias("roced_" #name)))
#endif

/* KEEP_ERRNO makes the block that it stands in leave errno as it is; kept does for a call
 * that succeeds. POSIX lets it change, but programs look at it all the same. */
static inline void errno_restore(const int *was) { errno = *was; }
#define KEEP_ERRNO __attribute__((cleanup(errno_restore), unused)) const int errno_was = errno
static inline ssize_t kept(int was, ssize_t result)
{
	if (result >= 0)
		errno = was;
	return result;
}

/* REAL declares real_NAME, the next definition of an interposed function. */
#define REAL(name)                                                           \
	static __typeof__(name) *real_##name;                                 \
	if (!real_##name)                                                     \
	real_##name = (__typeof__(name) *)rv_next(#name)

/* rv_next finds the definition of a function behind ours. */
void *rv_next(const char *name);

/* ---- process.c ---- */

/* process_id is the number of the process whose memory this is. */
pid_t process_id(void);
/* process_owns_memory is false in a child of vfork(), which uses its parent's memory
 * and has descriptors of its own. */
bool process_owns_memory(void);

/* ---- fds.c ---- */

enum fd_kind { FD_NONE, FD_UVERBS, FD_COMP, FD_ASYNC, FD_CM, FD_OWN };

/* What a descriptor of ours stands for. Duplicates share it. */
struct file {
	enum fd_kind kind;
	uint64_t rdev; /* of the character device, 0 for none */
	atomic_int refs;
	void (*release)(struct file *); /* the last descriptor has been closed */
};

/* fd_file returns what fd stands for, NULL if it is not ours. */
struct file *fd_file(int fd);
/* fd_kind is the kind of a descriptor. */
enum fd_kind fd_kind(int fd);
/* fd_set_file makes fd stand for f, with a reference of its own; -1 with errno set
 * if the number is too high. */
int fd_set_file(int fd, struct file *f);
/* file_hold takes a reference, file_put gives one up; file_cleanup does so when a
 * thread is cancelled. */
void file_hold(struct file *f);
void file_put(struct file *f);
void file_cleanup(void *f);
/* fd_keep duplicates fd for the library's own use, out of the program's reach; -1 with
 * errno set. fd_drop closes such a descriptor. */
int fd_keep(int fd);
void fd_drop(int fd);
/* fd_own is fd_keep of a descriptor that nobody else needs, which it closes. Of -1 it
 * makes -1. */
int fd_own(int fd);

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

/* An answer of the daemon. The descriptors are the caller's. The body of one of failure is
 * a sentence, perhaps an empty one. */
struct answer {
	int ret; /* 0 or -errno */
	size_t len;
	unsigned nfd;
	struct answer_fd fd[MAX_FDS];
	uint8_t body[MAX_MESSAGE];
};

/* conn_dial connects to a socket in the run directory; -1 with errno set. */
int conn_dial(const char *name);
/* conn_call sends a command, with nfds descriptors, and waits for the answer. It returns answer->ret; -EIO if the daemon is gone or does not make sense. An
 * answer of failure has no descriptors. One call at a time on a connection is the
 * caller's affair. */
int conn_call(int fd, const void *cmd, size_t n, const int *fds, size_t nfds, struct answer *a);

/* The lock for that. fork() shares a connection, so it holds between processes too. */
struct call_lock {
	pthread_mutex_t mutex;
	/* The daemon's handle of the process that it takes regions to be in, and whether
	 * there is one (mr_pass.c). Guarded by the mutex. */
	uint32_t memory;
	bool passed;
};

/* call_lock_new makes a lock, NULL if there is no memory. call_lock_free ends it. */
struct call_lock *call_lock_new(void);
void call_lock_free(struct call_lock *l);
/* call_lock locks connection fd. If a process died in the middle of a command, nobody
 * knows whose the next answer is: the connection ends. */
void call_lock(struct call_lock *l, int fd);
void call_unlock(struct call_lock *l);
/* answer_copy copies the response to where a program wants it; what an answer lacks is
 * zero there. */
void answer_copy(const struct answer *a, void *to, size_t room);
/* conn_gone reports whether the daemon has closed its end. */
bool conn_gone(int fd);
/* answer_close closes the descriptors of an answer from index i on. */
void answer_close(struct answer *a, unsigned i);

/* ---- paths.c ---- */

/* active reports whether the environment names a daemon. */
bool rv_active(void);
/* run_dir is the daemon's run directory. */
const char *run_dir(void);
/* path_redirect returns the path to use in place of path: itself, or one in buf
 * (PATH_MAX bytes). */
const char *path_redirect(const char *path, char *buf);
/* path_rdev is the device number of a class device, as its sysfs file says. */
uint64_t path_rdev(const char *class_device);

/* ---- objects.c ---- */

enum object_kind { OBJ_CQ, OBJ_QP, OBJ_SRQ, OBJ_KINDS };

/* A ring in shared memory, mapped a second time for the library's own use. */
struct ring {
	uint8_t *mem;
	size_t size;
};

/* An object that has events. The daemon is told a cookie instead of the program's
 * handle, so that an event of an object that is gone is recognised. */
struct object {
	bool live;
	enum object_kind kind;
	uint32_t slot;
	uint32_t generation;
	uint32_t handle;      /* the daemon's */
	uint64_t user_handle; /* the program's */
	uint32_t comp_read;   /* completion events that the program has read */
	uint32_t async_read;
	/* OBJ_QP */
	uint32_t qpn, send_cq, recv_cq; /* handles of CQs */
	struct ring sq, rq;
	/* OBJ_CQ */
	struct ring cq;
	uint32_t channel;  /* where it reports, NO_CHANNEL for none */
	bool death_told;   /* the program has been woken after the daemon's death */
};

#define NO_CHANNEL UINT32_MAX

struct objects {
	struct object **slot; /* by slot */
	uint32_t slots;
	uint32_t *by_handle[OBJ_KINDS]; /* slot + 1 */
	uint32_t handles[OBJ_KINDS];
};

struct object *objects_add(struct objects *t, enum object_kind kind, uint64_t user_handle);
bool objects_name(struct objects *t, struct object *o, uint32_t handle);
struct object *objects_get(struct objects *t, enum object_kind kind, uint32_t handle);
struct object *objects_cookie(struct objects *t, uint64_t cookie);
uint64_t object_cookie(const struct object *o);
void objects_remove(struct objects *t, struct object *o);
void objects_free(struct objects *t);

/* ring_map maps a ring of a memfd; one that cannot be mapped stays empty. */
struct ring ring_map(int memfd, uint64_t offset, size_t size);
void ring_unmap(struct ring *r);

/* ---- uverbs.c ---- */

/* Handles of queue pairs are smaller (docs/reference/control-protocol.md). */
enum { BELL_QPS = 16384 };

/* Extension commands (docs/reference/control-protocol.md). */
enum { EXT_HELLO = 0xc0, EXT_DOORBELL, EXT_MAP_MEMORY, EXT_UNMAP_MEMORY, EXT_REFRESH_SYSFS = 0xc7, EXT_PASS_MEMORY };

/* A verbs context: one connection, which is the library's own. The program's descriptor is
 * of the memfd in which rings have their offsets, so that it maps them without our help. */
struct context {
	struct file file;
	atomic_int holders; /* who has a pointer: file, channels */
	int fd;     /* of the connection */
	int rings;  /* of the memfd: the library's own */
	pid_t opener;          /* the process that has connected */
	uint64_t mapped_ino;   /* the memfd that the daemon knows by a number; guarded by mr_lock */
	uint32_t mapped_number;
	pid_t passer;          /* the process whose memory has the handle below; guarded by call */
	uint32_t memory;
	_Atomic pid_t watcher; /* the process whose thread watches over it */
	atomic_bool dead;
	struct context *next; /* in the list of death.c */
	uint8_t *bell;        /* doorbells, NULL if there are none */
	int bell_fd;
	atomic_bool ready[BELL_QPS]; /* by handle: the queue pair may send */

	struct call_lock *call; /* one command at a time; guards answer */
	struct answer answer;

	pthread_mutex_t lock; /* guards objects */
	struct objects objects;
};

/* bell_wake wakes the daemon if it sleeps, for what has been left in the doorbells' memory. */
void bell_wake(struct context *c);
/* uverbs_open opens /dev/infiniband/<name>. */
int uverbs_open(const char *name, int flags);
/* uverbs_write carries out what a program writes to a verbs device. */
ssize_t uverbs_write(struct context *c, const void *buf, size_t n);
/* context_of returns the context of a descriptor, NULL if it has none. */
struct context *context_of(int fd);
/* context_put gives up a pointer. */
void context_put(struct context *c);
/* context_call sends a command of the library itself, with a descriptor if send_fd >= 0,
 * and copies the response, unless resp is NULL; 0 or -errno. context_call_on does so for
 * a caller that holds c->call, and with several descriptors. */
int context_call(struct context *c, const void *cmd, size_t n, int send_fd, void *resp, size_t resp_len);
int context_call_on(struct context *c, const void *cmd, size_t n, const int *fds, size_t nfds, void *resp,
		    size_t resp_len);

/* ---- direct.c ---- */

/* direct_call has the daemon carry out a command by shared memory, and fills c->answer. It
 * returns false if that is not to be had for this command, or it has failed: the socket is
 * for those. The caller holds c->call. */
bool direct_call(struct context *c, const void *cmd, size_t n);

/* ---- events.c ---- */

/* A completion channel or the channel of asynchronous events. */
struct channel {
	struct file file;
	struct context *context; /* is one of its holders */
	uint32_t id;             /* the daemon's, of a completion channel */
	bool fatal_told;         /* asynchronous: the program knows that the device is gone */
};

/* channel_new makes fd a channel of a context. */
int channel_new(struct context *c, enum fd_kind kind, int fd, uint32_t id);
/* channel_read reads one event. It is a cancellation point while it waits. */
ssize_t channel_read(struct channel *ch, int fd, void *buf, size_t n);

/* ---- death.c ---- */

/* death_watch begins to watch over a context; death_forget ends it. */
void death_watch(struct context *c);
void death_forget(struct context *c);
/* ring_empty reports whether there is nothing in a ring. */
bool ring_empty(const struct ring *r);
/* death_flush completes with an error what the program has posted. */
void death_flush(struct context *c);

/* ---- explain.c ---- */

/* explain prints a sentence on the program's standard error, if the environment asks for
 * that: what a program cannot say that sees an error number only. */
void explain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* advise prints why nothing can work here, once, unless the environment forbids it. */
void advise(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- poll.c ---- */

/* poll_share makes polling of a context's completion queues share the processor. */
void poll_share(void *ibv_context);

/* ---- stamp.c ---- */

typedef void *create_cq_fn(void *ibv_context, void *attr);
/* stamp_create makes an extended completion queue by a function that has no time stamps, and gives it
 * those that are asked for. */
void *stamp_create(create_cq_fn *create, void *ibv_context, void *attr);
/* stamp_now is the time stamp of a completion that is made now. */
uint64_t stamp_now(void);
/* stamp_query lets a context tell what its clock shows. */
void stamp_query(void **ibv_context);

/* ---- provider.c ---- */

/* provider_mend puts right what a context makes from now on, provider_mend_cq an extended
 * completion queue. */
void provider_mend(void **ibv_context);
void provider_mend_cq(void **cq);

#endif
