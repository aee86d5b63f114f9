/* Checks libmrc on a device of the profile mrc: a queue pair that is connected to itself. */
#include <mrc.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                              \
	do {                                                                     \
		if (!(what)) {                                                   \
			fprintf(stderr, "line %d: %s; errno %d\n", __LINE__, #what, errno); \
			exit(1);                                                 \
		}                                                                \
	} while (0)

/* FAILS checks a function that returns -1 and sets errno, NUMBER one that returns the error number. */
#define FAILS(call, error) CHECK((errno = 0, (call) == -1 && errno == (error)))
#define NUMBER(call, error) CHECK((call) == (error))

int mrc_ctl_query_device(struct ibv_context *context, void *attr);
void *mrc_ctl_create_ev_event_cq(struct mrc_context *c, int cqe, void *cq_context, struct mrc_comp_channel *channel, int v);
int mrc_ctl_poll_ev_event(struct mrc_cq *cq, int n, void *event);

enum { ALL = MRC_QP_MAX_WIMM | MRC_QP_MAX_WIMM_DEST | MRC_QP_MPR | MRC_QP_MPR_DEST | MRC_QP_TIMEOUT | MRC_QP_EV_PROFILE_ID |
	     MRC_QP_CC_PROFILE_ID | MRC_QP_HINT | MRC_QP_RETRY_CNT | MRC_QP_CAP };

static struct ibv_context *verbs;
static struct mrc_context *context;
static struct ibv_pd *pd;
static struct mrc_cq *cq;
static char memory[1 << 20];

static struct mrc_qp *create(void)
{
	struct mrc_qp_init_attr init = { .qp_context = memory, .send_cq = cq, .recv_cq = cq, .pd = pd, .sq_sig_all = 1,
					 .cap = { .max_send_wr = 40, .max_recv_wr = 40, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct mrc_qp *q = mrc_create_qp(context, &init);
	CHECK(q);
	return q;
}

static int init(struct mrc_qp *q, struct mrc_qp_attr *m, int mask)
{
	struct ibv_qp_attr v = { .qp_state = IBV_QPS_INIT, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	return mrc_modify_qp(q, &v, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS, m, mask);
}

/* attach connects q to queue pair number qpn of the same device, and passes what OCP's example passes. */
static void attach(struct mrc_qp *q, uint32_t qpn, struct mrc_qp_attr *rts, int mask)
{
	struct ibv_qp_attr v = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qpn, .ah_attr.is_global = 1 };
	CHECK(ibv_query_gid(verbs, 1, 0, &v.ah_attr.grh.dgid) == 0);
	NUMBER(mrc_modify_qp(q, &v, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_PATH_MTU, NULL, 0), 0);
	v = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 7, .retry_cnt = 14, .rnr_retry = 14 };
	NUMBER(mrc_modify_qp(q, &v, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT, rts, mask), 0);
}

static struct mrc_qp_attr query(struct mrc_qp *q)
{
	struct mrc_qp_attr m = { 0 };
	struct mrc_qp_init_attr i;
	struct ibv_qp_attr v;
	NUMBER(mrc_query_qp(q, &v, IBV_QP_STATE, &m, ALL, &i), 0);
	CHECK(i.qp_context == memory && i.send_cq == cq && i.cap.max_send_wr >= 40);
	return m;
}

static void device(void)
{
	struct mrc_device_attr d;
	uint32_t v[4];
	int supported;
	CHECK(mrc_query_device(verbs, &d, &supported) == 0 && supported);
	CHECK(d.mrc_protocol_version == MRC_PROTOCOL_VERSION_1 && d.mpr_attr.max_mpr >= 8 && d.mpr_attr.mpr_resolution == 1);
	CHECK(d.wimm_attr.max_wimm >= 32 && d.wimm_attr.max_wimm_dest >= 32 && d.qp_attr.max_qp_hint > 0);
	CHECK(d.cap == (MRC_DEVICE_CAP_TRIM_NACK | MRC_DEVICE_CAP_DYNAMIC_MPR));
	CHECK(mrc_query_device_ex(NULL, context, &d, &supported) == 0 && supported);
	mrc_query_version(&v[0], &v[1], &v[2], &v[3]);
	CHECK(v[0] == 0x01000001 && v[1] == 0 && v[2] == 0x01000000 && v[3] == 0);
	struct mrc_context_attr later = { .mrc_api_version_used = MRC_API_VER(1, 0, 2) };
	CHECK(!mrc_create_context(verbs, &later) && errno == EINVAL);
}

static void attributes(void)
{
	struct mrc_qp_hint_init_attr h = { .attr = { .num_qps_per_peer = 2, .num_send_peers = 1, .vendor_cfg = { 1, 2 } } };
	struct mrc_qp_hint *hint = mrc_create_qp_hint(context, &h);
	struct mrc_qp *q = create();
	CHECK(hint);
	struct mrc_qp_attr m = query(q), set = { .mpr = { 3, 4 }, .wimm = { 5, 6 }, .timeout = 9, .profile = { 3, 7 }, .retry = { 2, 25 },
						 .qp_hint = hint, .cap = MRC_QP_CAP_DYNAMIC_MPR };
	CHECK(m.mpr.mpr == 8 && m.mpr.mpr_dest == 8 && m.wimm.max_wimm == 32 && m.wimm.max_wimm_dest == 32 && !m.qp_hint && !m.cap);
	NUMBER(init(q, &set, ALL), 0);
	m = query(q);
	CHECK(m.mpr.mpr == 3 && m.mpr.mpr_dest == 4 && m.wimm.max_wimm == 5 && m.wimm.max_wimm_dest == 6 && m.timeout == 9);
	CHECK(m.profile.ev_profile_id == 3 && m.profile.cc_profile_id == 7 && m.retry.linear_cnt == 2 && m.retry.exp_cnt == 25);
	CHECK(m.qp_hint == hint && m.cap == MRC_QP_CAP_DYNAMIC_MPR);
	FAILS(mrc_destroy_qp_hint(hint), EBUSY);
	FAILS(mrc_destroy_context(context), EBUSY);

	struct mrc_qp_attr bad = { .mpr = { 65, 1 }, .profile = { 3, 8 } };
	NUMBER(mrc_modify_qp(q, NULL, 0, &bad, MRC_QP_MPR), EINVAL);
	NUMBER(mrc_modify_qp(q, NULL, 0, &bad, MRC_QP_CC_PROFILE_ID), EINVAL);
	NUMBER(mrc_modify_qp(q, NULL, 0, &bad, 1 << 20), EINVAL);
	NUMBER(mrc_modify_qp(q, NULL, 0, &bad, MRC_QP_VENDOR_CFG), EOPNOTSUPP);
	struct ibv_qp_attr v = { .qp_state = IBV_QPS_RTS };
	NUMBER(mrc_modify_qp(q, &v, IBV_QP_STATE | IBV_QP_ALT_PATH, NULL, 0), EOPNOTSUPP);
	struct mrc_qp_attr other = { .mpr = { 9, 9 } };
	NUMBER(mrc_modify_qp(q, &v, IBV_QP_STATE | IBV_QP_SQ_PSN, &other, MRC_QP_MPR | MRC_QP_MPR_DEST), EINVAL); /* from INIT */
	m = query(q);
	CHECK(m.mpr.mpr == 3 && m.mpr.mpr_dest == 4);

	uint32_t qpn;
	CHECK(mrc_get_qpn(q, &qpn) == 0);
	attach(q, qpn, NULL, 0);
	CHECK(query(q).timeout == 9);
	NUMBER(mrc_modify_qp(q, NULL, 0, &set, MRC_QP_TIMEOUT), EINVAL); /* in RTS */

	struct mrc_qp_hint_attr a = { .num_remote_recv_peers = 5 };
	CHECK(mrc_modify_qp_hint(hint, &a, MRC_QP_HINT_NUM_REMOTE_RECV_PEERS) == 0);
	CHECK(mrc_query_qp_hint(hint, &a, MRC_QP_HINT_NUM_QPS_PER_PEER | MRC_QP_HINT_VENDOR_CFG | MRC_QP_HINT_NUM_REMOTE_RECV_PEERS) == 0);
	CHECK(a.num_qps_per_peer == 2 && a.num_send_peers == 0 && a.num_remote_recv_peers == 5 && a.vendor_cfg[1] == 2);
	a.num_send_peers = -1;
	FAILS(mrc_modify_qp_hint(hint, &a, MRC_QP_HINT_NUM_SEND_PEERS), EINVAL);
	FAILS(mrc_modify_qp_hint(hint, &a, 1 << 9), EINVAL);
	NUMBER(mrc_destroy_qp(q), 0);
	CHECK(mrc_destroy_qp_hint(hint) == 0);
}

/* poll waits for n completions and returns the status of the last one. */
static enum ibv_wc_status poll(int n)
{
	struct ibv_wc wc = { 0 };
	while (n > 0) {
		int got = mrc_poll_cq(cq, 1, &wc);
		CHECK(got >= 0);
		n -= got;
	}
	return wc.status;
}

/* transfer moves data, and posts an operation that MRC lacks behind a WRITE. */
static void transfer(struct ibv_mr *mr)
{
	struct mrc_qp *q = create();
	uint32_t qpn;
	NUMBER(init(q, NULL, 0), 0);
	CHECK(mrc_get_qpn(q, &qpn) == 0);
	attach(q, qpn, NULL, 0);
	struct mrc_qp_attr m = query(q);
	CHECK(m.timeout == 16 && m.retry.linear_cnt == 7); /* the library's defaults, not those passed */
	strcpy(memory, "data");
	struct ibv_sge sge = { (uintptr_t)memory, 5, mr->lkey };
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 },
			   data = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1, .next = &send,
				    .wr.rdma = { (uintptr_t)memory + 100, mr->rkey } }, *refused = NULL;
	NUMBER(mrc_post_send(q, &data, &refused), EOPNOTSUPP);
	CHECK(refused == &send && data.next == &send && poll(1) == IBV_WC_SUCCESS && strcmp(memory + 100, "data") == 0);
	NUMBER(mrc_destroy_qp(q), 0);
}

