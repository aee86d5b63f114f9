/* Replies to datagrams, by both functions that take the address from a completion. The test captures the priorities of
 * all packets. */
#include "verbs.h"

#include <arpa/inet.h>

enum { KEY = 0x11111111, EXPLICIT = 5 };

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

/* move sends a datagram and returns the completion at the receiver. */
static struct ibv_wc move(struct end *from, struct end *to, struct ibv_ah *ah)
{
	struct ibv_sge in = { (uintptr_t)to->buf, 1024, to->mr->lkey }, out = { (uintptr_t)from->buf, 10, from->mr->lkey };
	struct ibv_recv_wr rr = { .sg_list = &in, .num_sge = 1 }, *bad_rr;
	CHECK(ibv_post_recv(to->qp, &rr, &bad_rr) == 0);
	struct ibv_send_wr wr = { .sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
				  .wr.ud = { .ah = ah, .remote_qpn = to->qp->qp_num, .remote_qkey = KEY } }, *bad;
	CHECK(ah && ibv_post_send(from->qp, &wr, &bad) == 0 && reap(from->cq).status == IBV_WC_SUCCESS);
	struct ibv_wc wc = reap(to->cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.src_qp == from->qp->qp_num);
	return wc;
}

int main(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	CHECK(list && n == 2);
	struct end a = end_open(list[0]), b = end_open(list[1]);
	for (int sl = 0; sl <= EXPLICIT; sl += EXPLICIT) {
		struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .sl = sl,
					    .grh = { .dgid = b.gid, .sgid_index = a.index, .hop_limit = 64 } };
		struct ibv_wc wc = move(&a, &b, ibv_create_ah(a.pd, &attr));
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
	}
	return 0;
}
