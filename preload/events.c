/*
 * Completion channels and asynchronous events: sockets that carry the kernel's structures, so
 * poll() works. Reads replace cookies with the program's handles and count events; the
 * commands that destroy objects return the counts.
 */
#include "events.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

enum { EVENT_DEVICE_FATAL = 8 }; /* enum ib_event_type */

static void channel_closed(struct file *f)
{
	struct channel *ch = (struct channel *)f;
	context_put(ch->context);
	free(ch);
}

int channel_new(struct context *c, enum fd_kind kind, int fd, uint32_t id)
{
	struct channel *ch = calloc(1, sizeof *ch);
	if (!ch)
		return -ENOMEM;
	*ch = (struct channel){ .file = { .kind = kind, .release = channel_closed }, .context = c, .id = id };
	if (fd_set_file(fd, &ch->file) < 0) {
		free(ch);
		return -EMFILE;
	}
	atomic_fetch_add(&c->holders, 1);
	return 0;
}

/* translate replaces the cookie of an event with the program's handle and counts the event;
 * false if the object is destroyed. */
static bool translate(struct context *c, uint64_t *cookie, bool completion)
{
	pthread_mutex_lock(&c->lock);
	struct object *o = objects_by_cookie(&c->objects, *cookie);
	if (o) {
		*cookie = o->user_handle;
		*(completion ? &o->comp_read : &o->async_read) += 1;
	}
	pthread_mutex_unlock(&c->lock);
	return o != NULL;
}

/* last_event returns one event for each completion queue of a channel after the daemon's
 * death, so that the program polls the flushed work requests. */
static bool last_event(struct channel *ch, struct ib_uverbs_comp_event_desc *e)
{
	struct context *c = ch->context;
	bool found = false;
	death_flush(c);
	pthread_mutex_lock(&c->lock);
	for (uint32_t i = 0; i < c->objects.slots && !found; i++) {
		struct object *o = c->objects.slot[i];
		if (!o || !o->live || o->kind != OBJ_CQ || o->channel != ch->id || o->death_reported)
			continue;
		o->death_reported = found = true;
		o->comp_read++;
		e->cq_handle = o->user_handle;
	}
	pthread_mutex_unlock(&c->lock);
	return found;
}

static ssize_t fail(int err)
{
	errno = err;
	return -1;
}

/* receive waits for an event; 0 at the end of the stream. If the program closes the device
 * while a thread waits, that thread gets EBADF, because the objects may be freed. */
static ssize_t receive(struct channel *ch, int fd, void *e, size_t n)
{
	ssize_t k = recv(fd, e, n, 0);
	if (k < 0 && errno == ECONNRESET)
		k = 0;
	return k == 0 && fd_file(fd) != &ch->file ? fail(EBADF) : k;
}

static ssize_t read_completion(struct channel *ch, int fd, void *buf, size_t n)
{
	struct ib_uverbs_comp_event_desc e;
	if (n < sizeof e)
		return fail(EINVAL);
	for (;;) {
		ssize_t k = receive(ch, fd, &e, sizeof e);
		if (k < 0)
			return -1;
		uint64_t handle = e.cq_handle;
		if (k == sizeof e && translate(ch->context, &handle, true))
			e.cq_handle = handle;
		else if (k > 0)
			continue;
		else if (!last_event(ch, &e))
			return fail(EIO); /* like a kernel after the removal of a device */
		memcpy(buf, &e, sizeof e);
		return sizeof e;
	}
}

static ssize_t read_async(struct channel *ch, int fd, void *buf, size_t n)
{
	struct ib_uverbs_async_event_desc e;
	if (n < sizeof e)
		return fail(EINVAL);
	for (;;) {
		ssize_t k = receive(ch, fd, &e, sizeof e);
		if (k < 0)
			return -1;
		if (k > 0 && k < (ssize_t)sizeof e)
			continue;
		if (k == 0) {
			if (ch->fatal_reported)
				return fail(EIO);
			ch->fatal_reported = true;
			death_flush(ch->context);
			e = (struct ib_uverbs_async_event_desc){ .event_type = EVENT_DEVICE_FATAL };
		} else {
			uint64_t element = e.element;
			/* Events of a port carry its number, which is not a cookie. */
			if (element > UINT32_MAX && !translate(ch->context, &element, false))
				continue;
			e.element = element;
		}
		memcpy(buf, &e, sizeof e);
		return sizeof e;
	}
}

ssize_t channel_read(struct channel *ch, int fd, void *buf, size_t n)
{
	ssize_t k;
	file_hold(&ch->file);
	pthread_cleanup_push(file_cleanup, &ch->file);
	k = ch->file.kind == FD_COMP ? read_completion(ch, fd, buf, n) : read_async(ch, fd, buf, n);
	pthread_cleanup_pop(1);
	return k;
}
