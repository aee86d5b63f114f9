/*
 * The functions that this library puts in front of others.
 *
 *   next.c        the functions behind them
 *   io.c          read, write
 *   fd_calls.c    close, dup, fcntl, ioctl and their kin
 *   paths.c       which paths are devices; open
 *   path_calls.c  other functions that take paths
 *   socket_calls.c  functions of sockets
 *   glob.c        glob
 *   counters.c    refreshed counters of sysfs
 *   mr_calls.c    madvise, mremap
 *   map_calls.c   mmap, munmap
 *   dmabuf.c      regions of dma-bufs
 *   address.c     addresses of UD peers
 *   poll.c        sharing the processor while polling
 *   provider.c    corrections of the rxe provider
 *   stamp.c       time stamps of completions
 *   umad.c        port GUIDs
 */
#ifndef ROCED_INTERPOSE_H
#define ROCED_INTERPOSE_H

#include "commands.h"
#include "layout.h"

#define EXPORT __attribute__((visibility("default")))

/* INTERPOSE exports roced_NAME as NAME. Callers of NAME reach roced_NAME, but dlsym() does
 * not find it, because the symbol is not the default version of its name. So a program that
 * looks NAME up to patch it, as Open MPI does, patches the C library's function, which
 * roced_NAME calls. */
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

/* REAL declares real_NAME, the next definition of an interposed function. */
#define REAL(name)                                                           \
	static __typeof__(name) *real_##name;                                 \
	if (!real_##name)                                                     \
	real_##name = (__typeof__(name) *)next_symbol(#name)

/* LARGE defines the functions with 64 in their names. With musl these names are macros for the
 * functions without it. */
#ifdef __GLIBC__
#define LARGE(definition) definition
#else
#define LARGE(definition)
#endif

/* ---- next.c ---- */

/* next_symbol returns the next definition of a function after this library's. */
void *next_symbol(const char *name);
/* verbs_symbol returns a function of libibverbs, NULL without libibverbs. */
void *verbs_symbol(const char *name);
/* verbs_ours returns true if a verbs context belongs to the daemon. */
bool verbs_ours(void *const *ibv_context);

/* ---- paths.c ---- */

/* path_device returns the name of a device node ("uverbs0"), NULL for other paths. */
const char *path_device(const char *path);
/* device_rdev returns the device number of a device node, 0 if it does not exist. */
uint64_t device_rdev(const char *name);
/* REDIRECT declares to, the path to use in place of path. Stacks may be small, so there is room
 * on them only for a path that changes. */
#define REDIRECT(to, path)                    \
	size_t path_size = path_room(path);   \
	char buf[path_size + 1];              \
	const char *to = path_size ? path_redirect(path, buf, path_size) : path
/* path_room returns the size of path after path_redirect, 0 for a path that stays. */
size_t path_room(const char *path);
const char *path_redirect(const char *path, char *buf, size_t room);
/* path_shown replaces a resolved path of a PCI device in the daemon's tree by its path in
 * sysfs, in place, and returns it. */
char *path_shown(char *resolved);

/* ---- counters.c ---- */

/* counters_refresh makes the daemon update the counters of a device if path is one of them;
 * false for other paths. For the list of PCI devices it updates that list. Failures leave the
 * file as it is. */
bool counters_refresh(const char *path);
/* counters_opened records the descriptor of a counter. The daemon replaces the file of a
 * counter, so an open descriptor would never change. counters_reread makes such a descriptor
 * refer to the current file. */
void counters_opened(int fd, const char *path);
void counters_reread(struct file *f, int fd);

/* ---- stamp.c ---- */

typedef void *create_cq_fn(void *ibv_context, void *attr);
/* stamp_create creates an extended completion queue with a function that has no time
 * stamps, and adds the requested ones. */
void *stamp_create(create_cq_fn *create, void *ibv_context, void *attr);
/* stamp_query makes a context report its clock (ibv_query_rt_values_ex). */
void stamp_query(void **ibv_context);

/* ---- provider.c ---- */

/* provider_mend corrects a context, and the queue pairs that it creates from now on.
 * provider_create_cq creates an extended completion queue with flags that the provider refuses,
 * and may change attr. provider_mend_cq corrects such a queue. */
void provider_mend(void **ibv_context);
void *provider_create_cq(create_cq_fn *create, void *ibv_context, struct cq_init_attr *attr);
void provider_mend_cq(void **cq);

#endif
