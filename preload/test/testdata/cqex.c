/* ibv_start_poll() shares the processor like ibv_poll_cq(): it yields after some empty polls. */
#include "verbs.h"

static unsigned yields;

/* Replaces the C library's function, also for the preload library. */
int sched_yield(void)
{
	yields++;
	return 0;
}

int main(void)
{
	struct loop l = loop_open();
	struct ibv_cq_init_attr_ex init = { .cqe = 32, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN };
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_cq_ex *cq[2] = { ibv_create_cq_ex(l.ctx, &init), ibv_create_cq_ex(l.ctx, &init) };
	if (!cq[0] && errno == EOPNOTSUPP)
		return MISSING;
	CHECK(cq[0] && cq[1]);
	for (int i = 0; i < 100; i++)
		CHECK(ibv_start_poll(cq[i % 2], &attr) == ENOENT);
	CHECK(yields > 50 && yields < 100);

	struct ibv_qp *qp = loop_qp(&l, ibv_cq_ex_to_cq(cq[0]), ibv_cq_ex_to_cq(cq[0]));
	for (int i = 0; i < 50; i++) {
		post_recv(&l, qp, 1);
		CHECK(post_send(&l, qp, 2) == 0);
		for (int k = 0; k < 2; k++) {
			while (ibv_start_poll(cq[0], &attr) == ENOENT)
				;
			/* A completion resets the count of empty polls. */
			unsigned before = yields;
			CHECK(cq[0]->status == IBV_WC_SUCCESS);
			ibv_end_poll(cq[0]);
			CHECK(ibv_start_poll(cq[1], &attr) == ENOENT && yields == before);
		}
	}
	CHECK(ibv_destroy_qp(qp) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq[i])) == 0);
	return 0;
}
