/*
 * rxespeed measures two devices that can reach each other, from one process:
 *
 *	rxespeed DEVICE DEVICE SECONDS MTU QPS TIMEOUT
 *
 * It prints a line for each measurement: its name and the value. Rates are those of QPS
 * queue pairs together, latency is that of one. A message that fails, as with its
 * retries used up on a network that loses, ends the measurement: "failed". perftest cannot be
 * used for that: it counts cycles, and those of an emulated processor mean nothing.
 */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEPTH = 64, WINDOW = 16, SLOTS = 16, SLOT = 65536, MAX_QPS = 64 };

/* queue is a queue pair, and how many messages it has posted and completed. */
struct queue {
	struct ibv_qp *qp;
	uint64_t posted, sent, ready, received;
};

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct queue queues[MAX_QPS];
	struct ibv_mr *mr;
	uint8_t *buf; /* SLOTS that are sent, and SLOTS for what arrives */
	union ibv_gid gid;
	int sgid;
};

static struct side sides[2];
static int mtu, qps, timeout; /* the latter as of IBTA vol.1 9.7.6.1.3: 4.096 us times a power of two */

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	for (struct ibv_device **d = list; d && *d; d++)
		if (!strcmp(ibv_get_device_name(*d), name))
			return ibv_open_device(*d);
	return NULL;
}

/* find_gid takes the first address of IPv4. */
static int find_gid(struct side *s)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	for (s->sgid = 0; !ibv_query_gid(s->ctx, 1, s->sgid, &s->gid); s->sgid++)
		if (!memcmp(&s->gid, mapped, sizeof mapped))
			return 0;
	return -1;
}

static void open_side(struct side *s, const char *name)
{
	size_t size = 2 * SLOTS * SLOT;
	s->ctx = open_device(name);
	if (!s->ctx || find_gid(s))
		die(name);
	s->pd = ibv_alloc_pd(s->ctx);
	if (!s->pd || posix_memalign((void **)&s->buf, 4096, size))
		die("memory");
	memset(s->buf, 0, size);
	s->mr = ibv_reg_mr(s->pd, s->buf, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!s->mr)
		die("reg_mr");
}

static void open_queues(struct side *s, int n)
{
	s->cq = ibv_create_cq(s->ctx, 4 * DEPTH * n, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {.send_cq = s->cq, .recv_cq = s->cq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1}};
	for (int i = 0; i < n; i++) {
		s->queues[i] = (struct queue){.qp = s->cq ? ibv_create_qp(s->pd, &init) : NULL};
		if (!s->queues[i].qp)
			die("create_qp");
	}
}

static void close_queues(struct side *s, int n)
{
	for (int i = 0; i < n; i++)
		if (ibv_destroy_qp(s->queues[i].qp))
			die("destroy_qp");
	if (ibv_destroy_cq(s->cq))
		die("destroy_cq");
}

static void join(struct side *s, const struct side *peer, int i)
{
	struct ibv_qp *qp = s->queues[i].qp;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("INIT");
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = mtu == 1024 ? IBV_MTU_1024 : IBV_MTU_4096,
		.dest_qp_num = peer->queues[i].qp->qp_num, .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .sgid_index = s->sgid, .hop_limit = 64}}};
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("RTR");
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = timeout, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				  IBV_QP_MAX_QP_RD_ATOMIC))
		die("RTS");
}

static uint8_t *outgoing(const struct side *s, uint64_t n)
{
	return s->buf + n % SLOTS * SLOT;
}

static uint8_t *incoming(const struct side *s, uint64_t n)
{
	return s->buf + (SLOTS + n % SLOTS) * SLOT;
}

static void post_send(struct side *s, const struct side *peer, int i, int op, uint32_t size)
{
	struct queue *q = &s->queues[i];
	struct ibv_sge sge = {(uintptr_t)outgoing(s, q->posted), size, s->mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {(uintptr_t)incoming(peer, q->posted), peer->mr->rkey}};
	if (ibv_post_send(q->qp, &wr, &bad))
		die("post_send");
	q->posted++;
}

static void post_recv(struct side *s, int i)
{
	struct queue *q = &s->queues[i];
	struct ibv_sge sge = {(uintptr_t)incoming(s, q->ready), SLOT, s->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1};
	if (ibv_post_recv(q->qp, &wr, &bad))
		die("post_recv");
	q->ready++;
}

/* reap takes completions. It returns how many messages have been sent, or -1 if one has
 * failed. */
static int reap(struct side *s)
{
	struct ibv_wc wc[16];
	int sent = 0, n = ibv_poll_cq(s->cq, 16, wc);
	for (int i = 0; i < n; i++) {
		struct queue *q = &s->queues[wc[i].wr_id];
		if (wc[i].status) {
			fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc[i].status));
			return -1;
		}
		if (wc[i].opcode & IBV_WC_RECV) {
			q->received++;
		} else {
			q->sent++;
			sent++;
		}
	}
	return sent;
}

