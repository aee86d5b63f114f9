/* Queue pairs: those of RC of a device whose transport profile is mrc. */
#include "objects.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Attributes of libibverbs that MRC lacks. The API says that they are not supported; OCP's example passes them. They
 * have no effect. */
enum {
	IGNORED = IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER |
		  IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC,
	/* Attributes that travel to the NIC. */
	SENT = MRC_QP_MAX_WIMM | MRC_QP_MAX_WIMM_DEST | MRC_QP_MPR | MRC_QP_MPR_DEST | MRC_QP_TIMEOUT | MRC_QP_EV_PROFILE_ID |
	       MRC_QP_CC_PROFILE_ID | MRC_QP_RETRY_CNT | MRC_QP_CAP,
	KNOWN = SENT | MRC_QP_HINT,
};

/* Until a program sets MRC_QP_TIMEOUT and MRC_QP_RETRY_CNT: 67 ms, seven linear retries. */
enum { DEFAULT_TIMEOUT = 14, DEFAULT_RETRY_CNT = 7 };

EXPORT struct mrc_qp *mrc_create_qp(struct mrc_context *c, struct mrc_qp_init_attr *a)
{
	const uint64_t writes = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	if (!c || !a || !a->pd || !a->send_cq || !a->recv_cq || a->pd->context != c->verbs || a->send_cq->context != c ||
	    a->recv_cq->context != c) {
		errno = EINVAL;
		return NULL;
	}
	if (a->send_ops_flags & ~writes || a->protocol_version & ~MRC_PROTOCOL_VERSION_1) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	struct ibv_qp_init_attr init = { .qp_context = a->qp_context, .send_cq = a->send_cq->cq, .recv_cq = a->recv_cq->cq,
					 .cap = a->cap, .qp_type = IBV_QPT_RC, .sq_sig_all = a->sq_sig_all };
	struct mrc_qp *q = calloc(1, sizeof *q);
	if (!q)
		return NULL;
	q->qp = libibverbs()->create_qp(a->pd, &init);
	if (!q->qp) {
		free(q);
		return NULL;
	}
	a->cap = init.cap;
	q->context = c;
	q->init = *a;
	q->init.protocol_version = MRC_PROTOCOL_VERSION_1;
	atomic_fetch_add(&c->objects, 1);
	return q;
}

/* attach replaces the hint of q; NULL removes it. */
static void attach(struct mrc_qp *q, struct mrc_qp_hint *h)
{
	if (h)
		atomic_fetch_add(&h->users, 1);
	if (q->hint)
		atomic_fetch_sub(&q->hint->users, 1);
	q->hint = h;
}

EXPORT int mrc_destroy_qp(struct mrc_qp *q)
{
	if (!q)
		return EINVAL;
	int error = libibverbs()->destroy_qp(q->qp);
	if (error)
		return error;
	attach(q, NULL);
	atomic_fetch_sub(&q->context->objects, 1);
	free(q);
	return 0;
}

/* complete adds the attributes to a change of state that libibverbs requires and MRC lacks. It returns the mask. */
static int complete(enum ibv_qp_state from, struct ibv_qp_attr *v, int mask)
{
	mask &= ~IGNORED;
	if (mask & IBV_QP_AV)
		v->ah_attr.port_num = 1;
	if (!(mask & IBV_QP_STATE))
		return mask;
	switch (v->qp_state) {
	case IBV_QPS_INIT:
		v->port_num = 1;
		return mask | IBV_QP_PORT;
	case IBV_QPS_RTR:
		v->max_dest_rd_atomic = 0;
		v->min_rnr_timer = 0;
		return mask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	case IBV_QPS_RTS:
		if (from != IBV_QPS_RTR)
			return mask;
		v->max_rd_atomic = 0;
		v->timeout = DEFAULT_TIMEOUT;
		v->retry_cnt = v->rnr_retry = DEFAULT_RETRY_CNT;
		return mask | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
	default:
		return mask;
	}
}

static struct attr pack(const struct mrc_qp_attr *m)
{
	return (struct attr){ .ev_profile = m->profile.ev_profile_id, .cc_profile = m->profile.cc_profile_id, .cap = m->cap,
			      .max_wimm = m->wimm.max_wimm, .max_wimm_dest = m->wimm.max_wimm_dest, .mpr = m->mpr.mpr,
			      .mpr_dest = m->mpr.mpr_dest, .timeout = m->timeout, .linear = m->retry.linear_cnt,
			      .exponential = m->retry.exp_cnt };
}

/* change applies attributes of both kinds. If those of libibverbs are refused, it restores those of MRC. */
static int change(struct mrc_qp *q, struct ibv_qp_attr *v, int vmask, const struct mrc_qp_attr *m, int mask)
{
	struct attr before, now;
	int error;
	if (mask) {
		now = pack(m);
		error = call_query(q->qp, &before);
		if (!error)
			error = call_modify(q->qp, &now, mask);
		if (error)
			return error;
	}
	error = vmask ? libibverbs()->modify_qp(q->qp, v, vmask) : 0;
	if (error && mask)
		call_modify(q->qp, &before, mask);
	return error;
}

