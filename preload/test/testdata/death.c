/* The daemon is killed. Work requests complete with an error, blocked calls return, the device
 * reports a fatal event, commands fail, and all objects can be destroyed. The program prints
 * "ready" when the test may kill the daemon. */
#include "verbs.h"

#include <pthread.h>

static void *wait_async(void *arg)
{
	struct ibv_async_event e;
	CHECK(ibv_get_async_event(arg, &e) == 0);
	CHECK(e.event_type == IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&e);
	return NULL;
}

static void *wait_completion(void *arg)
{
	struct ibv_cq *cq;
	void *context;
	CHECK(ibv_get_cq_event(arg, &cq, &context) == 0);
	ibv_ack_cq_events(cq, 1);
	return cq;
}

static void flushed(struct ibv_cq *cq, uint64_t id, struct ibv_qp *qp)
{
	struct ibv_wc wc = reap(cq);
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == id && wc.qp_num == qp->qp_num);
}

int main(void)
{
	struct loop l = loop_open();
	struct ibv_comp_channel *ch = ibv_create_comp_channel(l.ctx);
	struct ibv_cq *send = ibv_create_cq(l.ctx, 32, NULL, NULL, 0), *recv = ibv_create_cq(l.ctx, 32, NULL, ch, 0);
	CHECK(ch && send && recv && ibv_req_notify_cq(recv, 0) == 0);
	struct ibv_qp *qp = loop_qp(&l, send, recv);
	for (int i = 0; i < 10; i++)
		post_recv(&l, qp, 100 + i);
	pthread_t async, completion;
	CHECK(pthread_create(&async, NULL, wait_async, l.ctx) == 0);
	CHECK(pthread_create(&completion, NULL, wait_completion, ch) == 0);
	printf("ready\n");
	fflush(stdout);

	void *woken;
	CHECK(pthread_join(completion, &woken) == 0 && woken == recv);
	for (int i = 0; i < 10; i++)
		flushed(recv, 100 + i, qp);
	CHECK(pthread_join(async, NULL) == 0);
	/* Work requests posted now fail at once or complete with an error, too. */
	if (post_send(&l, qp, 7) == 0)
		flushed(send, 7, qp);
	post_recv(&l, qp, 8);
	flushed(recv, 8, qp);
	CHECK(ibv_alloc_pd(l.ctx) == NULL && errno == EIO);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(send) == 0 && ibv_destroy_cq(recv) == 0);
	CHECK(ibv_destroy_comp_channel(ch) == 0 && ibv_dereg_mr(l.mr) == 0 && ibv_dealloc_pd(l.pd) == 0);
	CHECK(ibv_close_device(l.ctx) == 0);
	return 0;
}
