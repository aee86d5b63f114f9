/* Datagrams with their GRH, replies by both functions that take the address from a completion, and datagrams that the
 * receiver drops. The test captures the priorities of all packets. */
#include "verbs.h"

#include <arpa/inet.h>

enum { KEY = 0x11111111, EXPLICIT = 5, GRH = 40, LENGTH = 10, HOPS = 17, CLASS = 0x14 };

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	char *buf;
	union ibv_gid gid;
	int index;
};

/* find_gid selects the IPv4 address in the VLAN. */
static void find_gid(struct end *e)
{
	struct in_addr a;
	for (e->index = 0; ibv_query_gid(e->ctx, 1, e->index, &e->gid) == 0; e->index++) {
		memcpy(&a, e->gid.raw + 12, sizeof a);
		if (e->gid.raw[11] == 0xff && ntohl(a.s_addr) >> 16 == (198 << 8 | 19))
			return;
	}
	CHECK(!"an address in the VLAN");
}

static struct end end_open(struct ibv_device *d)
{
	struct end e = { .buf = calloc(1, BUF) };
	CHECK((e.ctx = ibv_open_device(d)) && (e.pd = ibv_alloc_pd(e.ctx)) && (e.cq = ibv_create_cq(e.ctx, 16, NULL, NULL, 0)));
	CHECK((e.mr = ibv_reg_mr(e.pd, e.buf, BUF, IBV_ACCESS_LOCAL_WRITE)) != NULL);
	struct ibv_qp_init_attr init = { .send_cq = e.cq, .recv_cq = e.cq, .qp_type = IBV_QPT_UD,
					 .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
	CHECK((e.qp = ibv_create_qp(e.pd, &init)) != NULL);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = KEY };
	CHECK(ibv_modify_qp(e.qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
	a.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(e.qp, &a, IBV_QP_STATE) == 0);
	a.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(e.qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
	find_gid(&e);
	return e;
}

static void expect(struct end *to, uint32_t length)
{
	struct ibv_sge in = { (uintptr_t)to->buf, length, to->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = length, .sg_list = &in, .num_sge = 1 }, *bad;
	CHECK(ibv_post_recv(to->qp, &wr, &bad) == 0);
}

/* send_to sends a datagram and returns its status. */
static enum ibv_wc_status send_to(struct end *from, struct end *to, struct ibv_ah *ah, uint32_t key, uint32_t length)
{
	struct ibv_sge out = { (uintptr_t)from->buf + 16384, length, from->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
				  .wr.ud = { .ah = ah, .remote_qpn = to->qp->qp_num, .remote_qkey = key } }, *bad;
	CHECK(ah && ibv_post_send(from->qp, &wr, &bad) == 0);
	return reap(from->cq).status;
}

/* move moves a datagram and returns the completion at the receiver. */
static struct ibv_wc move(struct end *from, struct end *to, struct ibv_ah *ah)
{
	expect(to, 1024);
	CHECK(send_to(from, to, ah, KEY, LENGTH) == IBV_WC_SUCCESS);
	struct ibv_wc wc = reap(to->cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.src_qp == from->qp->qp_num);
	CHECK(wc.byte_len == GRH + LENGTH && wc.wc_flags & IBV_WC_GRH);
	return wc;
}

/* header checks the GRH in a received datagram: the IPv4 header in its last 20 bytes. */
static void header(struct end *from, struct end *to)
{
	const uint8_t *ip = (const uint8_t *)to->buf + GRH - 20;
	CHECK(ip[0] >> 4 == 4 && ip[1] >> 2 == CLASS >> 2 && ip[8] <= HOPS && ip[8] >= HOPS - 1);
	CHECK(memcmp(ip + 12, from->gid.raw + 12, 4) == 0 && memcmp(ip + 16, to->gid.raw + 12, 4) == 0);
	CHECK(memcmp(to->buf + GRH, from->buf + 16384, LENGTH) == 0);
}

/* drops sends datagrams that the receiver drops: a wrong Q_Key, and one that exceeds the receive. The next one fits. */
static void drops(struct end *from, struct end *to, struct ibv_ah *ah)
{
	struct ibv_port_attr port;
	struct ibv_wc wc;
	expect(to, GRH + LENGTH);
	CHECK(send_to(from, to, ah, KEY + 1, LENGTH) == IBV_WC_SUCCESS);
	CHECK(send_to(from, to, ah, KEY, LENGTH + 1) == IBV_WC_SUCCESS);
	CHECK(send_to(from, to, ah, KEY, LENGTH) == IBV_WC_SUCCESS);
	wc = reap(to->cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == GRH + LENGTH && ibv_poll_cq(to->cq, 1, &wc) == 0);
	CHECK(ibv_query_port(to->ctx, 1, &port) == 0 && port.qkey_viol_cntr == 1 && port.bad_pkey_cntr == 0);
	CHECK(send_to(from, to, ah, KEY, 4097) == IBV_WC_LOC_LEN_ERR); /* more than the MTU */
}

int main(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	CHECK(list && n == 2);
	struct end a = end_open(list[0]), b = end_open(list[1]);
	for (int sl = 0; sl <= EXPLICIT; sl += EXPLICIT) {
		struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .sl = sl,
					    .grh = { .dgid = b.gid, .sgid_index = a.index, .hop_limit = HOPS, .traffic_class = CLASS } };
		struct ibv_ah *ah = ibv_create_ah(a.pd, &attr);
		struct ibv_wc wc = move(&a, &b, ah);
		header(&a, &b);
		CHECK(wc.sl == (8 | 2)); /* IPv4, as UCX expects */

		struct ibv_ah_attr back;
		memset(&back, 0xff, sizeof back);
		CHECK(ibv_init_ah_from_wc(b.ctx, 1, &wc, (struct ibv_grh *)b.buf, &back) == 0);
		CHECK(wc.sl == (8 | 2) && back.sl == 0 && back.is_global && memcmp(&back.grh.dgid, &a.gid, sizeof a.gid) == 0);
		move(&b, &a, ibv_create_ah(b.pd, &back));
		move(&b, &a, ibv_create_ah_from_wc(b.pd, &wc, (struct ibv_grh *)b.buf, 1));
		back.sl = EXPLICIT;
		move(&b, &a, ibv_create_ah(b.pd, &back));

		/* Both functions report the errors of libibverbs: no such GID. */
		struct ibv_grh none = { .version_tclass_flow = htonl(6u << 28), .next_hdr = 0x1b };
		errno = 0;
		CHECK(ibv_init_ah_from_wc(b.ctx, 1, &wc, &none, &back) != 0);
		CHECK(ibv_create_ah_from_wc(b.pd, &wc, &none, 1) == NULL);
		if (sl == EXPLICIT)
			drops(&a, &b, ah);
	}
	return 0;
}
