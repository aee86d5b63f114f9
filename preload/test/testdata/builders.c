/* Every builder of the extended post API with every setter, with and without IBV_SEND_INLINE in wr_flags. ibv_wr_post(3) has
 * no such flag: the setter selects inline data. */
#include "verbs.h"

#include <arpa/inet.h>

enum { SRC = 4096, DST = 8192, LEN = 8, KEY = 0x1234, IMM = 0x01020304 };
enum builder { WRITE, WRITE_IMM, SEND, SEND_IMM, SEND_INV, READ, CMP_SWP, FETCH_ADD, BUILDERS };
enum setter { SGE, SGE_LIST, INLINE, INLINE_LIST, NONE, SETTERS };

static struct loop l;
static struct ibv_cq *cq;
static struct ibv_mr *mr;

static struct ibv_qp_ex *create(enum ibv_qp_type type, uint64_t ops)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = type, .pd = l.pd, .send_ops_flags = ops,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64 },
	};
	struct ibv_qp *qp = ibv_create_qp_ex(l.ctx, &init);
	CHECK(qp != NULL);
	return ibv_qp_to_qp_ex(qp);
}

static struct ibv_qp_ex *connected(uint64_t ops)
{
	struct ibv_qp_ex *x = create(IBV_QPT_RC, ops);
	loop_connect(&l, &x->qp_base);
	struct ibv_qp_attr a = { .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };
	CHECK(ibv_modify_qp(&x->qp_base, &a, IBV_QP_ACCESS_FLAGS) == 0);
	return x;
}

static struct ibv_mw *bound(struct ibv_qp_ex *x)
{
	struct ibv_mw *mw = ibv_alloc_mw(l.pd, IBV_MW_TYPE_2);
	CHECK(mw != NULL);
	struct ibv_mw_bind_info info = { mr, (uintptr_t)l.buf + DST, LEN, IBV_ACCESS_REMOTE_WRITE };
	uint32_t key = ibv_inc_rkey(mw->rkey);
	ibv_wr_start(x);
	x->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	ibv_wr_bind_mw(x, mw, key, &info);
	CHECK(ibv_wr_complete(x) == 0);
	struct ibv_wc wc = reap(cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW);
	mw->rkey = key;
	return mw;
}

static void build(struct ibv_qp_ex *x, enum builder b, uint64_t remote, uint32_t key)
{
	switch (b) {
	case WRITE: ibv_wr_rdma_write(x, mr->rkey, remote); break;
	case WRITE_IMM: ibv_wr_rdma_write_imm(x, mr->rkey, remote, htonl(IMM)); break;
	case SEND: ibv_wr_send(x); break;
	case SEND_IMM: ibv_wr_send_imm(x, htonl(IMM)); break;
	case SEND_INV: ibv_wr_send_inv(x, key); break;
	case READ: ibv_wr_rdma_read(x, mr->rkey, remote); break;
	case CMP_SWP: ibv_wr_atomic_cmp_swp(x, mr->rkey, remote, 0, 99); break;
	default: ibv_wr_atomic_fetch_add(x, mr->rkey, remote, 99);
	}
}

static void set(struct ibv_qp_ex *x, enum setter s, char *at)
{
	struct ibv_sge sge[2] = { { (uintptr_t)at, 3, mr->lkey }, { (uintptr_t)at + 3, LEN - 3, mr->lkey } };
	struct ibv_data_buf data[2] = { { at, 5 }, { at + 5, LEN - 5 } };
	switch (s) {
	case SGE: ibv_wr_set_sge(x, mr->lkey, (uintptr_t)at, LEN); break;
	case SGE_LIST: ibv_wr_set_sge_list(x, 2, sge); break;
	case INLINE: ibv_wr_set_inline_data(x, at, LEN); break;
	case INLINE_LIST: ibv_wr_set_inline_data_list(x, 2, data); break;
	default: break;
	}
}

