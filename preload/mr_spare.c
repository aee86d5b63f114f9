/*
 * Stretches of the memfd that memory has left, kept with their pages for memory of the same
 * length. Programs allocate, register and free the same lengths again and again, and to write
 * over pages takes a fourth of what it takes to give them back and fill new ones; the daemon, too,
 * may have them mapped still. The lock is held.
 */
#include "mr.h"

#include <string.h>

enum {
	SPARES = 256,
	SPARE_BYTES = 32 << 20, /* may be kept in vain */
	/* The address space is not looked at in one moment, so that memory which the C library moves
	 * meanwhile may be missed; not twice. */
	LOOKS = 2,
};

/* A stretch whose mapping began at offset and had that length; 0: none. */
static struct spare {
	uint64_t offset, length;
	unsigned absent; /* looks that have not found it in use, since it was */
} spares[SPARES];
static unsigned hand; /* counts what has been remembered */

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
			s->length = 0; /* is freed as what nobody remembers */
		else if (s->absent < LOOKS && ++s->absent == LOOKS)
			backing_zero_around(s->offset, s->length); /* into which it has grown, perhaps */
	}
}

void spares_each(void (*f)(uint64_t offset, uint64_t end, void *arg), void *arg)
{
	for (struct spare *s = spares; s < spares + SPARES; s++)
		if (s->length > 0)
			f(s->offset, s->offset + s->length, arg);
}
