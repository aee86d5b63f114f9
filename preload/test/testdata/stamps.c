/* The time stamp of a completion is the time of its frame, however late a program polls. */
#include "verbs.h"

#include <time.h>
#include <unistd.h>

enum { SLEEP_US = 50000, LATE_NS = 40000000, ROUNDS = 3, MOST = 30 };

static uint64_t now(clockid_t id)
{
	struct timespec t;
	CHECK(clock_gettime(id, &t) == 0);
	return t.tv_sec * UINT64_C(1000000000) + t.tv_nsec;
}

static uint64_t device_clock(struct ibv_context *ctx)
{
	struct ibv_values_ex v = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	CHECK(ibv_query_rt_values_ex(ctx, &v) == 0 && v.comp_mask == IBV_VALUES_MASK_RAW_CLOCK && v.raw_clock.tv_sec == 0);
	return v.raw_clock.tv_nsec;
}

/* exchange sends a message and polls late, after sleep_us. The first of the two completions is that of the receive.
 * It returns the age of the later one at the poll. */
static uint64_t exchange(struct loop *l, struct ibv_qp *qp, struct ibv_cq_ex *cq, uint64_t *last, useconds_t sleep_us)
{
	struct ibv_poll_cq_attr attr = { 0 };
	uint64_t posted = device_clock(l->ctx), wall = now(CLOCK_REALTIME), stamp = 0;
	post_recv(l, qp, 1);
	CHECK(post_send(l, qp, 2) == 0);
	usleep(sleep_us);
	uint64_t polled = device_clock(l->ctx);
	while (ibv_start_poll(cq, &attr) == ENOENT)
		;
	for (int i = 0; i < 2; i++) {
		while (i > 0 && ibv_next_poll(cq) == ENOENT) {
			ibv_end_poll(cq);
			while (ibv_start_poll(cq, &attr) == ENOENT)
				;
			break;
		}
		CHECK(cq->status == IBV_WC_SUCCESS);
		stamp = ibv_wc_read_completion_ts(cq);
		uint64_t real = ibv_wc_read_completion_wallclock_ns(cq);
		CHECK(stamp >= posted && stamp > *last && stamp < device_clock(l->ctx));
		CHECK(real + 1000000 >= wall && real <= now(CLOCK_REALTIME) + 1000000);
		*last = stamp - 1; /* one packet may complete both */
	}
	ibv_end_poll(cq);
	*last = stamp;
	return polled > stamp ? polled - stamp : 0;
}

/* orders checks that the stamps of many completions ascend, in both clocks, also in a queue that was
 * resized while it held completions. It returns the difference of the first and the last stamp. */
static uint64_t orders(struct loop *l, struct ibv_qp *qp, struct ibv_cq_ex *cq, int size)
{
	struct ibv_poll_cq_attr attr = { 0 };
	uint64_t first = 0, stamp = 0, real = 0;
	for (int i = 0; i < 8; i++)
		post_recv(l, qp, 1);
	for (int i = 0; i < 8; i++) {
		CHECK(post_send(l, qp, 2) == 0);
		if (i % 4 == 3)
			usleep(SLEEP_US);
	}
	CHECK(ibv_resize_cq(ibv_cq_ex_to_cq(cq), size) == 0);
	for (int i = 0; i < 16; i++) {
		while (ibv_start_poll(cq, &attr) == ENOENT)
			;
		uint64_t s = ibv_wc_read_completion_ts(cq), r = ibv_wc_read_completion_wallclock_ns(cq);
		CHECK(s >= stamp && s > 0 && r >= real);
		CHECK(r - real - (s - stamp) == 0 || i == 0);
		stamp = s;
		real = r;
		if (i == 0)
			first = s;
		ibv_end_poll(cq);
	}
	return stamp - first;
}

int main(void)
{
	struct loop l = loop_open();
	struct ibv_device_attr_ex all;
	struct ibv_cq_init_attr_ex init = { .cqe = 32, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
								    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(l.ctx, &init);
	if (!cq && errno == EOPNOTSUPP)
		return MISSING;
	CHECK(cq);
	CHECK(ibv_query_device_ex(l.ctx, NULL, &all) == 0);
	CHECK(all.completion_timestamp_mask == UINT64_MAX && all.hca_core_clock == 1000000);
	CHECK(init.wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP); /* unchanged by the call */

	struct ibv_qp *qp = loop_qp(&l, ibv_cq_ex_to_cq(cq), ibv_cq_ex_to_cq(cq));
	uint64_t last = 0;
	int late = 0;
	for (int i = 0; late < ROUNDS; i++) { /* a message may take longer than usual: sleep longer each time */
		CHECK(i < MOST);
		late += exchange(&l, qp, cq, &last, (i + 1) * SLEEP_US) > LATE_NS;
	}
	for (int i = 0; orders(&l, qp, cq, 64 + i) == 0; i++)
		CHECK(i < MOST);

	struct ibv_values_ex none = { .comp_mask = 0, .raw_clock = { 1, 2 } };
	CHECK(ibv_query_rt_values_ex(l.ctx, &none) == 0 && none.comp_mask == 0);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
	return 0;
}