/* expected returns the status: inline data is for SEND and WRITE, and an atomic operation needs 8 bytes. */
static enum ibv_wc_status expected(enum builder b, enum setter s)
{
	if (b >= READ && (s == INLINE || s == INLINE_LIST))
		return IBV_WC_LOC_QP_OP_ERR;
	return b > READ && s == NONE ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

static void received(const struct ibv_wc *wc, enum builder b, uint32_t length, uint32_t key)
{
	CHECK(wc->status == IBV_WC_SUCCESS && wc->byte_len == length && wc->wr_id == 5);
	CHECK(!(wc->wc_flags & IBV_WC_WITH_IMM) == (b == SEND || b == SEND_INV));
	CHECK(!(wc->wc_flags & IBV_WC_WITH_IMM) || ntohl(wc->imm_data) == IMM);
	CHECK(!(wc->wc_flags & IBV_WC_WITH_INV) == (b != SEND_INV));
	CHECK(b != SEND_INV || wc->invalidated_rkey == key);
}

static void try(struct ibv_qp_ex *x, enum builder b, enum setter s, uint32_t flags)
{
	struct ibv_mw *mw = b == SEND_INV ? bound(x) : NULL;
	struct ibv_sge sge = { (uintptr_t)l.buf + DST, LEN, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 5, .sg_list = &sge, .num_sge = 1 }, *bad;
	int recvs = b >= WRITE_IMM && b <= SEND_INV;
	memset(l.buf, 0, 3 * 4096);
	for (int i = 0; i < LEN; i++)
		l.buf[SRC + i] = b < READ ? 1 + i : 0;
	memset(l.buf + DST, b < READ ? 0 : 7, LEN);
	char *remote = l.buf + DST, *local = l.buf + SRC;
	if (recvs)
		CHECK(ibv_post_recv(&x->qp_base, &wr, &bad) == 0);
	ibv_wr_start(x);
	x->wr_id = 9;
	x->wr_flags = IBV_SEND_SIGNALED | flags;
	build(x, b, (uintptr_t)remote, mw ? mw->rkey : 0);
	set(x, s, local);
	CHECK(x->wr_flags == (IBV_SEND_SIGNALED | flags));
	CHECK(ibv_wr_complete(x) == 0);
	for (int i = 0; i <= recvs; i++) {
		struct ibv_wc wc = reap(cq);
		if (wc.opcode & IBV_WC_RECV) {
			received(&wc, b, s == NONE ? 0 : LEN, mw ? mw->rkey : 0);
			continue;
		}
		CHECK(wc.status == expected(b, s) && wc.wr_id == 9);
		if (wc.status != IBV_WC_SUCCESS)
			return;
	}
	if (s == NONE)
		CHECK(b >= READ || remote[0] == 0);
	else if (b <= READ)
		CHECK(!memcmp(remote, local, LEN));
	else
		CHECK(local[0] == 7 && remote[0] == (b == CMP_SWP ? 7 : 7 + 99));
	if (mw)
		CHECK(ibv_dealloc_mw(mw) == 0);
}

/* datagrams also sends without ibv_wr_set_ud_addr(), which is mandatory. */
static void datagrams(enum setter s, uint32_t flags, int addressed)
{
	struct ibv_qp_ex *x = create(IBV_QPT_UD, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = KEY };
	CHECK(ibv_modify_qp(&x->qp_base, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
	a.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(&x->qp_base, &a, IBV_QP_STATE) == 0);
	a.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(&x->qp_base, &a, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
	struct ibv_ah_attr at = { .is_global = 1, .port_num = 1, .grh = { .dgid = l.gid, .sgid_index = GID_INDEX, .hop_limit = 1 } };
	struct ibv_ah *ah = ibv_create_ah(l.pd, &at);
	CHECK(ah != NULL);
	memset(l.buf, 0, SRC);
	memset(l.buf + SRC, 6, LEN);
	post_recv(&l, &x->qp_base, 5);
	ibv_wr_start(x);
	x->wr_flags = IBV_SEND_SIGNALED | flags;
	ibv_wr_send_imm(x, htonl(IMM));
	if (addressed)
		ibv_wr_set_ud_addr(x, ah, x->qp_base.qp_num, KEY);
	set(x, s, l.buf + SRC);
	CHECK(ibv_wr_complete(x) == 0);
	for (int i = 0; i <= addressed; i++) {
		struct ibv_wc wc = reap(cq);
		CHECK(wc.status == (addressed ? IBV_WC_SUCCESS : IBV_WC_LOC_QP_OP_ERR));
		if (wc.opcode == IBV_WC_RECV)
			CHECK(wc.byte_len == 40 + LEN && !memcmp(l.buf + 40, l.buf + SRC, LEN) && ntohl(wc.imm_data) == IMM);
	}
	CHECK(ibv_destroy_qp(&x->qp_base) == 0 && ibv_destroy_ah(ah) == 0);
}

#ifdef FLUSH
static void flush(uint64_t at, size_t length, enum ibv_wc_status want)
{
	struct ibv_mr *own = ibv_reg_mr(l.pd, l.buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_FLUSH_GLOBAL);
	struct ibv_qp_ex *x = connected(IBV_QP_EX_WITH_FLUSH);
	struct ibv_qp_attr a = { .qp_access_flags = IBV_ACCESS_FLUSH_GLOBAL };
	CHECK(own && ibv_modify_qp(&x->qp_base, &a, IBV_QP_ACCESS_FLAGS) == 0);
	ibv_wr_start(x);
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_flush(x, own->rkey, (uintptr_t)l.buf + at, length, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
	CHECK(ibv_wr_complete(x) == 0);
	CHECK(reap(cq).status == want);
	CHECK(ibv_destroy_qp(&x->qp_base) == 0 && ibv_dereg_mr(own) == 0);
}
#endif

int main(void)
{
	l = loop_open();
	CHECK((cq = ibv_create_cq(l.ctx, 16, NULL, NULL, 0)) != NULL);
	CHECK((mr = ibv_reg_mr(l.pd, l.buf, BUF, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
							 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)) != NULL);
	uint64_t all = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
		       IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_READ |
		       IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_BIND_MW;
	for (int i = 0; i < BUILDERS * SETTERS * 2; i++) {
		struct ibv_qp_ex *x = connected(all);
		try(x, i / 2 / SETTERS, i / 2 % SETTERS, i % 2 ? IBV_SEND_INLINE : 0);
		CHECK(ibv_destroy_qp(&x->qp_base) == 0);
	}
	for (int i = 0; i < NONE * 2; i++)
		datagrams(i / 2, i % 2 ? IBV_SEND_INLINE : 0, 1);
	datagrams(SGE, 0, 0);
#ifdef FLUSH
	flush(0, 4096, IBV_WC_SUCCESS);
	flush(4092, 4, IBV_WC_SUCCESS);
	flush(4092, 8, IBV_WC_REM_ACCESS_ERR);
#endif
	return 0;
}
