/* A context with a queue pair that is connected to itself. */
#include "check.h"

#include <infiniband/verbs.h>

struct loop {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	char *buf;
	union ibv_gid gid;
};

enum { GID_INDEX = 1, BUF = 1 << 16 };

static inline struct loop loop_open(void)
{
	struct loop l;
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	CHECK(list && n >= 1);
	CHECK((l.ctx = ibv_open_device(list[0])) != NULL);
	ibv_free_device_list(list);
	CHECK((l.pd = ibv_alloc_pd(l.ctx)) != NULL);
	CHECK((l.buf = calloc(1, BUF)) != NULL);
	CHECK((l.mr = ibv_reg_mr(l.pd, l.buf, BUF, IBV_ACCESS_LOCAL_WRITE)) != NULL);
	CHECK(ibv_query_gid(l.ctx, 1, GID_INDEX, &l.gid) == 0);
	return l;
}

/* loop_connect connects a queue pair with itself. */
static inline void loop_connect(struct loop *l, struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
				  .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
				  .ah_attr = { .is_global = 1, .port_num = 1,
					       .grh = { .dgid = l->gid, .sgid_index = GID_INDEX, .hop_limit = 64 } } };
	CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

/* loop_qp creates a queue pair that is connected to itself. */
static inline struct ibv_qp *loop_qp(struct loop *l, struct ibv_cq *send, struct ibv_cq *recv)
{
	struct ibv_qp_init_attr init = { .send_cq = send, .recv_cq = recv, .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(l->pd, &init);
	CHECK(qp != NULL);
	loop_connect(l, qp);
	return qp;
}

static inline void post_recv(struct loop *l, struct ibv_qp *qp, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)l->buf, 1024, l->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
}

static inline int post_send(struct loop *l, struct ibv_qp *qp, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)l->buf + 4096, 100, l->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	return ibv_post_send(qp, &wr, &bad);
}

/* reap polls until there is a completion. */
static inline struct ibv_wc reap(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;
	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	CHECK(n == 1);
	return wc;
}
