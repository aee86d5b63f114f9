/* The tables of a context: queues and queue pairs, their events and rings. */
#include "objects.h"

#include <stdlib.h>

/* grow enlarges an array of *n elements so that index i exists, and zeroes the new elements.
 * It returns NULL if there is no memory. */
static void *grow(void *array, uint32_t *n, uint32_t i, size_t size)
{
	if (i < *n)
		return array;
	uint32_t want = *n ? *n : 16;
	while (want <= i)
		want *= 2;
	uint8_t *p = realloc(array, want * size);
	if (!p)
		return NULL;
	for (size_t b = *n * size; b < want * size; b++)
		p[b] = 0;
	*n = want;
	return p;
}

/* free_slot returns an unused slot. */
static uint32_t free_slot(struct objects *t)
{
	for (uint32_t i = 0; i < t->slots; i++)
		if (!t->slot[i] || !t->slot[i]->live)
			return i;
	return t->slots;
}

struct object *objects_add(struct objects *t, enum object_kind kind, uint64_t user_handle)
{
	uint32_t i = free_slot(t);
	void *p = grow(t->slot, &t->slots, i, sizeof *t->slot);
	if (!p)
		return NULL;
	t->slot = p;
	struct object *o = t->slot[i];
	if (!o && !(o = t->slot[i] = calloc(1, sizeof *o)))
		return NULL;
	*o = (struct object){ .live = true, .kind = kind, .slot = i, .generation = o->generation + 1,
			      .user_handle = user_handle, .handle = UINT32_MAX };
	return o;
}

bool objects_set_handle(struct objects *t, struct object *o, uint32_t handle)
{
	/* The daemon uses small handles; a large one would only waste memory. */
	if (handle >= 1 << 20)
		return false;
	void *p = grow(t->by_handle[o->kind], &t->handles[o->kind], handle, sizeof(uint32_t));
	if (!p)
		return false;
	t->by_handle[o->kind] = p;
	t->by_handle[o->kind][handle] = o->slot + 1;
	o->handle = handle;
	return true;
}

struct object *objects_get(struct objects *t, enum object_kind kind, uint32_t handle)
{
	if (handle >= t->handles[kind] || !t->by_handle[kind][handle])
		return NULL;
	return t->slot[t->by_handle[kind][handle] - 1];
}

uint64_t object_cookie(const struct object *o)
{
	return (uint64_t)o->generation << 32 | o->slot;
}

struct object *objects_by_cookie(struct objects *t, uint64_t cookie)
{
	uint32_t slot = (uint32_t)cookie;
	if (slot >= t->slots || !t->slot[slot])
		return NULL;
	struct object *o = t->slot[slot];
	return o->live && object_cookie(o) == cookie ? o : NULL;
}

void objects_remove(struct objects *t, struct object *o)
{
	if (o->handle < t->handles[o->kind])
		t->by_handle[o->kind][o->handle] = 0;
	ring_unmap(&o->sq);
	ring_unmap(&o->rq);
	ring_unmap(&o->cq);
	o->live = false;
}

void objects_free(struct objects *t)
{
	for (uint32_t i = 0; i < t->slots; i++) {
		if (t->slot[i] && t->slot[i]->live)
			objects_remove(t, t->slot[i]);
		free(t->slot[i]);
	}
	free(t->slot);
	for (int k = 0; k < OBJ_KINDS; k++)
		free(t->by_handle[k]);
}
