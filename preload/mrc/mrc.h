/*
 * The API of MRC (Multipath Reliable Connection) for programs, as OCP's version 1.0.1 has it: names, types and
 * layouts are the same. docs/guides/mrc.md lists the functions that this library supports. The others fail with
 * EOPNOTSUPP.
 *
 * Contexts, protection domains, memory regions, work requests and completions are those of libibverbs.
 */
#ifndef _MRC_API_H_
#define _MRC_API_H_

#include <stdint.h>
#include <infiniband/verbs.h>

#include <mrc_api_ver.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MRC_MAX_VENDOR_CFG_SIZE 128

struct mrc_context;
struct mrc_comp_channel;
struct mrc_cq;
struct mrc_qp;
struct mrc_qp_hint;

/* ---- device and context ---- */

/* Versions of the wire protocol: a bitmap in mrc_device_attr, one of them in mrc_qp_init_attr. 0 selects any. */
enum mrc_protocol_version {
	MRC_PROTOCOL_VERSION_0 = 0,
	MRC_PROTOCOL_VERSION_1 = 1 << 0,
};

enum mrc_device_cap {
	MRC_DEVICE_CAP_TRIM_NACK = 1 << 0,   /* NACKs answer trimmed packets */
	MRC_DEVICE_CAP_DYNAMIC_MPR = 1 << 1, /* SACKs can report the range */
	MRC_DEVICE_CAP_SVC_TIME = 1 << 2,    /* responses have service times */
};

/* The attributes have two names: mrc_device_attr is OCP's, mrc_attr that of its clients for NCCL and verbs. */
#define MRC_DEVICE_ATTR_FIELDS                                \
	uint32_t mrc_protocol_version;                        \
	struct {                                              \
		uint16_t max_wimm;                            \
		uint16_t max_wimm_dest;                       \
	} wimm_attr;                                          \
	struct {                                              \
		uint8_t max_mpr;        /* in 128 PSNs */     \
		uint8_t mpr_resolution; /* likewise */        \
	} mpr_attr;                                           \
	struct {                                              \
		uint32_t max_qp_hint;                         \
	} qp_attr;                                            \
	uint32_t cap; /* of mrc_device_cap */

struct mrc_device_attr {
	MRC_DEVICE_ATTR_FIELDS
};
#ifdef __cplusplus
struct mrc_attr : mrc_device_attr {
};
typedef struct mrc_device_attr *mrc_device_attr_ptr;
#else
struct mrc_attr {
	MRC_DEVICE_ATTR_FIELDS
};
typedef union {
	struct mrc_device_attr *device;
	struct mrc_attr *attr;
} mrc_device_attr_ptr __attribute__((transparent_union)); /* a pointer to either; it travels as a pointer */
#endif

/* *supported is 0 for a device without MRC. 0, or -1 with errno. */
int mrc_query_device(struct ibv_context *context, mrc_device_attr_ptr attr, int *supported);
#if MRC_API_VER_USED >= MRC_API_VER(1, 0, 1)
int mrc_query_device_ex(struct ibv_context *context, struct mrc_context *mcontext, mrc_device_attr_ptr attr,
			int *supported);
#endif
void mrc_query_version(uint32_t *current_version, uint32_t *last_supported_version, uint32_t *vendor_version,
		       uint32_t *last_supported_vendor_version);

/* 0: not known. */
struct mrc_context_attr {
	uint32_t mrc_api_version_used;
	uint32_t mrc_vendor_api_version_used;
};

/* context_attr may be NULL. NULL with errno if it fails. Destroying fails with EBUSY while objects exist. */
struct mrc_context *mrc_create_context(struct ibv_context *vcontext, struct mrc_context_attr *context_attr);
int mrc_destroy_context(struct mrc_context *mrc_ctx);

/* ---- completions ---- */

int mrc_create_comp_channel(struct mrc_context *mrc_ctx, struct mrc_comp_channel **channel);
int mrc_get_comp_channel_fd(struct mrc_comp_channel *channel, int *fd);
int mrc_destroy_comp_channel(struct mrc_comp_channel *channel);

struct mrc_cq *mrc_create_cq(struct mrc_context *mrc_ctx, int cqe, void *cq_context, struct mrc_comp_channel *channel,
			     int comp_vector);
int mrc_poll_cq(struct mrc_cq *cq, int num_entries, struct ibv_wc *wc);
int mrc_destroy_cq(struct mrc_cq *cq);
int mrc_req_notify_cq(struct mrc_cq *cq, int solicited_only);
int mrc_get_cq_event(struct mrc_comp_channel *channel, struct mrc_cq **cq, void **cq_context);
void mrc_ack_cq_events(struct mrc_cq *cq, unsigned int nevents);

/* ---- hints on the traffic of queue pairs ---- */

struct mrc_qp_hint_attr {
	int num_qps_per_peer;      /* queue pairs that send to the same address */
	int num_send_peers;        /* addresses to which they send at the same time */
	int num_remote_recv_peers; /* remote queue pairs that send to the same address: its incast */
	uint8_t vendor_cfg[MRC_MAX_VENDOR_CFG_SIZE];
};

