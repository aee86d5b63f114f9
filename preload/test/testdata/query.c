/* Prints the attributes of ibv_query_qp(), ibv_query_srq(), ibv_query_gid_ex() and ibv_query_pkey(), one a line: a test compares
 * them with those of rdma_rxe. Numbers and addresses that differ in each run are left out. */
#include "verbs.h"

static const char *type_name(enum ibv_qp_type t) { return t == IBV_QPT_RC ? "rc" : t == IBV_QPT_UC ? "uc" : "ud"; }

static void show(struct ibv_qp *qp, const char *state)
{
	struct ibv_qp_attr a = { 0 };
	struct ibv_qp_init_attr i = { 0 };
	char name[32];
	CHECK(ibv_query_qp(qp, &a, IBV_QP_STATE, &i) == 0);
	snprintf(name, sizeof name, "qp %s %s", type_name(qp->qp_type), state);
#define SHOW(field) printf("%s " #field ": %llu\n", name, (unsigned long long)(field))
	SHOW(a.qp_state), SHOW(a.cur_qp_state), SHOW(a.path_mtu), SHOW(a.path_mig_state), SHOW(a.qkey), SHOW(a.rq_psn), SHOW(a.sq_psn);
	SHOW(a.qp_access_flags), SHOW(a.pkey_index), SHOW(a.alt_pkey_index), SHOW(a.en_sqd_async_notify), SHOW(a.sq_draining);
	SHOW(a.max_rd_atomic), SHOW(a.max_dest_rd_atomic), SHOW(a.min_rnr_timer), SHOW(a.port_num), SHOW(a.timeout), SHOW(a.retry_cnt);
	SHOW(a.rnr_retry), SHOW(a.alt_port_num), SHOW(a.alt_timeout), SHOW(a.rate_limit), SHOW(a.dest_qp_num == qp->qp_num);
	SHOW(a.ah_attr.is_global), SHOW(a.ah_attr.port_num), SHOW(a.ah_attr.sl), SHOW(a.ah_attr.dlid), SHOW(a.ah_attr.static_rate);
	SHOW(a.ah_attr.src_path_bits), SHOW(a.ah_attr.grh.sgid_index), SHOW(a.ah_attr.grh.hop_limit), SHOW(a.ah_attr.grh.traffic_class);
	SHOW(a.ah_attr.grh.flow_label), SHOW(a.cap.max_send_wr), SHOW(a.cap.max_recv_wr), SHOW(a.cap.max_send_sge);
	SHOW(a.cap.max_recv_sge), SHOW(a.cap.max_inline_data), SHOW(i.cap.max_send_wr), SHOW(i.cap.max_inline_data), SHOW(i.sq_sig_all);
	SHOW(i.qp_type);
}

int main(void)
{
	struct loop l = loop_open();
	struct ibv_cq *cq = ibv_create_cq(l.ctx, 8, NULL, NULL, 0);
	CHECK(cq != NULL);
	for (int t = IBV_QPT_RC; t <= IBV_QPT_UD; t++) {
		struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = t, .sq_sig_all = 1,
						 .cap = { .max_send_wr = 10, .max_recv_wr = 10, .max_send_sge = 3, .max_recv_sge = 3,
							  .max_inline_data = 100 } };
		struct ibv_qp *qp = ibv_create_qp(l.pd, &init);
		CHECK(qp != NULL);
		printf("qp %s created max_send_wr: %u\nqp %s created max_inline_data: %u\n", type_name(t), init.cap.max_send_wr, type_name(t),
		       init.cap.max_inline_data);
		show(qp, "reset");
		struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 77, .qp_access_flags = IBV_ACCESS_REMOTE_READ };
		CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						    (t == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) == 0);
		show(qp, "init");
		a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_512, .dest_qp_num = qp->qp_num, .rq_psn = 0xabcdef,
					  .max_dest_rd_atomic = 4, .min_rnr_timer = 12,
					  .ah_attr = { .is_global = 1, .port_num = 1, .sl = 3,
						       .grh = { .dgid = l.gid, .sgid_index = GID_INDEX, .hop_limit = 7, .traffic_class = 8,
								.flow_label = 9 } } };
		int mask = t == IBV_QPT_UD ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
		mask |= t == IBV_QPT_RC ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0;
		CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | mask) == 0);
		show(qp, "rtr");
		a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = 0x123456, .timeout = 14, .retry_cnt = 5, .rnr_retry = 6,
					  .max_rd_atomic = 3 };
		mask = t == IBV_QPT_RC ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0;
		CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | mask) == 0);
		show(qp, "rts");
	}
	struct ibv_srq_init_attr si = { .attr = { .max_wr = 10, .max_sge = 2 } };
	struct ibv_srq *srq = ibv_create_srq(l.pd, &si);
	struct ibv_srq_attr sa = { .srq_limit = 3 };
	CHECK(srq && ibv_modify_srq(srq, &sa, IBV_SRQ_LIMIT) == 0 && ibv_query_srq(srq, &sa) == 0);
	printf("srq max_wr: %u\nsrq max_sge: %u\nsrq limit: %u\n", sa.max_wr, sa.max_sge, sa.srq_limit);
	uint16_t pkey;
	union ibv_gid gid;
	for (int i = 0; i < 2; i++)
		printf("pkey %d: %d %#x\n", i, ibv_query_pkey(l.ctx, 1, i, &pkey) ? -1 : 0, i ? 0 : pkey);
	for (int i = 0; i < 2000; i += 255)
		printf("gid %d: %d\n", i, ibv_query_gid(l.ctx, 1, i, &gid) ? -1 : 0);
	struct ibv_gid_entry e;
	CHECK(ibv_query_gid_ex(l.ctx, 1, GID_INDEX, &e, 0) == 0);
	printf("gid entry type: %u\ngid entry port: %u\ngid entry netdev: %d\n", e.gid_type, e.port_num, e.ndev_ifindex != 0);
	return 0;
}
