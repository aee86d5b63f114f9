/*
 * The address space of the program.
 *
 *   maps.c   its parts, as /proc/self shows them
 *   guard.c  write protection during a replacement
 */
#ifndef ROCED_MAPS_H
#define ROCED_MAPS_H

#include "context.h"

/* ---- maps.c ---- */

#define MR_PAGE 4096ULL

/* Kinds of memory. */
enum vma_kind {
	VMA_PLAIN, /* private, anonymous, readable and writable */
	VMA_OURS,  /* of the memfd, readable and writable */
	VMA_FILE,  /* shared memory of another file, readable */
	VMA_OTHER,
};

/* A file, by its device and inode number. */
struct file_id {
	uint64_t ino;
	uint32_t major, minor;
};

/* A part of the address space with one kind of memory. */
struct vma {
	uint64_t start, end;
	uint64_t offset; /* VMA_OURS, VMA_FILE: of start in the file */
	enum vma_kind kind;
	bool writable;
	bool heap; /* VMA_PLAIN: the C library's heap, which only grows and shrinks at its end */
	struct file_id file;
	uint64_t whole_start, whole_end; /* the part before it was cut to a range */
};

/* maps_set_memfd names the memfd whose memory is VMA_OURS, by device and inode number; an inode
 * number of 0 means none. */
void maps_set_memfd(unsigned major, unsigned minor, uint64_t ino);
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

/* ---- guard.c ---- */

/* guard_open returns a userfaultfd that can write-protect pages, or -1. */
int guard_open(void);
/* guard_close ends its use. */
void guard_close(int guard, bool replaced);
/* guard_raise write-protects a range. */
bool guard_raise(int guard, uint64_t start, uint64_t end);
/* guard_drop wakes blocked threads. If the range was not replaced, it removes the protection
 * first. */
void guard_drop(int guard, uint64_t start, uint64_t end, bool replaced);

#endif
