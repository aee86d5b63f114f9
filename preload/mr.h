/*
 * Memory regions: any memory of the program.
 *
 * The daemon reads and writes registered memory in one of two ways. A descriptor of
 * /proc/self/mem reaches any memory, but each access is a system call. Pages of a memfd that
 * the daemon has mapped, too, it reaches directly. So a registration replaces pages of
 * private anonymous memory with pages of one memfd, with the same content at the same address.
 *
 * ROCED_MR selects the way, for tests: auto; pass (replace nothing); ptrace (pass no
 * descriptor either: the daemon opens /proc/PID/mem like a debugger).
 *
 *   mr.c          regions, and the daemon's mappings
 *   mr_maps.c     the address space
 *   mr_replace.c  page replacement
 *   mr_guard.c    write protection during a replacement
 *   mr_spare.c    unused stretches of the memfd
 *   mr_pass.c     the descriptor for all other memory
 *   mr_fork.c     the copy that a child of fork() gets
 */
#ifndef ROCED_MR_H
#define ROCED_MR_H

#include "context.h"

/* ---- mr.c ---- */

/* How the daemon reaches the memory of a registration. */
struct mr_source {
	enum { MR_ANY, MR_MAPPED, MR_COPIED, MR_MAP } kind;
	uint32_t handle;         /* MR_MAPPED: the daemon's, of its mapping; MR_MAP: of the mapping to release */
	struct mapping *mapping; /* with a use counted, or NULL */
	/* MR_MAP: the daemon maps the memory with the command that registers it. */
	struct mapping *given_up; /* the mapping that the daemon releases, or NULL */
	struct map_memory {
		uint64_t base, length, offset;
		uint32_t flags, memory;
	} map;
};

/* mr_prepare prepares a range for registration. If possible the range becomes memory of the
 * memfd that the daemon has mapped or, if together, maps with the registering command. The
 * caller must call mr_registered or mr_abandoned next. */
struct mr_source mr_prepare(struct context *c, uint64_t start, uint64_t length, bool together);
/* mr_abandoned undoes mr_prepare after a failed registration. */
void mr_abandoned(struct mr_source *source);
/* mr_mapped records the mapping that the daemon made with the region. */
void mr_mapped(struct mr_source *source, uint32_t handle);
/* mr_registered adds a region, mr_released removes it. */
void mr_registered(struct context *c, uint32_t handle, uint64_t start, uint64_t length, struct mr_source *source);
void mr_released(struct context *c, uint32_t handle);
/* mr_context_closed frees the regions and mappings of a context. */
void mr_context_closed(struct context *c);

/* mr_lock and mr_unlock block all changes, for fork(). mr_forget empties the lists in the
 * child: regions and mappings belong to the parent. */
void mr_lock(void);
void mr_unlock(void);
void mr_forget(void);
/* mr_each_mapped calls f for the parts of the memfd that regions use. The caller holds the
 * lock. */
void mr_each_mapped(void (*f)(uint64_t offset, uint64_t end, void *arg), void *arg);

/* ---- mr_maps.c ---- */

#define MR_PAGE 4096ULL

/* Kinds of memory. */
enum vma_kind {
	VMA_PLAIN, /* private, anonymous, readable and writable */
	VMA_OURS,  /* of the memfd, readable and writable */
	VMA_OTHER,
};

/* A part of the address space with one kind of memory. */
struct vma {
	uint64_t start, end;
	uint64_t offset; /* VMA_OURS: of start in the memfd */
	enum vma_kind kind;
};

/* maps_walk calls f for the parts that overlap [start, end), in order and cut to that range,
 * until f returns false. It uses neither locks nor the heap. It returns false if /proc is
 * not readable. */
bool maps_walk(uint64_t start, uint64_t end, bool (*f)(const struct vma *v, void *arg), void *arg);
/* maps_keep keeps a descriptor of /proc/self/maps for faster queries. It may use the heap. */
void maps_keep(void);
/* maps_locked returns true if mlock() covers a part of the range. */
bool maps_locked(uint64_t start, uint64_t end);
/* maps_threads returns the number of threads of the process, 0 if unknown. */
int maps_threads(void);

/* ---- mr_replace.c ---- */

/* backing_fd returns the descriptor of the memfd, -1 if there is none or the program closed it. */
int backing_fd(void);
/* backing_ino returns its inode number. */
uint64_t backing_ino(void);
/* backing_is returns true if a file in /proc/self/maps is the memfd. */
bool backing_is(unsigned major, unsigned minor, uint64_t ino);
/* backing_abandon closes the memfd in a child that has copied its memory. */
void backing_abandon(void);
/* backing_zero punches a hole into the memfd: the part reads as zeros, its pages are free. */
void backing_zero(uint64_t offset, uint64_t length);
/* backing_zero_around does the same with a stretch except for this part. */
void backing_zero_around(uint64_t offset, uint64_t length);
/* backing_drop does the same with a part, but keeps its pages, as zeros, if a region uses some:
 * the daemon cannot access holes. The caller holds the lock. */
void backing_drop(uint64_t offset, uint64_t length);
/* backing_allocate allocates pages for holes. They count as memory of this process. */
bool backing_allocate(uint64_t offset, uint64_t length);
/* replace makes a page-aligned range memory of the memfd, consecutive from *offset on. It
 * returns false if that is impossible, or if it would need a replacement and !may. The
 * caller holds the lock. */
bool replace(uint64_t start, uint64_t end, uint64_t *offset, bool may);

/* ---- mr_guard.c ---- */

/* guard_open returns a userfaultfd that can write-protect pages, or -1. */
int guard_open(void);
/* guard_close ends its use. */
void guard_close(int guard, bool replaced);
/* guard_raise write-protects a range. */
bool guard_raise(int guard, uint64_t start, uint64_t end);
/* guard_drop wakes blocked threads. If the range was not replaced, it removes the protection
 * first. */
void guard_drop(int guard, uint64_t start, uint64_t end, bool replaced);

/* ---- mr_spare.c ---- */

/* spare_remember records the part of a stretch that is in use. */
void spare_remember(uint64_t offset, uint64_t length);
/* spare_take returns the offset of an unused part of that length; false if there is none. */
bool spare_take(uint64_t length, uint64_t *offset);
/* spares_look calls used for each part and counts the calls in a row that return false. */
void spares_look(bool (*used)(uint64_t offset, void *arg), void *arg);
/* spares_each calls f for all recorded parts. */
void spares_each(void (*f)(uint64_t offset, uint64_t end, void *arg), void *arg);
/* spares_forget empties the table for a new memfd. */
void spares_forget(void);

/* ---- mr_pass.c ---- */

/* pass_memory makes the daemon copy the memory of this process; 0 or -errno. The caller holds
 * c->call. pass_memory_needed also succeeds if the daemon can try another way; it explains
 * the failure. */
int pass_memory(struct context *c);
int pass_memory_needed(struct context *c);

#endif
