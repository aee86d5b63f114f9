/* Hints. A software NIC has no resources that it could reserve by them, so they are memory of the program only. */
#include "objects.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { KNOWN = MRC_QP_HINT_NUM_QPS_PER_PEER | MRC_QP_HINT_NUM_SEND_PEERS | MRC_QP_HINT_NUM_REMOTE_RECV_PEERS | MRC_QP_HINT_VENDOR_CFG };

/* copy copies the attributes in mask. */
static void copy(struct mrc_qp_hint_attr *to, const struct mrc_qp_hint_attr *from, int mask)
{
	if (mask & MRC_QP_HINT_NUM_QPS_PER_PEER)
		to->num_qps_per_peer = from->num_qps_per_peer;
	if (mask & MRC_QP_HINT_NUM_SEND_PEERS)
		to->num_send_peers = from->num_send_peers;
	if (mask & MRC_QP_HINT_NUM_REMOTE_RECV_PEERS)
		to->num_remote_recv_peers = from->num_remote_recv_peers;
	if (mask & MRC_QP_HINT_VENDOR_CFG)
		memcpy(to->vendor_cfg, from->vendor_cfg, sizeof to->vendor_cfg);
}

/* valid returns true if no given number is negative. */
static bool valid(const struct mrc_qp_hint_attr *a, int mask)
{
	struct mrc_qp_hint_attr given = { 0 };
	copy(&given, a, mask);
	return !(mask & ~KNOWN) && given.num_qps_per_peer >= 0 && given.num_send_peers >= 0 && given.num_remote_recv_peers >= 0;
}

EXPORT struct mrc_qp_hint *mrc_create_qp_hint(struct mrc_context *c, struct mrc_qp_hint_init_attr *init_attr)
{
	if (!c || !init_attr || !valid(&init_attr->attr, KNOWN)) {
		errno = EINVAL;
		return NULL;
	}
	struct mrc_qp_hint *h = calloc(1, sizeof *h);
	if (!h)
		return NULL;
	h->context = c;
	h->attr = init_attr->attr;
	atomic_fetch_add(&c->objects, 1);
	return h;
}

EXPORT int mrc_destroy_qp_hint(struct mrc_qp_hint *h)
{
	if (!h)
		return fail(EINVAL);
	if (atomic_load(&h->users) != 0)
		return fail(EBUSY);
	atomic_fetch_sub(&h->context->objects, 1);
	free(h);
	return 0;
}

EXPORT int mrc_query_qp_hint(struct mrc_qp_hint *h, struct mrc_qp_hint_attr *attr, int mask)
{
	if (!h || !attr || mask & ~KNOWN)
		return fail(EINVAL);
	copy(attr, &h->attr, mask);
	return 0;
}

EXPORT int mrc_modify_qp_hint(struct mrc_qp_hint *h, struct mrc_qp_hint_attr *attr, int mask)
{
	if (!h || !attr || !valid(attr, mask))
		return fail(EINVAL);
	copy(&h->attr, attr, mask);
	return 0;
}
