/*
 * The death of the daemon. A thread notices it and completes all posted work requests with
 * an error, also those posted later, in the program's completion queues. Commands then fail
 * with EIO, as with a kernel after the removal of a device.
 */
#include "events.h"

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

/* complete adds a completion; false if the completion queue is full. */
static bool complete(const struct ring *cq, uint64_t wr_id, uint32_t qpn)
{
	uint32_t p = *ring_producer(cq), next = (p + 1) & ring_mask(cq);
	struct {
		struct ib_uverbs_wc wc;
		uint64_t time;
	} *c = ring_slot(cq, p, sizeof *c);
	struct ib_uverbs_wc *wc = &c->wc;
	if (next == (*ring_consumer(cq) & ring_mask(cq)) || !c)
		return false;
	memset(wc, 0, sizeof *wc);
	wc->wr_id = wr_id;
	wc->status = WC_FLUSH_ERR;
	wc->qp_num = qpn;
	c->time = monotonic_ns();
	atomic_store(ring_producer(cq), next);
	return true;
}

/* flush_queue completes all work requests of a queue. Its elements begin with the wr_id. */
static void flush_queue(struct context *c, const struct ring *q, uint32_t cq_handle, uint32_t qpn)
{
	struct object *cq = objects_get(&c->objects, OBJ_CQ, cq_handle);
	if (!q->mem || !cq || !cq->cq.mem)
		return;
	for (;;) {
		uint32_t i = *ring_consumer(q) & ring_mask(q);
		uint64_t *wr_id = ring_slot(q, i, sizeof *wr_id);
		if (i == (*ring_producer(q) & ring_mask(q)) || !wr_id || !complete(&cq->cq, *wr_id, qpn))
			return;
		atomic_store(ring_consumer(q), (i + 1) & ring_mask(q));
	}
}

void death_flush(struct context *c)
{
	if (!atomic_exchange(&c->dead, true))
		conn_ended();
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

/* collect lists the descriptors to wait for. *dead becomes true if a context has lost its daemon. */
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
			p[(*n)++] = (struct pollfd){ .fd = c->fd }; /* POLLHUP only */
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
			if (atomic_load(&c->dead) || conn_hung_up(c->fd))
				death_flush(c);
		pthread_mutex_unlock(&list_lock);
	}
	return NULL;
}

/* The objects of a context must be consistent in a child of fork(). */
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

/* The child has no such thread. It adopts a context when it uses one (adopt in uverbs.c). */
static void in_child(void)
{
	KEEP_ERRNO;
	for (struct context *c = list; c; c = c->next)
		pthread_mutex_unlock(&c->lock);
	watching = false;
	list = NULL;
	fd_private_close(wake_fd);
	wake_fd = -1;
	pthread_mutex_unlock(&list_lock);
}

/* start starts the thread, with all signals blocked. The caller holds list_lock. */
static bool start(void)
{
	static bool registered;
	if (!registered)
		registered = pthread_atfork(before_fork, in_parent, in_child) == 0;
	if (wake_fd < 0) /* on failure the thread notices new contexts at its next wake-up */
		wake_fd = fd_private(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
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

/* wake makes the thread reread the list. */
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

void death_unwatch(struct context *c)
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
