/* A library that makes queue pairs of RC those of MRC, under a program that knows libibverbs only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <mrc.h>

#define EXPORT __attribute__((visibility("default")))

/* pairs maps objects of libibverbs to those of MRC, which begin with a pointer to them. */
static void *pairs[64];
static struct mrc_context *context;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *keep(void *object)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < 64; i++)
		if (!pairs[i]) {
			pairs[i] = object;
			pthread_mutex_unlock(&lock);
			return *(void **)object;
		}
	abort();
}

static void **find(void *verbs)
{
	for (int i = 0; i < 64; i++)
		if (pairs[i] && *(void **)pairs[i] == verbs)
			return &pairs[i];
	abort();
}

static void known(struct ibv_context *c)
{
	struct mrc_attr attr;
	int supported = 0;
	if (context)
		return;
	if (mrc_query_device(c, &attr, &supported) || !supported || !(context = mrc_create_context(c, NULL)))
		abort();
	fprintf(stderr, "shim: MRC, version %u\n", attr.mrc_protocol_version);
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *cq_context, struct ibv_comp_channel *channel, int vector)
{
	(void)channel;
	known(c);
	struct mrc_cq *cq = mrc_create_cq(context, cqe, cq_context, NULL, vector);
	return cq ? keep(cq) : NULL;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	void **at = find(cq);
	struct mrc_cq *object = *at;
	*at = NULL;
	return mrc_destroy_cq(object);
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct mrc_qp_init_attr init = { .qp_context = a->qp_context, .send_cq = *find(a->send_cq), .recv_cq = *find(a->recv_cq),
					 .cap = a->cap, .sq_sig_all = a->sq_sig_all, .pd = pd };
	struct mrc_qp *qp = mrc_create_qp(context, &init);
	a->cap = init.cap;
	return qp ? keep(qp) : NULL;
}

EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	void **at = find(qp);
	struct mrc_qp *object = *at;
	*at = NULL;
	return mrc_destroy_qp(object);
}

EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask) { return mrc_modify_qp(*find(qp), a, mask, NULL, 0); }

EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	(void)init;
	return mrc_query_qp(*find(qp), a, mask, NULL, 0, NULL);
}