EXPORT int mrc_modify_qp(struct mrc_qp *q, struct ibv_qp_attr *vattr, int vattr_mask, struct mrc_qp_attr *mrc_attr,
			 int mrc_attr_mask)
{
	struct ibv_qp_attr v = { 0 };
	if (!q || (vattr_mask && !vattr) || (mrc_attr_mask && !mrc_attr) || mrc_attr_mask & ~(KNOWN | MRC_QP_VENDOR_CFG))
		return errno = EINVAL;
	if (mrc_attr_mask & MRC_QP_VENDOR_CFG || vattr_mask & (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE))
		return errno = EOPNOTSUPP;
	if (mrc_attr_mask & MRC_QP_HINT && mrc_attr->qp_hint && mrc_attr->qp_hint->context != q->context)
		return errno = EINVAL;
	if (vattr_mask)
		v = *vattr;
	int error = change(q, &v, complete(q->qp->state, &v, vattr_mask), mrc_attr, mrc_attr_mask & SENT);
	if (error)
		return errno = error;
	if (mrc_attr_mask & MRC_QP_HINT)
		attach(q, mrc_attr->qp_hint);
	return 0;
}

/* unpack stores the attributes in mask. */
static void unpack(struct mrc_qp_attr *m, const struct attr *a, int mask)
{
	if (mask & MRC_QP_MPR)
		m->mpr.mpr = a->mpr;
	if (mask & MRC_QP_MPR_DEST)
		m->mpr.mpr_dest = a->mpr_dest;
	if (mask & MRC_QP_MAX_WIMM)
		m->wimm.max_wimm = a->max_wimm;
	if (mask & MRC_QP_MAX_WIMM_DEST)
		m->wimm.max_wimm_dest = a->max_wimm_dest;
	if (mask & MRC_QP_TIMEOUT)
		m->timeout = a->timeout;
	if (mask & MRC_QP_EV_PROFILE_ID)
		m->profile.ev_profile_id = a->ev_profile;
	if (mask & MRC_QP_CC_PROFILE_ID)
		m->profile.cc_profile_id = a->cc_profile;
	if (mask & MRC_QP_RETRY_CNT) {
		m->retry.linear_cnt = a->linear;
		m->retry.exp_cnt = a->exponential;
	}
	if (mask & MRC_QP_CAP)
		m->cap = a->cap;
}

EXPORT int mrc_query_qp(struct mrc_qp *q, struct ibv_qp_attr *vattr, int vattr_mask, struct mrc_qp_attr *mrc_attr,
			int mrc_attr_mask, struct mrc_qp_init_attr *init_attr)
{
	struct ibv_qp_attr v;
	struct ibv_qp_init_attr init;
	struct attr a;
	if (!q || (vattr_mask && !vattr) || (mrc_attr_mask && !mrc_attr) || mrc_attr_mask & ~(KNOWN | MRC_QP_VENDOR_CFG))
		return errno = EINVAL;
	int error = libibverbs()->query_qp(q->qp, &v, vattr_mask, &init);
	if (!error && mrc_attr_mask & SENT)
		error = call_query(q->qp, &a);
	if (error)
		return errno = error;
	if (vattr_mask)
		*vattr = v;
	if (mrc_attr_mask & SENT)
		unpack(mrc_attr, &a, mrc_attr_mask);
	if (mrc_attr_mask & MRC_QP_HINT)
		mrc_attr->qp_hint = q->hint;
	if (mrc_attr_mask & MRC_QP_VENDOR_CFG) /* there is none */
		memset(mrc_attr->vendor_cfg, 0, sizeof mrc_attr->vendor_cfg);
	if (init_attr) {
		*init_attr = q->init;
		init_attr->cap = init.cap;
	}
	return 0;
}

EXPORT int mrc_get_qpn(struct mrc_qp *q, uint32_t *qpn)
{
	if (!q || !qpn)
		return fail(EINVAL);
	*qpn = q->qp->qp_num;
	return 0;
}

EXPORT int mrc_post_recv(struct mrc_qp *q, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	int error = q ? ibv_post_recv(q->qp, wr, bad_wr) : EINVAL;
	return error ? fail(error) : 0;
}

/* allowed returns true for the operations of MRC. */
static int allowed(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* As ibv_post_send() does, it posts the requests before the first one that it refuses. */
EXPORT int mrc_post_send(struct mrc_qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct ibv_send_wr *last = NULL, *refused = wr;
	if (!q)
		return EINVAL;
	for (; refused && allowed(refused); refused = refused->next)
		last = refused;
	if (!refused)
		return ibv_post_send(q->qp, wr, bad_wr);
	int error = 0;
	if (last) {
		last->next = NULL;
		error = ibv_post_send(q->qp, wr, bad_wr);
		last->next = refused;
	}
	if (error)
		return error;
	*bad_wr = refused;
	return errno = EOPNOTSUPP;
}
