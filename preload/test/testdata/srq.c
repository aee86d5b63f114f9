/* Resizes a shared receive queue in use through rdma-core's rxe provider. Posted receives stay in order,
 * while another thread posts more. */
#include "verbs.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MESSAGES = 3000, AHEAD = 12 };

static struct loop l;
static struct ibv_srq *srq;
static struct ibv_qp *qp;
static struct ibv_cq *cq;

static int resize(uint32_t n)
{
	struct ibv_srq_attr a = { .max_wr = n };
	return ibv_modify_srq(srq, &a, IBV_SRQ_MAX_WR);
}

static struct ibv_srq_attr query(void)
{
	struct ibv_srq_attr a;
	CHECK(ibv_query_srq(srq, &a) == 0);
	return a;
}

static int post(uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)l.buf, 1024, l.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;
	return ibv_post_srq_recv(srq, &wr, &bad);
}

/* fill posts until the queue is full. */
static int fill(int id)
{
	int n = 0;
	while (post(id + n) == 0)
		n++;
	return n;
}

/* take sends n messages. They must consume the receives from id on. */
static void take(int n, int id)
{
	for (int i = 0; i < n; i++) {
		CHECK(post_send(&l, qp, 1 << 20) == 0);
		for (int k = 0; k < 2; k++) {
			struct ibv_wc wc = reap(cq);
			CHECK(wc.status == IBV_WC_SUCCESS);
			CHECK(wc.opcode != IBV_WC_RECV || wc.wr_id == (uint64_t)(id + i));
		}
	}
}

/* sizes grows and shrinks a queue that is full, or whose receives wrap around the ring. */
static void sizes(void)
{
	int posted = fill(0), taken = 3;
	CHECK(posted == (int)query().max_wr && posted >= 7);
	take(3, 0);
	posted += fill(posted); /* wraps around */
	CHECK(resize(posted - taken - 4) == EINVAL); /* more receives are posted */
	CHECK(resize(0) == EINVAL && resize(1 << 30) == EINVAL);
	CHECK(resize(100) == 0 && query().max_wr >= 100);
	posted += fill(posted);
	CHECK(posted - taken == (int)query().max_wr);
	take(posted - taken - 5, taken);
	taken = posted - 5;
	CHECK(resize(5) == 0 && query().max_wr < 100);
	posted += fill(posted);
	CHECK(posted - taken == (int)query().max_wr);
	take(posted - taken, taken);
}

/* limits: a resize keeps an armed limit, which bounds the size. One call can change both. */
static void limits(void)
{
	struct ibv_srq_attr a = { .srq_limit = 6 };
	CHECK(ibv_modify_srq(srq, &a, IBV_SRQ_LIMIT) == 0);
	CHECK(resize(3) == EINVAL);
	CHECK(resize(60) == 0 && query().srq_limit == 6);
	a = (struct ibv_srq_attr){ .max_wr = 30, .srq_limit = 4000 };
	CHECK(ibv_modify_srq(srq, &a, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) == EINVAL && query().max_wr >= 60);
	a = (struct ibv_srq_attr){ .max_wr = 20, .srq_limit = 2 };
	CHECK(ibv_modify_srq(srq, &a, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) == 0);
	a = query();
	CHECK(a.srq_limit == 2 && a.max_wr >= 20 && a.max_wr < 60);
	for (int i = 0; i < 2; i++)
		CHECK(post(i) == 0);
	take(1, 0);
	struct ibv_async_event e;
	CHECK(ibv_get_async_event(l.ctx, &e) == 0 && e.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && e.element.srq == srq);
	ibv_ack_async_event(&e);
	take(1, 1);
}

static atomic_int reaped;

/* poster posts receives until each message has one. */
static void *poster(void *unused)
{
	for (int i = 0; i < MESSAGES; i++) {
		while (i - atomic_load(&reaped) >= AHEAD)
			sched_yield();
		CHECK(post(i) == 0);
	}
	return unused;
}

/* sender consumes receives during the resizes. */
static void *sender(void *unused)
{
	for (int i = 0; i < MESSAGES; i++) {
		take(1, i); /* waits with RNR NAKs until there is a receive */
		atomic_fetch_add(&reaped, 1);
	}
	return unused;
}

static void traffic(void)
{
	pthread_t t[2];
	int round = 0;
	CHECK(resize(AHEAD) == 0);
	CHECK(pthread_create(&t[0], NULL, poster, NULL) == 0 && pthread_create(&t[1], NULL, sender, NULL) == 0);
	while (atomic_load(&reaped) < MESSAGES) {
		CHECK(resize(round % 2 ? AHEAD : 2000) == 0);
		round++;
	}
	CHECK(pthread_join(t[0], NULL) == 0 && pthread_join(t[1], NULL) == 0);
	CHECK(round > 10);
}

int main(void)
{
	l = loop_open();
	struct ibv_srq_init_attr ask = { .attr = { .max_wr = 7, .max_sge = 1 } };
	CHECK((srq = ibv_create_srq(l.pd, &ask)) != NULL && (cq = ibv_create_cq(l.ctx, 32, NULL, NULL, 0)) != NULL);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 16, .max_send_sge = 1 } };
	CHECK((qp = ibv_create_qp(l.pd, &init)) != NULL);
	loop_connect(&l, qp);
	sizes();
	limits();
	traffic();
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_srq(srq) == 0);
	return 0;
}
