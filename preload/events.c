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
	pthread_mutex_lock(&ch->context->lock);
	struct channel **at = &ch->context->channels;
	while (*at != ch)
		at = &(*at)->next;
	*at = ch->next;
	pthread_mutex_unlock(&ch->context->lock);
	context_put(ch->context);
	free(ch);
}

int channel_new(struct context *c, enum fd_kind kind, int fd, uint32_t id)
{
	struct channel *ch = calloc(1, sizeof *ch);
	if (!ch)
		return -ENOMEM;
	*ch = (struct channel){ .file = { .kind = kind, .release = channel_closed }, .context = c, .fd = fd, .id = id };
	if (fd_set_file(fd, &ch->file) < 0) {
		free(ch);
		return -EMFILE;
	}
	atomic_fetch_add(&c->holders, 1);
	pthread_mutex_lock(&c->lock);
	ch->next = c->channels;
	c->channels = ch;
	pthread_mutex_unlock(&c->lock);
	return 0;
}

/* An event of either kind of channel. */
union event {
	struct ib_uverbs_comp_event_desc completion;
	struct ib_uverbs_async_event_desc async;
};

static size_t event_size(const struct channel *ch)
{
	return ch->file.kind == FD_COMP ? sizeof(struct ib_uverbs_comp_event_desc) : sizeof(struct ib_uverbs_async_event_desc);
}

/* object_of returns the object of an event, NULL if it is destroyed. Events of a port have no object: their element is the
 * port's number, which is not a cookie. The caller holds c->lock. */
static struct object *object_of(struct channel *ch, const union event *e, bool *has)
{
	uint64_t cookie = ch->file.kind == FD_COMP ? e->completion.cq_handle : e->async.element;
	*has = ch->file.kind == FD_COMP || cookie > UINT32_MAX;
	return *has ? objects_by_cookie(&ch->context->objects, cookie) : NULL;
}

/* next_event is recv() of one event without waiting and without cancellation. */
static ssize_t next_event(struct channel *ch, int fd, union event *e, int flags)
{
	return syscall(SYS_recvfrom, fd, e, event_size(ch), flags | MSG_DONTWAIT, NULL, NULL);
}

/* purge drops events of destroyed objects up to the first other one. The caller holds c->lock. */
static void purge(struct channel *ch, int fd)
{
	union event e;
	bool has;
	while (next_event(ch, fd, &e, MSG_PEEK) == (ssize_t)event_size(ch) && !object_of(ch, &e, &has) && has)
		next_event(ch, fd, &e, 0);
}

void channels_purge(struct context *c)
{
	for (struct channel *ch = c->channels; ch; ch = ch->next)
		if (fd_file(ch->fd) == &ch->file)
			purge(ch, ch->fd);
}

/* take reads the oldest event of a live object without waiting. It replaces the cookie by the program's handle and counts the
 * event. Returns as recv(). */
static ssize_t take(struct channel *ch, int fd, union event *e)
{
	bool has;
	pthread_mutex_lock(&ch->context->lock);
	purge(ch, fd);
	ssize_t k = next_event(ch, fd, e, 0);
	int err = errno;
	if (k == (ssize_t)event_size(ch)) {
		struct object *o = object_of(ch, e, &has);
		if (o && ch->file.kind == FD_COMP) {
			e->completion.cq_handle = o->user_handle;
			o->comp_read++;
		} else if (o) {
			e->async.element = o->user_handle;
			o->async_read++;
		}
		purge(ch, fd);
	}
	pthread_mutex_unlock(&ch->context->lock);
	errno = err;
	return k;
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
static ssize_t receive(struct channel *ch, int fd, union event *e)
{
	for (;;) {
		char byte;
		ssize_t k = take(ch, fd, e);
		if (k < 0 && errno == EAGAIN) {
			k = recv(fd, &byte, sizeof byte, MSG_PEEK);
			if (k > 0)
				continue;
		}
		if (k < 0 && errno == ECONNRESET)
			k = 0;
		if (k > 0 && k < (ssize_t)event_size(ch))
			continue;
		return k == 0 && fd_file(fd) != &ch->file ? fail(EBADF) : k;
	}
}

/* fatal_event returns the event of a device that is gone, once. */
static bool fatal_event(struct channel *ch, struct ib_uverbs_async_event_desc *e)
{
	if (ch->fatal_reported)
		return false;
	ch->fatal_reported = true;
	death_flush(ch->context);
	*e = (struct ib_uverbs_async_event_desc){ .event_type = EVENT_DEVICE_FATAL };
	return true;
}

/* read_event reads one event. After the end of the daemon it fails like a kernel after the removal of a device. */
static ssize_t read_event(struct channel *ch, int fd, void *buf, size_t n)
{
	union event e;
	if (n < event_size(ch))
		return fail(EINVAL);
	ssize_t k = receive(ch, fd, &e);
	if (k < 0)
		return -1;
	if (k == 0 && !(ch->file.kind == FD_COMP ? last_event(ch, &e.completion) : fatal_event(ch, &e.async)))
		return fail(EIO);
	memcpy(buf, &e, event_size(ch));
	return (ssize_t)event_size(ch);
}

ssize_t channel_read(struct channel *ch, int fd, void *buf, size_t n)
{
	ssize_t k;
	file_hold(&ch->file);
	pthread_cleanup_push(file_cleanup, &ch->file);
	k = read_event(ch, fd, buf, n);
	pthread_cleanup_pop(1);
	return k;
}
