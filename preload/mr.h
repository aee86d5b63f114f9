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
 *   mr.c        regions
 *   replace.c   page replacement
 *   stretch.c   the parts of the memfd
 *   mappings.c  the daemon's mappings, the lock
 *   shared.c    files that the daemon maps as well
 *   mr_pass.c   the descriptor for all other memory
 *   mr_fork.c   the copy that a child of fork() gets
 */
#ifndef ROCED_MR_H
#define ROCED_MR_H

#include "backing.h"

/* ---- mappings.c ---- */

/* Limit on the parts of the memfd in one region. */
enum { PARTS = 256 };

/* Parts of the memfd that the daemon has mapped for a connection, one behind the other. They stay mapped after
 * their last region, for the next registration there. */
struct mapping {
	struct mapping *next;
	struct context *context;
	uint32_t handle;
	unsigned users; /* regions in it, and registrations in progress */
	uint64_t left;  /* the value of departures when the last user left */
	unsigned n;
	struct extent {
		uint64_t start, end, offset;
	} part[]; /* n adjacent ranges of addresses, each with its offset in the memfd */
};

/* How the daemon reaches the memory of a registration. */
struct mr_source {
	enum { MR_ANY, MR_MAPPED, MR_COPIED, MR_MAP, MR_FILE } kind;
	uint32_t handle;         /* MR_MAPPED: the daemon's, of its mapping; MR_MAP: of the mapping to release */
	struct mapping *mapping; /* with a use counted, or NULL */
	/* MR_MAP: the daemon maps the memory with the command that registers it. */
	struct mapping *given_up; /* the mapping that the daemon releases, or NULL */
	struct map_memory {
		uint64_t base, length, offset;
		uint32_t flags, memory;
	} map;
	/* MR_FILE: the daemon maps the file for this region. */
	int fd;
	struct file_place {
		uint64_t offset;
		struct file_id file;
	} place;
};

/* mr_lock and mr_unlock block all changes, for fork(). */
void mr_lock(void);
void mr_unlock(void);

/* mapping_use finds or makes the mapping of memory and counts a use. fresh has the context and the
 * parts of the memory, and becomes the new mapping. If together, the daemon may make it with the
 * registering command. The result is MR_COPIED if the daemon refuses. The caller holds the lock. */
struct mr_source mapping_use(struct mapping *fresh, bool together);
/* mapping_add adds a mapping to the list. The caller holds the lock. */
void mapping_add(struct mapping *m);
/* mapping_leave drops a use of a mapping, unless it is NULL. The caller holds the lock. */
void mapping_leave(struct mapping *m);
/* mapping_take removes a mapping of a context from the list, NULL if there is none. The caller
 * holds the lock. */
struct mapping *mapping_take(struct context *c);
/* mappings_trim makes the daemon unmap the idle mappings beyond the limits, or all idle ones. */
void mappings_trim(struct context *c, bool all);
/* mappings_each calls f for the parts of the memfd that regions use. The caller holds the lock. */
void mappings_each(void (*f)(uint64_t offset, uint64_t end, void *arg), void *arg);
/* mappings_forget empties the list in a child of fork(). */
void mappings_forget(void);

/* ---- stretch.c: the caller holds the lock ---- */

/* The earlier use of a part of the memfd. */
enum history {
	FRESH, /* never used */
	USED,  /* perhaps used earlier; must be emptied */
	SPARE, /* a spare stretch, whose pages are overwritten */
};

/* stretch_fd returns the descriptor of the memfd, -1 if there is none. It may create it. */
int stretch_fd(bool create);
/* stretch_beside sets v->offset to the part of the memfd beside that of adjacent replaced memory;
 * false if other memory might use that part. */
bool stretch_beside(const struct vma *ours, struct vma *v);
/* stretch_new sets v->offset to an unused part of the memfd; false if there is none. */
bool stretch_new(struct vma *v, enum history *history);
/* stretch_filled records that v was replaced. */
void stretch_filled(struct vma *v, enum history history);
/* stretch_seen records that v, replaced memory, will be registered. */
void stretch_seen(const struct vma *v);
/* stretch_moved records that the program has moved replaced memory. */
void stretch_moved(void);
/* replace_drop zeroes a part of the memfd. It frees the pages unless a region uses some: the
 * daemon cannot access holes. */
void replace_drop(uint64_t offset, uint64_t length);

/* ---- replace.c ---- */

/* replace makes a page-aligned range memory of the memfd. It stores the parts in the memfd, at most
 * room, and returns their number. It returns 0 if that is impossible, or if it would need a
 * replacement and !may. The caller holds the lock. */
unsigned replace(uint64_t start, uint64_t end, struct extent *to, unsigned room, bool may);

/* ---- shared.c ---- */

/* shared_prepare describes memory to register that lies in one shared file, and allocates its
 * pages. It returns false for other memory, and if write and the memory is read-only. */
bool shared_prepare(struct mr_source *s, uint64_t start, uint64_t length, bool write);
/* shared_describe describes memory at offset of a file; false if fd is no descriptor. */
bool shared_describe(struct mr_source *s, int fd, uint64_t offset);
/* shared_mapped records that the program has mapped a file, shared. */
void shared_mapped(int fd, uint64_t start, uint64_t length);
/* shared_closing keeps files that the program has mapped and is about to close. */
void shared_closing(unsigned first, unsigned last);
/* shared_unmapped closes kept files that the program does not map any more. */
void shared_unmapped(uint64_t start, uint64_t length);

/* ---- mr.c ---- */

/* Ways of a registration that may fail; the caller then tries others. */
enum {
	MR_TOGETHER = 1, /* the daemon maps memory of the memfd with the registering command */
	MR_SHARED = 2,   /* the daemon maps a shared file */
};

/* mr_prepare prepares a range for registration, for writing by the NIC if write. If possible the
 * range becomes memory of the memfd that the daemon has mapped. The caller must call mr_registered
 * or mr_abandoned next. */
struct mr_source mr_prepare(struct context *c, uint64_t start, uint64_t length, bool write, unsigned ways);
/* mr_abandoned undoes mr_prepare after a failed registration. */
void mr_abandoned(struct mr_source *source);
/* mr_mapped records the mapping that the daemon made with the region. */
void mr_mapped(struct mr_source *source, uint32_t handle);
/* mr_registered adds a region, mr_released removes it. */
void mr_registered(struct context *c, uint32_t handle, uint64_t start, uint64_t length, struct mr_source *source);
void mr_released(struct context *c, uint32_t handle);
/* mr_context_closed frees the regions and mappings of a context. */
void mr_context_closed(struct context *c);

/* mr_forget empties the lists in a child of fork(): regions and mappings belong to the parent. */
void mr_forget(void);

/* ---- mr_pass.c ---- */

/* pass_memory makes the daemon copy the memory of this process; 0 or -errno. The caller holds
 * c->call. pass_memory_needed also succeeds if the daemon can try another way; it explains
 * the failure. */
int pass_memory(struct context *c);
int pass_memory_needed(struct context *c);

#endif
