/* A loop with a completion channel. */
#include "verbs.h"

struct user {
	struct loop l;
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static inline struct user user_open(void)
{
	struct user u = { .l = loop_open() };
	CHECK((u.ch = ibv_create_comp_channel(u.l.ctx)) != NULL);
	CHECK((u.cq = ibv_create_cq(u.l.ctx, 32, NULL, u.ch, 0)) != NULL);
	u.qp = loop_qp(&u.l, u.cq, u.cq);
	return u;
}

static inline void user_close(struct user *u)
{
	CHECK(ibv_destroy_qp(u->qp) == 0 && ibv_destroy_cq(u->cq) == 0 && ibv_destroy_comp_channel(u->ch) == 0);
	CHECK(ibv_dereg_mr(u->l.mr) == 0 && ibv_dealloc_pd(u->l.pd) == 0 && ibv_close_device(u->l.ctx) == 0);
	free(u->l.buf);
}

/* message sends a message, which causes two completions and one event. */
static inline void message(struct user *u)
{
	CHECK(ibv_req_notify_cq(u->cq, 0) == 0);
	post_recv(&u->l, u->qp, 1);
	CHECK(post_send(&u->l, u->qp, 2) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(reap(u->cq).status == IBV_WC_SUCCESS);
}

static inline void take_event(struct user *u)
{
	struct ibv_cq *got;
	void *context;
	CHECK(ibv_get_cq_event(u->ch, &got, &context) == 0 && got == u->cq);
	ibv_ack_cq_events(got, 1);
}

/* talk sends a message and reads its event. */
static inline void talk(struct user *u)
{
	message(u);
	take_event(u);
}