enum mrc_qp_hint_attr_mask {
	MRC_QP_HINT_NUM_QPS_PER_PEER = 1 << 0,
	MRC_QP_HINT_NUM_SEND_PEERS = 1 << 1,
	MRC_QP_HINT_NUM_REMOTE_RECV_PEERS = 1 << 2,
	MRC_QP_HINT_VENDOR_CFG = 1u << 31
};

struct mrc_qp_hint_init_attr {
	struct mrc_qp_hint_attr attr;
};

struct mrc_qp_hint *mrc_create_qp_hint(struct mrc_context *mrc_ctx, struct mrc_qp_hint_init_attr *init_attr);
/* Fails with EBUSY while a queue pair has the hint. */
int mrc_destroy_qp_hint(struct mrc_qp_hint *qp_hint);
int mrc_query_qp_hint(struct mrc_qp_hint *qp_hint, struct mrc_qp_hint_attr *qp_hint_attr, int qp_hint_attr_mask);
int mrc_modify_qp_hint(struct mrc_qp_hint *qp_hint, struct mrc_qp_hint_attr *qp_hint_attr, int qp_hint_attr_mask);

/* ---- queue pairs ---- */

struct mrc_qp_init_attr {
	void *qp_context;
	struct mrc_cq *send_cq;
	struct mrc_cq *recv_cq;
	struct ibv_qp_cap cap;
	int sq_sig_all;
	struct ibv_pd *pd;
	uint64_t send_ops_flags; /* of enum ibv_qp_create_send_ops_flags */
	enum mrc_protocol_version protocol_version;
};

enum mrc_qp_attr_mask {
	MRC_QP_MAX_WIMM = 1 << 0,
	MRC_QP_MAX_WIMM_DEST = 1 << 1,
	MRC_QP_MPR = 1 << 2,
	MRC_QP_MPR_DEST = 1 << 3,
	MRC_QP_TIMEOUT = 1 << 4,
	MRC_QP_EV_PROFILE_ID = 1 << 5,
	MRC_QP_CC_PROFILE_ID = 1 << 6,
	MRC_QP_HINT = 1 << 7,
	MRC_QP_RETRY_CNT = 1 << 8,
	MRC_QP_CAP = 1 << 9,
	MRC_QP_VENDOR_CFG = 1u << 31
};

enum mrc_qp_cap {
	MRC_QP_CAP_TRIM_NACK_DEST_UNSUPPORTED = 1 << 0,
	MRC_QP_CAP_DYNAMIC_MPR = 1 << 1,
	MRC_QP_CAP_SVC_TIME_DEST_UNSUPPORTED = 1 << 2
};

struct mrc_qp_attr {
	struct {
		uint8_t mpr;      /* maximum PSN range as requestor, in 128 PSNs */
		uint8_t mpr_dest; /* as responder */
	} mpr;
	struct {
		uint16_t max_wimm;      /* WRITEs with immediate data in flight as requestor */
		uint16_t max_wimm_dest; /* as responder */
	} wimm;
	uint8_t timeout; /* 1.024 us * 2^timeout, at most 24 */
	struct {
		uint64_t ev_profile_id;
		uint64_t cc_profile_id;
	} profile;
	struct {
		uint8_t linear_cnt; /* at most 7 */
		uint8_t exp_cnt;    /* at most 25, which has no limit */
	} retry;
	struct mrc_qp_hint *qp_hint; /* may be NULL */
	uint32_t cap;                /* of mrc_qp_cap */
	uint8_t vendor_cfg[MRC_MAX_VENDOR_CFG_SIZE];
};

struct mrc_qp *mrc_create_qp(struct mrc_context *mrc_ctx, struct mrc_qp_init_attr *mrc_qp_attr);
/* These return 0 or an error number. */
int mrc_destroy_qp(struct mrc_qp *qp);
int mrc_query_qp(struct mrc_qp *qp, struct ibv_qp_attr *vattr, int vattr_mask, struct mrc_qp_attr *mrc_attr,
		 int mrc_attr_mask, struct mrc_qp_init_attr *init_attr);
int mrc_modify_qp(struct mrc_qp *qp, struct ibv_qp_attr *vattr, int vattr_mask, struct mrc_qp_attr *mrc_attr,
		  int mrc_attr_mask);
int mrc_get_qpn(struct mrc_qp *qp, uint32_t *qpn);
int mrc_post_recv(struct mrc_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int mrc_post_send(struct mrc_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);

/* ---- asynchronous events ---- */

struct mrc_async_event {
	union {
		struct mrc_cq *cq;
		struct mrc_qp *qp;
		int port_num;
	} element;
	enum ibv_event_type event_type;
};

int mrc_get_async_event(struct mrc_context *mrc_ctx, struct mrc_async_event *event);
void mrc_ack_async_event(struct mrc_async_event *event);

#ifdef __cplusplus
}
#endif

#endif
