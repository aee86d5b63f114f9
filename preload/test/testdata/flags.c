/* Attributes that rdma-core's rxe provider refuses and the library adds. */
#include "verbs.h"

#include <arpa/inet.h>
#include <poll.h>

enum { KEY = 0x1234, DEPTH = 4, MANY = 40 };

static struct loop l;

static struct ibv_cq_ex *create_cq(uint32_t flags)
{
	struct ibv_cq_init_attr_ex a = { .cqe = DEPTH, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = flags,
					 .wc_flags = IBV_WC_EX_WITH_BYTE_LEN };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(l.ctx, &a);
	CHECK(a.flags == flags);
	return cq;
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(qp, &a, IBV_QP_STATE, &init) == 0);
	return a.qp_state;
}

/* events returns 1 if there is an asynchronous event. */
static int events(void)
{
	struct pollfd p = { l.ctx->async_fd, POLLIN, 0 };
	return poll(&p, 1, 0);
}

/* overrun fills a completion queue of DEPTH entries beyond its end. The other queue counts the receives. */
static struct ibv_qp *overrun(struct ibv_cq *small)
{
	struct ibv_cq *wide = ibv_create_cq(l.ctx, 2 * MANY, NULL, NULL, 0);
	CHECK(wide != NULL);
	struct ibv_qp *qp = loop_qp(&l, small, wide);
	for (int i = 0; i < MANY; i++) {
		post_recv(&l, qp, i);
		CHECK(post_send(&l, qp, i) == 0);
		struct ibv_wc wc = reap(wide);
		if (wc.status != IBV_WC_SUCCESS)
			break;
	}
	return qp;
}

static void overruns(void)
{
	struct ibv_cq_ex *lossy = create_cq(IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN);
	CHECK(lossy != NULL);
	struct ibv_qp *qp = overrun(ibv_cq_ex_to_cq(lossy));
	CHECK(state_of(qp) == IBV_QPS_RTS && events() == 0);
	int n = 0;
	struct ibv_wc wc;
	for (; ibv_poll_cq(ibv_cq_ex_to_cq(lossy), 1, &wc) == 1; n++)
		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t)n);
	CHECK(n >= DEPTH && n < MANY);
	post_recv(&l, qp, 0); /* the queue works again */
	CHECK(post_send(&l, qp, 99) == 0 && reap(ibv_cq_ex_to_cq(lossy)).wr_id == 99);

	struct ibv_cq_ex *both = create_cq(IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN | IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
	CHECK(both && ibv_destroy_cq(ibv_cq_ex_to_cq(both)) == 0);

	struct ibv_cq_ex *strict = create_cq(0); /* the flag was that of one queue */
	CHECK(strict != NULL);
	qp = overrun(ibv_cq_ex_to_cq(strict));
	struct ibv_async_event e;
	CHECK(ibv_get_async_event(l.ctx, &e) == 0 && e.event_type == IBV_EVENT_CQ_ERR);
	ibv_ack_async_event(&e);
}

static void moderation(void)
{
	struct ibv_device_attr_ex all;
	CHECK(ibv_query_device_ex(l.ctx, NULL, &all) == 0);
	CHECK(all.cq_mod_caps.max_cq_count > 0 && all.cq_mod_caps.max_cq_period > 0);
	struct ibv_comp_channel *ch = ibv_create_comp_channel(l.ctx);
	struct ibv_cq *cq = ibv_create_cq(l.ctx, 16, NULL, ch, 0), *got;
	void *user;
	CHECK(cq != NULL);
	struct ibv_modify_cq_attr a = { .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { .cq_count = 16, .cq_period = 10 } };
	CHECK(ibv_modify_cq(cq, &a) == 0);
	a.attr_mask = 2;
	CHECK(ibv_modify_cq(cq, &a) == EOPNOTSUPP);
	a.attr_mask = 0;
	CHECK(ibv_modify_cq(cq, &a) == EOPNOTSUPP);
	struct ibv_qp *qp = loop_qp(&l, cq, cq);
	CHECK(ibv_req_notify_cq(cq, 0) == 0);
	post_recv(&l, qp, 1);
	CHECK(post_send(&l, qp, 2) == 0 && ibv_get_cq_event(ch, &got, &user) == 0 && got == cq);
	ibv_ack_cq_events(cq, 1);
	for (int i = 0; i < 2; i++)
		CHECK(reap(cq).status == IBV_WC_SUCCESS);
}

static struct ibv_qp *member(struct ibv_cq *cq, uint32_t flags, const union ibv_gid *group)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .pd = l.pd,
					    .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS, .create_flags = flags,
					    .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp_ex(l.ctx, &init);
	CHECK(qp != NULL && init.create_flags == flags);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = KEY };
	CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
	a.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE) == 0);
	a.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
	CHECK(ibv_attach_mcast(qp, group, 0) == 0);
	post_recv(&l, qp, 7);
	return qp;
}

/* multicast sends a datagram to two members of this NIC, of which the sender may block its own copy. */
static void multicast(uint32_t flags)
{
	union ibv_gid group = { .raw = { [10] = 0xff, 0xff, 239, 200, 1, 2 } };
	struct ibv_cq *own = ibv_create_cq(l.ctx, 8, NULL, NULL, 0), *other = ibv_create_cq(l.ctx, 8, NULL, NULL, 0);
	CHECK(own && other);
	struct ibv_qp *from = member(own, flags, &group), *beside = member(other, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, &group);
	struct ibv_ah_attr at = { .is_global = 1, .port_num = 1, .grh = { .dgid = group, .sgid_index = GID_INDEX, .hop_limit = 1 } };
	int n;
	union ibv_gid gid;
	for (n = 0; ibv_query_gid(l.ctx, 1, n, &gid) == 0 && gid.raw[10] != 0xff; n++)
		;
	at.grh.sgid_index = n; /* an IPv4 address */
	struct ibv_ah *ah = ibv_create_ah(l.pd, &at);
	struct ibv_sge s = { (uintptr_t)l.buf + 4096, 8, l.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
				  .wr.ud = { .ah = ah, .remote_qpn = 0xffffff, .remote_qkey = KEY } }, *bad;
	CHECK(ah && ibv_post_send(from, &wr, &bad) == 0);
	struct ibv_wc wc = reap(other);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.src_qp == from->qp_num);
	int sent = 0, got = 0;
	while (!sent || (flags == 0 && !got)) {
		wc = reap(own);
		CHECK(wc.status == IBV_WC_SUCCESS);
		if (wc.opcode == IBV_WC_RECV)
			got += wc.src_qp == from->qp_num && wc.wr_id == 7;
		else
			sent++;
	}
	CHECK(got == (flags == 0) && ibv_poll_cq(own, 1, &wc) == 0);
	CHECK(ibv_destroy_qp(from) == 0 && ibv_destroy_qp(beside) == 0);
}

int main(void)
{
	l = loop_open();
	multicast(0);
	multicast(IBV_QP_CREATE_BLOCK_SELF_MCAST_LB);
	struct ibv_qp_init_attr_ex wrong = { .qp_type = IBV_QPT_UD, .pd = l.pd, .create_flags = IBV_QP_CREATE_SCATTER_FCS,
					     .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS };
	CHECK(ibv_create_qp_ex(l.ctx, &wrong) == NULL && errno == EOPNOTSUPP);
	moderation();
	overruns();
	return 0;
}