/* gone: the retries of the attributes are used up towards a queue pair that does not exist. */
static void gone(struct ibv_mr *mr)
{
	struct mrc_qp *q = create();
	struct mrc_qp_attr rts = { .timeout = 8, .retry = { 1, 1 } };
	struct ibv_qp_attr v;
	struct mrc_qp_init_attr i;
	NUMBER(init(q, NULL, 0), 0);
	attach(q, 5, &rts, MRC_QP_TIMEOUT | MRC_QP_RETRY_CNT);
	struct ibv_sge sge = { (uintptr_t)memory, 5, mr->lkey };
	struct ibv_send_wr data = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1 }, *bad;
	NUMBER(mrc_post_send(q, &data, &bad), 0);
	CHECK(poll(1) == IBV_WC_RETRY_EXC_ERR);
	NUMBER(mrc_query_qp(q, &v, IBV_QP_STATE, NULL, 0, &i), 0);
	CHECK(v.qp_state == IBV_QPS_ERR);
	NUMBER(mrc_destroy_qp(q), 0);
}

static void unsupported(void)
{
	struct mrc_comp_channel *channel = (void *)memory;
	struct mrc_async_event event;
	void *user;
	struct mrc_cq *other;
	int fd;
	NUMBER(mrc_create_comp_channel(context, &channel), EOPNOTSUPP);
	FAILS(mrc_get_comp_channel_fd(channel, &fd), EOPNOTSUPP);
	NUMBER(mrc_destroy_comp_channel(channel), EOPNOTSUPP);
	CHECK(!mrc_create_cq(context, 5, NULL, channel, 0) && errno == EOPNOTSUPP);
	NUMBER(mrc_req_notify_cq(cq, 0), EOPNOTSUPP);
	FAILS(mrc_get_cq_event(channel, &other, &user), EOPNOTSUPP);
	FAILS(mrc_get_async_event(context, &event), EOPNOTSUPP);
	mrc_ack_cq_events(cq, 1);
	mrc_ack_async_event(&event);
	FAILS(mrc_ctl_query_device(verbs, memory), EOPNOTSUPP);
	CHECK(!mrc_ctl_create_ev_event_cq(context, 5, NULL, NULL, 0) && errno == EOPNOTSUPP);
	NUMBER(mrc_ctl_poll_ev_event(cq, 1, memory), -EOPNOTSUPP);
	struct mrc_qp_init_attr reads = { .send_cq = cq, .recv_cq = cq, .pd = pd, .send_ops_flags = IBV_QP_EX_WITH_RDMA_READ };
	CHECK(!mrc_create_qp(context, &reads) && errno == EOPNOTSUPP);
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(argc == 2 && list && list[0] && strcmp(ibv_get_device_name(list[0]), argv[1]) == 0);
	CHECK(verbs = ibv_open_device(list[0]));
	CHECK(context = mrc_create_context(verbs, NULL));
	CHECK(pd = ibv_alloc_pd(verbs));
	CHECK(cq = mrc_create_cq(context, 100, NULL, NULL, 0));
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr);
	device();
	attributes();
	transfer(mr);
	gone(mr);
	unsupported();
	CHECK(ibv_dereg_mr(mr) == 0 && mrc_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && mrc_destroy_context(context) == 0);
	return ibv_close_device(verbs);
}
