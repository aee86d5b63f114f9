/*
 * Memory regions on any memory of the program.
 *
 * The daemon reads and writes registered memory. It can do so through a descriptor of
 * /proc/self/mem (any memory, but a system call for each access) or directly, where the pages belong to
 * a memfd that it has mapped as well. So pages of private anonymous memory are
 * replaced, at the time when they are registered, by pages of one memfd with the
 * same content, at the same place.
 *
 * ROCED_MR chooses, for tests: auto, or pass (replace nothing), or ptrace (pass nothing
 * either: the daemon opens /proc/PID/mem as a debugger does).
 *
 *   mr.c          what is registered; the daemon's mappings
 *   mr_maps.c     what lies where in the address space
 *   mr_replace.c  replacement of pages
 *   mr_guard.c    protection meanwhile
 *   mr_spare.c    what it leaves, for the next
 *   mr_pass.c     the descriptor for all other memory
 *   mr_fork.c     the copy that a child of fork() gets
 */
#ifndef ROCED_MR_H
#define ROCED_MR_H

#include "context.h"

/* ---- mr.c: called by the rest of the library ---- */

/* Where memory is that is to be registered, as the daemon is told. */
struct mr_source {
	enum { MR_ANY, MR_MAPPED, MR_COPIED, MR_MAP } kind;
	uint32_t handle;         /* MR_MAPPED: the daemon's, of its mapping; MR_MAP: of one to give up */
	struct mapping *mapping; /* which is held, or NULL */
	/* MR_MAP: the daemon is to map the memory with the command that registers it. */
	struct mapping *given_up; /* or NULL */
	struct map_memory {
		uint64_t base, length, offset;
		uint32_t flags, memory;
	} map;
};

/* mr_prepare gets a range ready to be registered in a context: if it can be, it becomes
 * memory that the daemon has mapped or, if together, is to map with the same command.
 * mr_registered or mr_abandoned follows. */
struct mr_source mr_prepare(struct context *c, uint64_t start, uint64_t length, bool together);
/* mr_abandoned tells that it was not registered after all. */
void mr_abandoned(struct mr_source *source);
/* mr_mapped tells the handle of the mapping that has been made with the region. */
void mr_mapped(struct mr_source *source, uint32_t handle);
/* mr_registered and mr_released tell what the program has registered. */
void mr_registered(struct context *c, uint32_t handle, uint64_t start, uint64_t length, struct mr_source *source);
void mr_released(struct context *c, uint32_t handle);
/* mr_context_closed forgets a context. */
void mr_context_closed(struct context *c);

/* mr_lock and mr_unlock hold everything as it is, for fork(). mr_forget is for the
 * child: regions and mappings are the parent's. */
void mr_lock(void);
void mr_unlock(void);
void mr_forget(void);
/* mr_each_mapped calls f for the parts of the memfd that regions use. The lock is
 * held. */
void mr_each_mapped(void (*f)(uint64_t offset, uint64_t end, void *arg), void *arg);

/* ---- mr_maps.c ---- */

#define MR_PAGE 4096ULL

/* Kinds of memory. */
enum vma_kind {
	VMA_PLAIN, /* private, anonymous, readable and writable */
	VMA_OURS,  /* of the memfd, readable and writable */
	VMA_OTHER,
};

/* A piece of the address space with one kind of memory. */
struct vma {
	uint64_t start, end;
	uint64_t offset; /* VMA_OURS: of start in the memfd */
	enum vma_kind kind;
};

/* maps_walk calls f for the pieces that overlap [start, end), in order, each cut to
 * that range, until it returns false. It uses neither locks nor the heap. False if
 * /proc cannot be read. */
bool maps_walk(uint64_t start, uint64_t end, bool (*f)(const struct vma *v, void *arg), void *arg);
/* maps_keep makes questions about this process cheaper, where the kernel has them. It may
 * use the heap. */
void maps_keep(void);
/* maps_locked reports whether some of the range has been locked with mlock(). */
bool maps_locked(uint64_t start, uint64_t end);
/* maps_threads is the number of threads of the process, 0 if it is not known. */
int maps_threads(void);

/* ---- mr_replace.c ---- */

/* backing_fd is a descriptor of the memfd, -1 if there is none (any more). */
int backing_fd(void);
/* backing_ino is its number in the file system. */
uint64_t backing_ino(void);
/* backing_is reports whether a file, as /proc/self/maps names it, is the memfd. */
bool backing_is(unsigned major, unsigned minor, uint64_t ino);
/* backing_abandon gives the memfd up, in a child that has copies of its memory. */
void backing_abandon(void);
/* backing_zero makes a part of the memfd read as zeros and frees its pages. */
void backing_zero(uint64_t offset, uint64_t length);
/* backing_zero_around does so with a stretch but for this part of it. */
void backing_zero_around(uint64_t offset, uint64_t length);
/* replace makes all of a range that lies on page boundaries memory of the memfd,
 * consecutive, from *offset on. False if that cannot be, or is not yet and may not be. The lock
 * is held. */
bool replace(uint64_t start, uint64_t end, uint64_t *offset, bool may);

/* ---- mr_guard.c ---- */

/* guard_open returns a userfaultfd that can protect pages against writing, for guard_close, or -1. */
int guard_open(void);
/* guard_close ends its use, and is told whether pages were replaced. */
void guard_close(int guard, bool replaced);
/* guard_raise protects a range. */
bool guard_raise(int guard, uint64_t start, uint64_t end);
/* guard_drop lets go who waits; of a range that was not replaced it also ends the
 * protection. */
void guard_drop(int guard, uint64_t start, uint64_t end, bool replaced);

/* ---- mr_spare.c ---- */

/* spare_remember remembers where a stretch is being used, from offset on. */
void spare_remember(uint64_t offset, uint64_t length);
/* spare_take finds one that is not used any more and had that length. */
bool spare_take(uint64_t length, uint64_t *offset);
/* spares_look asks for each whether it is used. */
void spares_look(bool (*used)(uint64_t offset, void *arg), void *arg);
/* spares_each calls f for all that are remembered. */
void spares_each(void (*f)(uint64_t offset, uint64_t end, void *arg), void *arg);
/* spares_forget is for a new memfd. */
void spares_forget(void);

/* ---- mr_pass.c ---- */

/* pass_memory makes this process the one whose memory the daemon copies; 0 or -errno. The
 * caller holds c->call. pass_memory_needed also succeeds if the daemon may have other ways,
 * and says what is wrong. */
int pass_memory(struct context *c);
int pass_memory_needed(struct context *c);

#endif
