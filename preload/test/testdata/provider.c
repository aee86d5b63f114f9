/* The preload library corrects errors of rdma-core's rxe provider (preload/provider.c). */
#include "verbs.h"

enum { SEND = 4096, PIECES = 3 };

static struct loop l;
static struct ibv_cq_ex *cq;
static struct ibv_qp *qp;
static struct ibv_qp_ex *qpx;

/* poll_all polls as ibv_create_cq_ex(3) describes, with ibv_end_poll() also after ENOENT, until it has
 * seen the given number of completions. */
static void poll_all(int want)
{
	struct ibv_poll_cq_attr attr = { 0 };
	while (want > 0) {
		int err = ibv_start_poll(cq, &attr);
		if (err == ENOENT)
			continue;
		for (; err == 0; err = ibv_next_poll(cq)) {
			CHECK(cq->status == IBV_WC_SUCCESS);
			want--;
		}
		CHECK(err == ENOENT);
		ibv_end_poll(cq);
	}
	CHECK(want == 0);
	CHECK(ibv_start_poll(cq, &attr) == ENOENT); /* and the ring is empty */
}

/* arrived checks the received data. */
static void arrived(size_t n)
{
	struct ibv_poll_cq_attr attr = { 0 };
	for (int i = 0; i < 2; i++) {
		while (ibv_start_poll(cq, &attr) == ENOENT)
			;
		CHECK(cq->status == IBV_WC_SUCCESS);
		CHECK(ibv_wc_read_opcode(cq) != IBV_WC_RECV || ibv_wc_read_byte_len(cq) == n);
		ibv_end_poll(cq);
	}
	CHECK(!memcmp(l.buf, l.buf + SEND, n));
	memset(l.buf, 0, n);
}

static void polling(void)
{
	for (int round = 1; round < 40; round++) { /* around the ring */
		int n = 1 + round % 8;
		for (int i = 0; i < n; i++)
			post_recv(&l, qp, i);
		for (int i = 0; i < n; i++)
			CHECK(post_send(&l, qp, i) == 0);
		poll_all(2 * n);
	}
}

/* past_end calls ibv_next_poll() again after ENOENT, without ibv_end_poll(): no completion is lost. */
static void past_end(void)
{
	struct ibv_poll_cq_attr attr = { 0 };
	for (int round = 0; round < 40; round++) {
		post_recv(&l, qp, round);
		CHECK(post_send(&l, qp, round) == 0);
		int err;
		while ((err = ibv_start_poll(cq, &attr)) == ENOENT)
			;
		for (int seen = 1; seen < 4; seen++) { /* two completions of each message */
			if (seen == 2) {
				CHECK(ibv_next_poll(cq) == ENOENT && ibv_next_poll(cq) == ENOENT);
				post_recv(&l, qp, round);
				CHECK(post_send(&l, qp, round) == 0);
			}
			while ((err = ibv_next_poll(cq)) == ENOENT)
				;
			CHECK(err == 0 && cq->status == IBV_WC_SUCCESS);
		}
		CHECK(ibv_next_poll(cq) == ENOENT);
		ibv_end_poll(cq);
		CHECK(ibv_start_poll(cq, &attr) == ENOENT); /* and the ring is empty */
	}
}

static void lists(void)
{
	static const size_t sizes[][PIECES] = { { 8, 100, 30 }, { 100, 8, 1 }, { 64, 64, 64 }, { 1, 0, 2 } };
	/* A request has SGEs, flagged inline data, or inline data that only the setter announces. */
	for (int i = 0; i < 12; i++) {
		struct ibv_sge sge[PIECES];
		struct ibv_data_buf data[PIECES];
		char *at = l.buf + SEND;
		for (int k = 0; k < PIECES; k++) {
			sge[k] = (struct ibv_sge){ (uintptr_t)at, sizes[i / 3][k], l.mr->lkey };
			data[k] = (struct ibv_data_buf){ at, sizes[i / 3][k] };
			at += sizes[i / 3][k];
		}
		post_recv(&l, qp, i);
		ibv_wr_start(qpx);
		qpx->wr_id = i;
		qpx->wr_flags = IBV_SEND_SIGNALED | (i % 3 == 1 ? IBV_SEND_INLINE : 0);
		ibv_wr_send(qpx);
		if (i % 3 == 1 || i == 2 || i == 5)
			ibv_wr_set_inline_data_list(qpx, PIECES, data);
		else if (i % 3 == 2)
			ibv_wr_set_inline_data(qpx, l.buf + SEND, at - (l.buf + SEND));
		else
			ibv_wr_set_sge_list(qpx, PIECES, sge);
		CHECK(ibv_wr_complete(qpx) == 0);
		arrived(at - (l.buf + SEND));
	}
	/* The provider refuses data that is too long. */
	struct ibv_data_buf data[2] = { { l.buf, 3000 }, { l.buf, 3000 } };
	for (int n = 1; n <= 2; n++) {
		ibv_wr_start(qpx);
		qpx->wr_flags = IBV_SEND_INLINE;
		ibv_wr_send(qpx);
		ibv_wr_set_inline_data_list(qpx, n, data);
		CHECK(ibv_wr_complete(qpx) == ENOSPC);
	}
}

int main(void)
{
	l = loop_open();
	for (int i = 0; i < SEND; i++)
		l.buf[SEND + i] = 1 + i % 255;
	struct ibv_cq_init_attr_ex ask = { .cqe = 31, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN };
	if ((cq = ibv_create_cq_ex(l.ctx, &ask)) == NULL && errno == EOPNOTSUPP)
		return MISSING;
	CHECK(cq != NULL);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq), .qp_type = IBV_QPT_RC, .pd = l.pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_SEND,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = PIECES, .max_recv_sge = 1, .max_inline_data = 256 },
	};
	CHECK((qp = ibv_create_qp_ex(l.ctx, &init)) != NULL && (qpx = ibv_qp_to_qp_ex(qp)) != NULL);
	loop_connect(&l, qp);
	polling();
	past_end();
	lists();
	errno = 0; /* as ib_umem_get() of Linux */
	CHECK(ibv_reg_mr(l.pd, l.buf, 0, IBV_ACCESS_LOCAL_WRITE) == NULL && errno == EINVAL);
	return 0;
}
