/*
 * libmrc: MRC over libibverbs, on a verbs device of the transport profile mrc.
 *
 *   device.c       devices, contexts, completion queues
 *   hint.c         hints
 *   qp.c           queue pairs
 *   call.c         commands to the daemon
 *   verbs.c        functions of libibverbs
 *   unsupported.c  functions that fail
 *
 * Calls on different objects may run at the same time. Calls on one object may not, except posting and polling.
 */
#ifndef ROCED_MRC_OBJECTS_H
#define ROCED_MRC_OBJECTS_H

#include "mrc.h"

#include <stdatomic.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

struct mrc_context {
	struct ibv_context *verbs;
	atomic_int objects;
};

/* Clients find the object of libibverbs at the beginning of a queue. */
struct mrc_cq {
	struct ibv_cq *cq;
	struct mrc_context *context;
};

struct mrc_qp_hint {
	struct mrc_context *context;
	struct mrc_qp_hint_attr attr;
	atomic_int users;
};

struct mrc_qp {
	struct ibv_qp *qp;
	struct mrc_context *context;
	struct mrc_qp_hint *hint;
	struct mrc_qp_init_attr init;
};

/* ---- call.c: commands of docs/reference/control-protocol.md; 0 or an error number ---- */

enum { EXT_MODIFY_MRC = 0xcb, EXT_QUERY_MRC = 0xcc, EXT_MRC_DEVICE = 0xcd };

struct attr {
	uint64_t ev_profile, cc_profile;
	uint32_t cap;
	uint16_t max_wimm, max_wimm_dest;
	uint8_t mpr, mpr_dest, timeout, linear, exponential, reserved[3];
};

struct device {
	uint32_t versions;
	uint16_t max_wimm, max_wimm_dest;
	uint8_t max_mpr, resolution, reserved[2];
	uint32_t max_hints, cap;
};

int call_modify(struct ibv_qp *qp, const struct attr *attr, uint32_t mask);
int call_query(struct ibv_qp *qp, struct attr *attr);
int call_device(struct ibv_context *context, struct device *d);

/* ---- verbs.c ---- */

/* libibverbs returns the functions of libibverbs itself. A library between the program and libibverbs that has functions of
 * these names, as Microsoft's mrc-verbs-shim does, would call this library again. */
struct libibverbs {
	struct ibv_cq *(*create_cq)(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
	int (*destroy_cq)(struct ibv_cq *);
	struct ibv_qp *(*create_qp)(struct ibv_pd *, struct ibv_qp_init_attr *);
	int (*destroy_qp)(struct ibv_qp *);
	int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int);
	int (*query_qp)(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *);
};
const struct libibverbs *libibverbs(void);

/* fail sets errno; -1. */
int fail(int error);

#endif
