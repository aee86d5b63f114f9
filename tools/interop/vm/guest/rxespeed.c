/*
 * rxespeed measures two devices that can reach each other, from one process:
 *
 *	rxespeed DEVICE DEVICE SECONDS
 *
 * It prints a line for each measurement: its name and the value. perftest cannot be
 * used for that: it counts cycles, and those of an emulated processor mean nothing.
 */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEPTH = 64, WINDOW = 16, SLOTS = 16, SLOT = 65536 };

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buf; /* SLOTS that are sent, and SLOTS for what arrives */
	union ibv_gid gid;
	int sgid;
};

static struct side sides[2];

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

static void open_queues(struct side *s)
{
	s->cq = ibv_create_cq(s->ctx, 4 * DEPTH, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {.send_cq = s->cq, .recv_cq = s->cq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1}};
	s->qp = s->cq ? ibv_create_qp(s->pd, &init) : NULL;
	if (!s->qp)
		die("create_qp");
}

static void join(struct side *s, const struct side *peer)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	if (ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("INIT");
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 1,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .sgid_index = s->sgid, .hop_limit = 64}}};
	if (ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("RTR");
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 17, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	if (ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
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

static void post_send(struct side *s, const struct side *peer, int op, uint32_t size, uint64_t n)
{
	struct ibv_sge sge = {(uintptr_t)outgoing(s, n), size, s->mr->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {(uintptr_t)incoming(peer, n), peer->mr->rkey}};
	if (ibv_post_send(s->qp, &wr, &bad))
		die("post_send");
}

static void post_recv(struct side *s, uint64_t n)
{
	struct ibv_sge sge = {(uintptr_t)incoming(s, n), SLOT, s->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.sg_list = &sge, .num_sge = 1};
	if (ibv_post_recv(s->qp, &wr, &bad))
		die("post_recv");
}

/* count is what a side has completed. */
struct count {
	uint64_t sent, received;
};

static void reap(struct side *s, struct count *c)
{
	struct ibv_wc wc[16];
	int n = ibv_poll_cq(s->cq, 16, wc);
	for (int i = 0; i < n; i++) {
		if (wc[i].status) {
			fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc[i].status));
			exit(1);
		}
		if (wc[i].opcode & IBV_WC_RECV)
			c->received++;
		else
			c->sent++;
	}
}

/* rate returns the messages a second from side 0 to side 1. */
static double rate(int op, uint32_t size, double seconds)
{
	struct count c[2] = {0};
	uint64_t posted = 0, ready = 0;
	double begin = now(), elapsed = 0;
	while (elapsed < seconds || c[0].sent < posted) {
		for (; op == IBV_WR_SEND && ready - c[1].received < DEPTH; ready++)
			post_recv(&sides[1], ready);
		for (; posted - c[0].sent < WINDOW && elapsed < seconds; posted++)
			post_send(&sides[0], &sides[1], op, size, posted);
		reap(&sides[0], &c[0]);
		reap(&sides[1], &c[1]);
		elapsed = now() - begin;
	}
	return c[0].sent / elapsed;
}

/* await waits for the n-th message at a side: a byte of memory that changes, or a
 * completion. */
static void await(struct side *s, struct count *c, int op, uint32_t size, uint64_t n)
{
	volatile uint8_t *last = incoming(s, n) + size - 1;
	while (op == IBV_WR_SEND ? c->received <= n : *last != (uint8_t)(n / SLOTS + 1))
		if (op == IBV_WR_SEND)
			reap(s, c);
}

/* latency returns half a round trip in us. */
static double latency(int op, uint32_t size, double seconds)
{
	struct count c[2] = {0};
	uint64_t n = 0;
	double begin = now(), elapsed = 0;
	for (int i = 0; i < 2; i++)
		memset(sides[i].buf, 0, 2 * SLOTS * SLOT);
	for (; elapsed < seconds; n++) {
		for (int i = 0; i < 2; i++) {
			if (op == IBV_WR_SEND)
				post_recv(&sides[1 - i], n);
			outgoing(&sides[i], n)[size - 1] = n / SLOTS + 1;
			post_send(&sides[i], &sides[1 - i], op, size, n);
			await(&sides[1 - i], &c[1 - i], op, size, n);
			while (n - c[i].sent > DEPTH / 2)
				reap(&sides[i], &c[i]);
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
		open_queues(&sides[i]);
	for (int i = 0; i < 2; i++)
		join(&sides[i], &sides[1 - i]);
	double v = m->factor * m->run(m->op, m->size, seconds);
	for (int i = 0; i < 2; i++)
		if (ibv_destroy_qp(sides[i].qp) || ibv_destroy_cq(sides[i].cq))
			die("destroy");
	return v;
}

/* Each is run twice: what the devices learn from first messages, about each other and
 * about the limits of the kernel, is not measured. */
int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	for (int i = 0; i < 2; i++)
		open_side(&sides[i], argv[1 + i]);
	size_t n = sizeof measurements / sizeof *measurements;
	for (size_t i = 0; i < n; i++)
		with_queues(&measurements[i], 0.01);
	for (size_t i = 0; i < n; i++)
		printf("%s: %.2f\n", measurements[i].name, with_queues(&measurements[i], atof(argv[3])));
	return 0;
}
