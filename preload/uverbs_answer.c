/* Answers to commands. */
#include "commands.h"

#include <errno.h>
#include <string.h>

#include <rdma/rdma_user_rxe.h>

/* Of enum ib_qp_attr_mask and enum ib_qp_state. */
enum { MASK_STATE = 1, STATE_RTS = 3 };

/* provider_part returns the provider's part of the answer, NULL if it has less than size bytes. */
static const void *provider_part(struct command *m, size_t core_size, size_t size)
{
	struct ib_uverbs_cmd_hdr h;
	memcpy(&h, m->bytes, sizeof h);
	size_t at = m->extended ? h.out_words * 8 : core_size;
	return at + size <= m->c->answer.len ? m->c->answer.body + at : NULL;
}

/* map_ring maps a ring for the library. */
static void map_ring(struct command *m, struct ring *r, const struct mminfo *mi)
{
	ring_unmap(r);
	if (mi && mi->size > 0)
		*r = ring_map(m->c->rings, mi->offset, mi->size);
}

/* created records the handle and maps the rings of a new object. The caller holds c->lock. */
static bool created(struct command *m)
{
	struct object *o = m->object;
	uint32_t handle[2];
	if (m->c->answer.len < sizeof handle)
		return false;
	memcpy(handle, m->c->answer.body, sizeof handle); /* all these responses begin with it */
	const struct mminfo *mi;
	switch (o->kind) {
	case OBJ_CQ:
		mi = provider_part(m, sizeof(struct ib_uverbs_create_cq_resp), sizeof *mi);
		map_ring(m, &o->cq, mi);
		break;
	case OBJ_QP:
		o->qpn = handle[1];
		mi = provider_part(m, sizeof(struct ib_uverbs_create_qp_resp), 2 * sizeof *mi);
		map_ring(m, &o->rq, mi);
		map_ring(m, &o->sq, mi ? mi + 1 : NULL);
		break;
	default:
		break;
	}
	if (o->kind == OBJ_QP && handle[0] < DOORBELL_QPS)
		atomic_store(&m->c->ready[handle[0]], false);
	return objects_set_handle(&m->c->objects, o, handle[0]);
}

void *command_core(struct command *m)
{
	return m->bytes + (m->extended ? EX_HDR : HDR);
}

bool command_destroys(const struct command *m)
{
	static const uint64_t destroy = 1ull << IB_USER_VERBS_CMD_DEALLOC_PD | 1ull << IB_USER_VERBS_CMD_DESTROY_AH |
					1ull << IB_USER_VERBS_CMD_DEREG_MR | 1ull << IB_USER_VERBS_CMD_DEALLOC_MW |
					1ull << IB_USER_VERBS_CMD_DESTROY_CQ | 1ull << IB_USER_VERBS_CMD_DESTROY_QP |
					1ull << IB_USER_VERBS_CMD_DETACH_MCAST | 1ull << IB_USER_VERBS_CMD_DESTROY_SRQ;
	return !m->extended && m->number < 64 && destroy >> m->number & 1;
}

void answer_destroyed(struct answer *a)
{
	memset(a->body, 0, sizeof a->body);
	a->len = sizeof(struct ib_uverbs_destroy_cq_resp); /* the longest */
	a->nfd = 0;
	a->ret = 0;
}

/* destroyed returns the number of events that the program has read, because libibverbs waits
 * for as many acknowledgements. The caller holds c->lock. */
static void destroyed(struct command *m)
{
	struct object *o = m->object;
	uint32_t counts[2] = { o->kind == OBJ_CQ ? o->comp_read : o->async_read, o->async_read };
	struct answer *a = &m->c->answer;
	size_t n = o->kind == OBJ_CQ ? sizeof counts : sizeof counts[0];
	if (a->ret == 0 && a->len >= n)
		memcpy(a->body, counts, n);
	objects_remove(&m->c->objects, o);
	channels_purge(m->c);
}

/* modified records whether a queue pair may send. */
static void modified(struct command *m)
{
	const struct ib_uverbs_modify_qp *qp = command_core(m); /* also begins the extended structure */
	if (m->c->answer.ret == 0 && qp->attr_mask & MASK_STATE && qp->qp_handle < DOORBELL_QPS)
		atomic_store(&m->c->ready[qp->qp_handle], qp->qp_state >= STATE_RTS);
}

/* A new object without a usable handle is a failure. */
int answer_settle(struct command *m)
{
	int ret = m->c->answer.ret;
	if (m->number == IB_USER_VERBS_CMD_MODIFY_QP)
		modified(m);
	if (!m->object)
		return ret;
	pthread_mutex_lock(&m->c->lock);
	switch (m->number) {
	case IB_USER_VERBS_CMD_RESIZE_CQ:
		if (ret == 0)
			map_ring(m, &m->object->cq,
				  provider_part(m, sizeof(struct ib_uverbs_resize_cq_resp), sizeof(struct mminfo)));
		break;
	case IB_USER_VERBS_CMD_DESTROY_CQ:
	case IB_USER_VERBS_CMD_DESTROY_QP:
	case IB_USER_VERBS_CMD_DESTROY_SRQ:
		if (ret == 0)
			destroyed(m);
		break;
	default:
		if (ret == 0 && !created(m))
			ret = -EIO;
		if (ret != 0)
			objects_remove(&m->c->objects, m->object);
	}
	pthread_mutex_unlock(&m->c->lock);
	return ret;
}

/* opens returns the kind of channel that a command opens, FD_NONE if none. */
static enum fd_kind opens(const struct command *m)
{
	if (m->extended)
		return FD_NONE;
	return m->number == IB_USER_VERBS_CMD_GET_CONTEXT	   ? FD_ASYNC :
	       m->number == IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL ? FD_COMP :
								     FD_NONE;
}

/* place_number stores the number of a new descriptor in the response and makes the descriptor
 * a channel. */
static int place_number(struct command *m, struct answer_fd *f)
{
	struct answer *a = &m->c->answer;
	uint32_t id;
	if (opens(m) == FD_NONE || f->arg > a->len || a->len - f->arg < sizeof id)
		return -EIO;
	memcpy(&id, a->body + f->arg, sizeof id);
	memcpy(a->body + f->arg, &f->fd, sizeof f->fd);
	return channel_new(m->c, opens(m), f->fd, id);
}

/* A command that opens a channel must get exactly one descriptor. Otherwise the program would
 * use the daemon's id as a descriptor. */
int answer_take_fds(struct command *m)
{
	struct answer *a = &m->c->answer;
	if (opens(m) != FD_NONE && (a->nfd != 1 || a->fd[0].kind != ANSWER_NUMBER)) {
		answer_close(a, 0);
		return -EIO;
	}
	for (unsigned i = 0; i < a->nfd; i++) {
		struct answer_fd *f = &a->fd[i];
		int err = f->kind == ANSWER_NUMBER ? place_number(m, f) : -EIO;
		if (err) {
			answer_close(a, i);
			return err;
		}
	}
	a->nfd = 0;
	return 0;
}

int answer_mapped(struct command *m)
{
	const uint32_t *handle = provider_part(m, sizeof(struct ib_uverbs_reg_mr_resp), 2 * sizeof *handle);
	if (!handle)
		return -EIO;
	mr_mapped(&m->source, *handle);
	return 0;
}

