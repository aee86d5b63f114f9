/*
 * Stretches of the memfd that are no longer in use, kept with their pages for memory of the
 * same length. Programs allocate, register and free the same lengths repeatedly. Overwriting
 * pages costs a fourth of freeing them and filling new ones, and the daemon may still have
 * them mapped. The callers hold the lock.
 */
#include "backing.h"

#include <string.h>

enum {
	SPARES = 256,
	SPARE_BYTES = 32 << 20, /* limit on unused pages */
	/* A walk over the address space is not atomic: it can miss memory that the C library moves
	 * meanwhile, but not twice in a row. */
	LOOKS = 2,
};

/* A stretch with its mapping at offset and of that length; length 0 marks a free entry. */
static struct spare {
	uint64_t offset, length;
	unsigned absent; /* looks in a row that did not find it in use */
} spares[SPARES];
static unsigned hand; /* the number of entries recorded so far */

void spares_forget(void) { memset(spares, 0, sizeof spares); }

void spare_remember(uint64_t offset, uint64_t length)
{
	spares[hand++ % SPARES] = (struct spare){ offset, length, 0 };
}

bool spare_take(uint64_t length, uint64_t *offset)
{
	for (struct spare *s = spares; s < spares + SPARES; s++)
		if (s->length == length && s->absent == LOOKS) {
			s->absent = 0;
			*offset = s->offset;
			return true;
		}
	return false;
}

void spares_look(bool (*used)(uint64_t offset, void *arg), void *arg)
{
	uint64_t bytes = 0;
	for (struct spare *s = spares; s < spares + SPARES; s++) {
		if (s->length == 0 || used(s->offset, arg)) {
			s->absent = 0;
			continue;
		}
		bytes += s->length;
		if (bytes > SPARE_BYTES)
			s->length = 0; /* sweep frees stretches without an entry */
		else if (s->absent < LOOKS && ++s->absent == LOOKS)
			backing_zero_around(s->offset, s->length); /* the mapping may have grown into it */
	}
}

void spares_each(void (*f)(uint64_t offset, uint64_t end, void *arg), void *arg)
{
	for (struct spare *s = spares; s < spares + SPARES; s++)
		if (s->length > 0)
			f(s->offset, s->offset + s->length, arg);
}
