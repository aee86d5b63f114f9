/*
 * The objects of a context, and rings in shared memory.
 *
 *   objects.c  tables of queues and queue pairs
 *   ring.c     rings
 */
#ifndef ROCED_OBJECTS_H
#define ROCED_OBJECTS_H

#include "connection.h"

/* ---- ring.c ---- */

/* A ring, mapped a second time for the library. */
struct ring {
	uint8_t *mem;
	size_t size;
};

/* ring_map maps a ring of a memfd. The result is empty (mem == NULL) on failure. */
struct ring ring_map(int memfd, uint64_t offset, size_t size);
void ring_unmap(struct ring *r);
bool ring_empty(const struct ring *r);
_Atomic uint32_t *ring_producer(const struct ring *r);
_Atomic uint32_t *ring_consumer(const struct ring *r);
uint32_t ring_mask(const struct ring *r);
/* ring_slot returns element i, of which `need` bytes are used; NULL if it is outside the
 * mapped memory. */
void *ring_slot(const struct ring *r, uint32_t i, size_t need);
/* monotonic_ns returns CLOCK_MONOTONIC in nanoseconds, the clock of completions. */
uint64_t monotonic_ns(void);

/* ---- objects.c ---- */

enum object_kind { OBJ_CQ, OBJ_QP, OBJ_SRQ, OBJ_KINDS };

#define NO_CHANNEL UINT32_MAX

/* An object that has events. The daemon gets a cookie in place of the program's handle, so
 * the library recognises events of destroyed objects. */
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
	uint32_t channel;    /* of its events, NO_CHANNEL if there is none */
	bool death_reported; /* the program was woken after the daemon's death */
};

struct objects {
	struct object **slot; /* by slot */
	uint32_t slots;
	uint32_t *by_handle[OBJ_KINDS]; /* slot + 1 */
	uint32_t handles[OBJ_KINDS];
};

/* objects_add returns a new object, NULL if there is no memory. */
struct object *objects_add(struct objects *t, enum object_kind kind, uint64_t user_handle);
/* objects_set_handle records the daemon's handle; false if it is too large. */
bool objects_set_handle(struct objects *t, struct object *o, uint32_t handle);
/* objects_get and objects_by_cookie return NULL if there is no such live object. */
struct object *objects_get(struct objects *t, enum object_kind kind, uint32_t handle);
struct object *objects_by_cookie(struct objects *t, uint64_t cookie);
uint64_t object_cookie(const struct object *o);
void objects_remove(struct objects *t, struct object *o);
void objects_free(struct objects *t);

#endif