/* fill posts as many messages as may be outstanding. It returns how many. */
static int fill(int op, uint32_t size)
{
	int posted = 0;
	for (int i = 0; i < qps; i++) {
		struct queue *from = &sides[0].queues[i], *to = &sides[1].queues[i];
		while (op == IBV_WR_SEND && to->ready - to->received < DEPTH)
			post_recv(&sides[1], i);
		for (; from->posted - from->sent < WINDOW; posted++)
			post_send(&sides[0], &sides[1], i, op, size);
	}
	return posted;
}

/* rate returns the messages a second from side 0 to side 1 over all queue pairs, or -1. */
static double rate(int op, uint32_t size, double seconds)
{
	uint64_t posted = 0, sent = 0;
	double begin = now(), elapsed = 0;
	while (elapsed < seconds || sent < posted) {
		if (elapsed < seconds)
			posted += fill(op, size);
		int n = reap(&sides[0]);
		if (n < 0 || reap(&sides[1]) < 0)
			return -1;
		sent += n;
		elapsed = now() - begin;
	}
	return sent / elapsed;
}

/* await waits for the n-th message at a side: a byte of memory that changes, or a
 * completion. */
static int await(struct side *s, int op, uint32_t size, uint64_t n)
{
	volatile uint8_t *last = incoming(s, n) + size - 1;
	while (op == IBV_WR_SEND ? s->queues[0].received <= n : *last != (uint8_t)(n / SLOTS + 1))
		if (op == IBV_WR_SEND && reap(s) < 0)
			return -1;
	return 0;
}

/* latency returns half a round trip in us, or -1. */
static double latency(int op, uint32_t size, double seconds)
{
	uint64_t n = 0;
	double begin = now(), elapsed = 0;
	for (int i = 0; i < 2; i++)
		memset(sides[i].buf, 0, 2 * SLOTS * SLOT);
	for (; elapsed < seconds; n++) {
		for (int i = 0; i < 2; i++) {
			struct side *s = &sides[i], *peer = &sides[1 - i];
			if (op == IBV_WR_SEND)
				post_recv(peer, 0);
			outgoing(s, n)[size - 1] = n / SLOTS + 1;
			post_send(s, peer, 0, op, size);
			if (await(peer, op, size, n))
				return -1;
			while (n - s->queues[0].sent > DEPTH / 2)
				if (reap(s) < 0)
					return -1;
		}
		elapsed = now() - begin;
	}
	return elapsed / n / 2 * 1e6;
}

static const struct measurement {
	const char *name;
	double (*run)(int op, uint32_t size, double seconds);
	int op;
	uint32_t size;
	double factor; /* makes the unit */
} measurements[] = {
	{"WRITE 64 KiB, MB/s", rate, IBV_WR_RDMA_WRITE, 65536, 65536e-6},
	{"WRITE 4 KiB, MB/s", rate, IBV_WR_RDMA_WRITE, 4096, 4096e-6},
	{"SEND 64 KiB, MB/s", rate, IBV_WR_SEND, 65536, 65536e-6},
	{"WRITE 64 B, 1000/s", rate, IBV_WR_RDMA_WRITE, 64, 1e-3},
	{"SEND 64 B, 1000/s", rate, IBV_WR_SEND, 64, 1e-3},
	{"WRITE 8 B latency, us", latency, IBV_WR_RDMA_WRITE, 8, 1},
	{"SEND 8 B latency, us", latency, IBV_WR_SEND, 8, 1},
};

/* with_queues makes a measurement on queue pairs of its own. */
static double with_queues(const struct measurement *m, double seconds)
{
	for (int i = 0; i < 2; i++)
		open_queues(&sides[i], qps);
	for (int q = 0; q < qps; q++)
		for (int i = 0; i < 2; i++)
			join(&sides[i], &sides[1 - i], q);
	double v = m->run(m->op, m->size, seconds);
	for (int i = 0; i < 2; i++)
		close_queues(&sides[i], qps);
	return v < 0 ? v : v * m->factor;
}

/* Each is run twice: what the devices learn from first messages, about each other and
 * about the limits of the kernel, is not measured. */
int main(int argc, char **argv)
{
	if (argc != 7)
		return 2;
	mtu = atoi(argv[4]);
	qps = atoi(argv[5]);
	timeout = atoi(argv[6]);
	if (qps < 1 || qps > MAX_QPS)
		return 2;
	for (int i = 0; i < 2; i++)
		open_side(&sides[i], argv[1 + i]);
	size_t n = sizeof measurements / sizeof *measurements;
	for (size_t i = 0; i < n; i++)
		with_queues(&measurements[i], 0.01);
	for (size_t i = 0; i < n; i++) {
		double v = with_queues(&measurements[i], atof(argv[3]));
		if (v < 0)
			printf("%s: failed\n", measurements[i].name);
		else
			printf("%s: %.2f\n", measurements[i].name, v);
		fflush(stdout);
	}
	return 0;
}
