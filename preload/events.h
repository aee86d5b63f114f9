/*
 * Events, and the end of the daemon.
 *
 *   events.c  completion channels and asynchronous events
 *   death.c   the thread that watches connections
 */
#ifndef ROCED_EVENTS_H
#define ROCED_EVENTS_H

#include "mr.h"

/* ---- events.c ---- */

/* A completion channel or the channel of asynchronous events. */
struct channel {
	struct file file;
	struct context *context; /* holds a reference */
	struct channel *next;    /* in the list of the context */
	int fd;
	uint32_t id;             /* the daemon's, of a completion channel */
	bool fatal_reported;     /* asynchronous: the program has read the fatal event */
};

/* channel_new makes fd a channel of a context; 0 or -errno. */
int channel_new(struct context *c, enum fd_kind kind, int fd, uint32_t id);
/* channels_purge drops unread events of destroyed objects. Otherwise poll() reports a channel as readable that has no
 * event for the program. The caller holds c->lock. */
void channels_purge(struct context *c);
/* channel_read reads one event. It is a cancellation point while it waits. */
ssize_t channel_read(struct channel *ch, int fd, void *buf, size_t n);

/* ---- death.c ---- */

/* death_watch starts to watch the connection of a context. death_unwatch stops it. */
void death_watch(struct context *c);
void death_unwatch(struct context *c);
/* death_flush completes all posted work requests with an error. */
void death_flush(struct context *c);

#endif
