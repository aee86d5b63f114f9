/* Completion queues are destroyed with unread events: no call hangs, and no event of a destroyed
 * queue reaches its successor at the same address. Arming a queue that holds completions causes
 * an event at once, as with adapters, but not for completions that already caused one. */
#include "verbs.h"

#include <fcntl.h>
#include <poll.h>

/* traffic causes a completion on an armed queue, and so an event. */
static void traffic(struct loop *l, struct ibv_qp *qp, struct ibv_cq *cq)
{
	CHECK(ibv_req_notify_cq(cq, 0) == 0);
	post_recv(l, qp, 1);
	CHECK(post_send(l, qp, 2) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(reap(cq).status == IBV_WC_SUCCESS);
}

static int readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	return poll(&p, 1, ms);
}

static void take_event(struct ibv_comp_channel *ch, struct ibv_cq *cq)
{
	struct ibv_cq *got;
	void *context;
	CHECK(readable(ch->fd, 5000) == 1);
	CHECK(ibv_get_cq_event(ch, &got, &context) == 0 && got == cq);
	ibv_ack_cq_events(cq, 1);
}

/* message sends one, and waits until it has arrived. */
static void message(struct loop *l, struct ibv_qp *qp, struct ibv_cq *done)
{
	post_recv(l, qp, 1);
	CHECK(post_send(l, qp, 2) == 0 && reap(done).status == IBV_WC_SUCCESS);
}

/* unread destroys a queue whose event is unread. The channel then is not readable: a program that polls it would block in
 * ibv_get_cq_event(). */
static void unread(struct loop *l, struct ibv_comp_channel *ch)
{
	for (int i = 0; i < 20; i++) {
		struct ibv_cq *cq = ibv_create_cq(l->ctx, 32, NULL, ch, 0);
		CHECK(cq != NULL);
		struct ibv_qp *qp = loop_qp(l, cq, cq);
		traffic(l, qp, cq);
		CHECK(readable(ch->fd, 5000) == 1);
		CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
		CHECK(readable(ch->fd, 0) == 0);
	}
}

/* late arms the queue after the completions have arrived. */
static void late(struct loop *l, struct ibv_comp_channel *ch)
{
	struct ibv_cq *cq = ibv_create_cq(l->ctx, 32, NULL, ch, 0), *done = ibv_create_cq(l->ctx, 32, NULL, NULL, 0);
	CHECK(cq != NULL && done != NULL);
	struct ibv_qp *qp = loop_qp(l, done, cq);
	for (int i = 0; i < 200; i++) {
		int soon = i < 3 ? 100 : 0; /* no event may arrive within this time */
		message(l, qp, done);
		CHECK(ibv_req_notify_cq(cq, 1) == 0); /* none of the completions is solicited */
		CHECK(readable(ch->fd, soon) == 0);
		CHECK(ibv_req_notify_cq(cq, 0) == 0);
		take_event(ch, cq);
		CHECK(reap(cq).wr_id == 1);
		CHECK(ibv_req_notify_cq(cq, 0) == 0); /* the queue is empty */
		CHECK(readable(ch->fd, soon) == 0);
		message(l, qp, done);
		take_event(ch, cq);
		CHECK(ibv_req_notify_cq(cq, 0) == 0); /* all completions have caused their event: perftest counts events */
		CHECK(readable(ch->fd, soon) == 0);
		CHECK(reap(cq).wr_id == 1);
		message(l, qp, done);
		take_event(ch, cq);
		CHECK(reap(cq).wr_id == 1);
		CHECK(readable(ch->fd, 0) == 0);
	}
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_destroy_cq(done) == 0);
}

int main(void)
{
	struct loop l = loop_open();
	struct ibv_comp_channel *ch = ibv_create_comp_channel(l.ctx);
	CHECK(ch != NULL);
	for (int round = 0; round < 50; round++) {
		struct ibv_cq *cq = ibv_create_cq(l.ctx, 32, &round, ch, 0), *got;
		void *context;
		CHECK(cq != NULL);
		struct ibv_qp *qp = loop_qp(&l, cq, cq);
		traffic(&l, qp, cq);
		if (round % 2) { /* read this one; the even ones stay unread */
			CHECK(ibv_get_cq_event(ch, &got, &context) == 0);
			CHECK(got == cq && context == &round);
			ibv_ack_cq_events(cq, 1);
		}
		CHECK(ibv_destroy_qp(qp) == 0);
		CHECK(ibv_destroy_cq(cq) == 0);
	}
	/* The library drops unread events; a non-blocking channel is then empty. */
	CHECK(fcntl(ch->fd, F_SETFL, O_NONBLOCK) == 0);
	struct ibv_cq *got;
	void *context;
	CHECK(ibv_get_cq_event(ch, &got, &context) == -1 && errno == EAGAIN);
	CHECK(readable(ch->fd, 0) == 0);
	unread(&l, ch);
	late(&l, ch);
	CHECK(ibv_destroy_comp_channel(ch) == 0);
	CHECK(ibv_dereg_mr(l.mr) == 0 && ibv_dealloc_pd(l.pd) == 0 && ibv_close_device(l.ctx) == 0);
	return 0;
}
