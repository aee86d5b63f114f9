/*
 * The memfd whose pages replace private anonymous memory. The callers hold the lock (mr.h).
 *
 *   backing.c  the memfd
 *   spare.c    its unused stretches
 */
#ifndef ROCED_BACKING_H
#define ROCED_BACKING_H

#include "maps.h"

/* Each replacement gets a stretch of 64 GiB of the memfd, and starts in its middle. */
enum { STRETCH_BITS = 36, FILE_BITS = 61 };
#define STRETCH (1ULL << STRETCH_BITS)

/* ---- backing.c ---- */

/* backing_fd returns the descriptor of the memfd, -1 if there is none or the program closed it. */
int backing_fd(void);
/* backing_ino returns its inode number. */
uint64_t backing_ino(void);
/* backing_open creates the memfd unless it exists, and sets *fresh if it did. It returns the
 * descriptor, or -1. */
int backing_open(bool *fresh);
/* backing_abandon closes the memfd in a child that has copied its memory. */
void backing_abandon(void);
/* backing_zero punches a hole into the memfd: the part reads as zeros, its pages are free. */
void backing_zero(uint64_t offset, uint64_t length);
/* backing_zero_around does the same with a stretch except for this part. */
void backing_zero_around(uint64_t offset, uint64_t length);
/* backing_allocate allocates pages for the holes of replaced memory, which lies at offset of the
 * memfd. They count as memory of this process. */
bool backing_allocate(uint64_t start, uint64_t end, uint64_t offset);
/* backing_write writes a range of memory into the memfd. */
bool backing_write(int fd, uint64_t start, uint64_t end, uint64_t offset);

/* ---- spare.c ---- */

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

#endif
