/* Devices, contexts and completion queues. */
#include "objects.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Programs were compiled with OCP's header, so the layouts are those of its compilers. */
#if defined __x86_64__ || defined __aarch64__
_Static_assert(sizeof(struct mrc_device_attr) == 20, "mrc_device_attr");
_Static_assert(sizeof(struct mrc_attr) == 20, "mrc_attr");
_Static_assert(sizeof(struct mrc_context_attr) == 8, "mrc_context_attr");
_Static_assert(sizeof(struct mrc_qp_hint_attr) == 140, "mrc_qp_hint_attr");
_Static_assert(sizeof(struct mrc_qp_init_attr) == 72, "mrc_qp_init_attr");
_Static_assert(sizeof(struct mrc_qp_attr) == 176, "mrc_qp_attr");
_Static_assert(sizeof(struct mrc_async_event) == 16, "mrc_async_event");
#endif

EXPORT int mrc_query_device(struct ibv_context *context, mrc_device_attr_ptr to, int *supported)
{
	struct mrc_device_attr *attr = to.device;
	struct device d;
	if (!context || !attr || !supported)
		return fail(EINVAL);
	memset(attr, 0, sizeof *attr);
	*supported = 0;
	int error = call_device(context, &d);
	if (error)
		return error == EIO ? fail(EIO) : 0; /* EIO: the daemon is gone */
	attr->mrc_protocol_version = d.versions;
	attr->wimm_attr.max_wimm = d.max_wimm;
	attr->wimm_attr.max_wimm_dest = d.max_wimm_dest;
	attr->mpr_attr.max_mpr = d.max_mpr;
	attr->mpr_attr.mpr_resolution = d.resolution;
	attr->qp_attr.max_qp_hint = INT_MAX; /* hints are memory of the program */
	attr->cap = d.cap;
	*supported = 1;
	return 0;
}

EXPORT int mrc_query_device_ex(struct ibv_context *context, struct mrc_context *mcontext, mrc_device_attr_ptr attr,
			       int *supported)
{
	return mrc_query_device(mcontext ? mcontext->verbs : context, attr, supported);
}

static void store(uint32_t *to, uint32_t value)
{
	if (to)
		*to = value;
}

EXPORT void mrc_query_version(uint32_t *current_version, uint32_t *last_supported_version, uint32_t *vendor_version,
			      uint32_t *last_supported_vendor_version)
{
	store(current_version, MRC_API_CURRENT_VERSION);
	store(last_supported_version, MRC_API_LAST_SUPPORTED_VERSION);
	store(vendor_version, MRC_VENDOR_API_CURRENT_VERSION);
	store(last_supported_vendor_version, MRC_VENDOR_API_LAST_SUPPORTED_VERSION);
}

EXPORT struct mrc_context *mrc_create_context(struct ibv_context *vcontext, struct mrc_context_attr *context_attr)
{
	struct mrc_device_attr attr;
	int supported;
	if (context_attr && (context_attr->mrc_api_version_used > MRC_API_CURRENT_VERSION ||
			     context_attr->mrc_vendor_api_version_used > MRC_VENDOR_API_CURRENT_VERSION)) {
		errno = EINVAL;
		return NULL;
	}
	if (mrc_query_device(vcontext, &attr, &supported) != 0)
		return NULL;
	if (!supported) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	struct mrc_context *c = calloc(1, sizeof *c);
	if (c)
		c->verbs = vcontext;
	return c;
}

EXPORT int mrc_destroy_context(struct mrc_context *c)
{
	if (!c)
		return fail(EINVAL);
	if (atomic_load(&c->objects) != 0)
		return fail(EBUSY);
	free(c);
	return 0;
}

EXPORT struct mrc_cq *mrc_create_cq(struct mrc_context *c, int cqe, void *cq_context, struct mrc_comp_channel *channel,
				    int comp_vector)
{
	if (!c || channel) {
		errno = c ? EOPNOTSUPP : EINVAL;
		return NULL;
	}
	struct mrc_cq *cq = calloc(1, sizeof *cq);
	if (!cq)
		return NULL;
	cq->cq = libibverbs()->create_cq(c->verbs, cqe, cq_context, NULL, comp_vector);
	if (!cq->cq) {
		free(cq);
		return NULL;
	}
	cq->context = c;
	atomic_fetch_add(&c->objects, 1);
	return cq;
}

EXPORT int mrc_poll_cq(struct mrc_cq *cq, int num_entries, struct ibv_wc *wc)
{
	return cq ? ibv_poll_cq(cq->cq, num_entries, wc) : fail(EINVAL);
}

EXPORT int mrc_destroy_cq(struct mrc_cq *cq)
{
	if (!cq)
		return EINVAL;
	int error = libibverbs()->destroy_cq(cq->cq);
	if (error)
		return error;
	atomic_fetch_sub(&cq->context->objects, 1);
	free(cq);
	return 0;
}
