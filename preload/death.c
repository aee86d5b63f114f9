/*
 * What happens when the daemon dies: a thread notices, and completes with an error
 * what the program has posted and will post, in its own completion queues. The
 * commands fail with EIO then, as those of a kernel whose device has been unplugged.
 */
#include "preload.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

enum { WC_FLUSH_ERR = 5, FLUSH_EVERY_MS = 10, STACK = 256 << 10 };

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct context *list;
static bool watching;
static int wake_fd = -1;

/* ---- rings (docs/reference/control-protocol.md) ---- */

static _Atomic uint32_t *ring_word(const struct ring *r, size_t at)
{
	return (_Atomic uint32_t *)(r->mem + at);
}

static _Atomic uint32_t *producer(const struct ring *r) { return ring_word(r, 128); }
static _Atomic uint32_t *consumer(const struct ring *r) { return ring_word(r, 256); }
static uint32_t mask(const struct ring *r) { return *ring_word(r, 4); }

/* slot returns an element, of which `need` bytes are used; NULL if the ring does not
 * hold it. */
static void *slot(const struct ring *r, uint32_t i, size_t need)
{
	size_t size = (size_t)1 << (*ring_word(r, 0) & 31), at = 384 + size * (i & mask(r));
	return size >= need && at + size <= r->size ? r->mem + at : NULL;
}

bool ring_empty(const struct ring *r)
{
	return ((*producer(r) - *consumer(r)) & mask(r)) == 0;
}

/* complete adds a completion; false if the queue is full. */
static bool complete(const struct ring *cq, uint64_t wr_id, uint32_t qpn)
{
	uint32_t p = *producer(cq), next = (p + 1) & mask(cq);
	struct {
		struct ib_uverbs_wc wc;
		uint64_t time;
	} *c = slot(cq, p, sizeof *c);
	struct ib_uverbs_wc *wc = &c->wc;
	if (next == (*consumer(cq) & mask(cq)) || !c)
		return false;
	memset(wc, 0, sizeof *wc);
	wc->wr_id = wr_id;
	wc->status = WC_FLUSH_ERR;
	wc->qp_num = qpn;
	c->time = stamp_now();
	atomic_store(producer(cq), next);
	return true;
}

/* flush_queue completes what is in a queue of work requests, whose elements begin with
 * the wr_id. */
static void flush_queue(struct context *c, const struct ring *q, uint32_t cq_handle, uint32_t qpn)
{
	struct object *cq = objects_get(&c->objects, OBJ_CQ, cq_handle);
	if (!q->mem || !cq || !cq->cq.mem)
		return;
	for (;;) {
		uint32_t i = *consumer(q) & mask(q);
		uint64_t *wr_id = slot(q, i, sizeof *wr_id);
		if (i == (*producer(q) & mask(q)) || !wr_id || !complete(&cq->cq, *wr_id, qpn))
			return;
		atomic_store(consumer(q), (i + 1) & mask(q));
	}
}

void death_flush(struct context *c)
{
	atomic_store(&c->dead, true);
	pthread_mutex_lock(&c->lock);
	for (uint32_t i = 0; i < c->objects.slots; i++) {
		struct object *o = c->objects.slot[i];
		if (!o || !o->live || o->kind != OBJ_QP)
			continue;
		flush_queue(c, &o->sq, o->send_cq, o->qpn);
		flush_queue(c, &o->rq, o->recv_cq, o->qpn);
	}
	pthread_mutex_unlock(&c->lock);
}

/* ---- the thread ---- */

/* collect lists what to wait for; *dead tells whether any context has lost its daemon. */
static struct pollfd *collect(nfds_t *n, bool *dead)
{
	nfds_t live = 1;
	*dead = false;
	for (struct context *c = list; c; c = c->next)
		live++;
	struct pollfd *p = calloc(live, sizeof *p);
	*n = 0;
	if (!p)
		return NULL;
	p[(*n)++] = (struct pollfd){ .fd = wake_fd, .events = POLLIN };
	for (struct context *c = list; c; c = c->next) {
		if (atomic_load(&c->dead))
			*dead = true;
		else
			p[(*n)++] = (struct pollfd){ .fd = c->fd }; /* only that it hangs up */
	}
	return p;
}

static void *watch(void *arg)
{
	(void)arg;
	for (;;) {
		nfds_t n;
		bool dead;
		uint64_t count;
		pthread_mutex_lock(&list_lock);
		struct pollfd *p = collect(&n, &dead);
		pthread_mutex_unlock(&list_lock);
		poll(p, n, dead || !p ? FLUSH_EVERY_MS : -1);
		if (p && p[0].revents)
			syscall(SYS_read, wake_fd, &count, sizeof count);
		free(p);
		pthread_mutex_lock(&list_lock);
		for (struct context *c = list; c; c = c->next)
			if (atomic_load(&c->dead) || conn_gone(c->fd))
				death_flush(c);
		pthread_mutex_unlock(&list_lock);
	}
	return NULL;
}

/* fork() must not catch a context's objects while another thread changes them. */
static void before_fork(void)
{
	KEEP_ERRNO;
	pthread_mutex_lock(&list_lock);
	for (struct context *c = list; c; c = c->next)
		pthread_mutex_lock(&c->lock);
}

static void in_parent(void)
{
	for (struct context *c = list; c; c = c->next)
		pthread_mutex_unlock(&c->lock);
	pthread_mutex_unlock(&list_lock);
}

/* in_child: the thread is not there, and the contexts are the parent's until this
 * process uses one. */
static void in_child(void)
{
	KEEP_ERRNO;
	for (struct context *c = list; c; c = c->next)
		pthread_mutex_unlock(&c->lock);
	watching = false;
	list = NULL;
	fd_drop(wake_fd);
	wake_fd = -1;
	pthread_mutex_unlock(&list_lock);
}

/* start starts the thread; the caller holds list_lock. Signals are not its affair. */
static bool start(void)
{
	static bool registered;
	if (!registered)
		registered = pthread_atfork(before_fork, in_parent, in_child) == 0;
	if (wake_fd < 0) /* without it, the thread notices new contexts when something else wakes it */
		wake_fd = fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t t;
	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int err = pthread_create(&t, &attr, watch, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return err == 0;
}

/* wake makes the thread look at the list again. */
static void wake(void)
{
	uint64_t one = 1;
	syscall(SYS_write, wake_fd, &one, sizeof one);
}

void death_watch(struct context *c)
{
	pthread_mutex_lock(&list_lock);
	c->next = list;
	list = c;
	if (!watching)
		watching = start();
	wake();
	pthread_mutex_unlock(&list_lock);
}

void death_forget(struct context *c)
{
	pthread_mutex_lock(&list_lock);
	for (struct context **p = &list; *p; p = &(*p)->next) {
		if (*p == c) {
			*p = c->next;
			break;
		}
	}
	if (watching)
		wake();
	pthread_mutex_unlock(&list_lock);
}
