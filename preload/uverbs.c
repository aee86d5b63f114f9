/* Commands that a program writes to a verbs device. */
#include "commands.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/rdma_user_rxe.h>

/* Of enum ib_srq_attr_mask. */
enum { MASK_SRQ_MAX_WR = 1 };

/* adopt starts to watch the context of a parent process in this process. A child of
 * daemon(3) uses its parent's context. The caller holds no lock. */
static void adopt(struct context *c)
{
	pid_t was = atomic_load(&c->watcher);
	if (was != process_id() && atomic_compare_exchange_strong(&c->watcher, &was, process_id()))
		death_watch(c);
}
/* ---- doorbells ---- */

/* post_send is the fast path of POST_SEND: the work requests are already in the ring. A queue
 * pair that may not send takes the slow path, on which the daemon refuses. */
static bool post_send(struct context *c, const struct ib_uverbs_post_send *cmd)
{
	if (!c->doorbell || cmd->qp_handle >= DOORBELL_QPS || !atomic_load(&c->ready[cmd->qp_handle]))
		return false;
	doorbell_send(c, cmd->qp_handle);
	return true;
}

/* The word of a completion ring that requests an event, and its bits. */
enum { CQ_ARM = 260, ARM_ANY = 1, ARM_SOLICITED = 2 };

/* req_notify is the fast path of REQ_NOTIFY_CQ: a store arms the ring. If the ring already
 * holds completions, a doorbell makes the daemon report them, as adapters do. c->call
 * excludes RESIZE_CQ, which replaces the ring. */
static bool req_notify(struct context *c, const struct ib_uverbs_req_notify_cq *cmd)
{
	if (!c->doorbell || cmd->cq_handle >= DOORBELL_QPS)
		return false;
	call_lock(c->call, c->fd);
	pthread_mutex_lock(&c->lock);
	struct object *o = objects_get(&c->objects, OBJ_CQ, cmd->cq_handle);
	bool armed = o && o->cq.mem && !atomic_load(&c->dead);
	if (armed) {
		atomic_fetch_or((_Atomic uint32_t *)(o->cq.mem + CQ_ARM),
				cmd->solicited_only ? ARM_SOLICITED : ARM_ANY);
		if (!ring_empty(&o->cq))
			doorbell_armed(c, cmd->cq_handle);
	}
	pthread_mutex_unlock(&c->lock);
	call_unlock(c->call);
	return armed;
}

/* ---- requests ---- */

/* Structures of plain commands begin with the response pointer, if they have one. */
static bool has(struct command *m, size_t size)
{
	return m->n >= (m->extended ? EX_HDR : HDR) + size;
}

/* parse copies a command of the program; false if it is malformed. */
static bool parse(struct command *m, const void *buf, size_t n)
{
	struct ib_uverbs_cmd_hdr h;
	if (n < sizeof h || n > sizeof m->bytes)
		return false;
	memcpy(m->bytes, buf, n);
	memcpy(&h, buf, sizeof h);
	m->n = n;
	m->number = h.command & 0xff;
	m->extended = h.command >> 31;
	m->object = NULL;
	if (!m->extended) {
		m->room = h.out_words * 4;
		uint64_t p = 0;
		if (m->room && n >= HDR + sizeof p)
			memcpy(&p, m->bytes + HDR, sizeof p);
		m->response = (void *)(uintptr_t)p;
		return true;
	}
	struct ib_uverbs_ex_cmd_hdr x;
	if (n < EX_HDR)
		return false;
	memcpy(&x, m->bytes + HDR, sizeof x);
	m->room = (h.out_words + x.provider_out_words) * 8;
	m->response = (void *)(uintptr_t)x.response;
	return true;
}

/* create adds an object and replaces the user handle with its cookie, which its events carry. */
static int create(struct command *m, enum object_kind kind, __u64 *user_handle)
{
	pthread_mutex_lock(&m->c->lock);
	m->object = objects_add(&m->c->objects, kind, *user_handle);
	if (m->object) {
		m->object->channel = NO_CHANNEL;
		*user_handle = object_cookie(m->object);
	}
	pthread_mutex_unlock(&m->c->lock);
	return m->object ? 0 : -ENOMEM;
}

/* create_cq also translates the descriptor of the completion channel to the daemon's id. */
static int create_cq(struct command *m, __u64 *user_handle, __s32 *channel)
{
	uint32_t id = NO_CHANNEL;
	if (*channel >= 0) {
		struct file *f = fd_file(*channel);
		if (!f || f->kind != FD_COMP || ((struct channel *)f)->context != m->c)
			return -EBADF;
		id = ((struct channel *)f)->id;
		*channel = (__s32)id;
	}
	int err = create(m, OBJ_CQ, user_handle);
	if (!err)
		m->object->channel = id;
	return err;
}

static int create_qp(struct command *m, __u64 *user_handle, uint32_t send_cq, uint32_t recv_cq)
{
	int err = create(m, OBJ_QP, user_handle);
	if (!err) {
		m->object->send_cq = send_cq;
		m->object->recv_cq = recv_cq;
	}
	return err;
}

/* find stores the object that a command names. */
static int find(struct command *m, enum object_kind kind, uint32_t handle)
{
	pthread_mutex_lock(&m->c->lock);
	m->object = objects_get(&m->c->objects, kind, handle);
	pthread_mutex_unlock(&m->c->lock);
	return 0; /* the daemon refuses an unknown handle */
}

__thread uint32_t uverbs_flags;

static int prepare_extended(struct command *m)
{
	struct ib_uverbs_ex_create_cq *cq = command_core(m);
	struct ib_uverbs_ex_create_qp *qp = command_core(m);
	switch (m->number) {
	case IB_USER_VERBS_CMD_CREATE_CQ:
		if (!has(m, sizeof *cq))
			return 0;
		cq->flags |= uverbs_flags;
		return create_cq(m, &cq->user_handle, &cq->comp_channel);
	case IB_USER_VERBS_CMD_CREATE_QP:
		if (!has(m, offsetof(struct ib_uverbs_ex_create_qp, rwq_ind_tbl_handle)))
			return 0;
		qp->create_flags |= uverbs_flags;
		return create_qp(m, &qp->user_handle, qp->send_cq_handle, qp->recv_cq_handle);
	}
	return 0;
}

/* resize_srq requests the location of the new ring as the response. The provider passes an
 * address for it and has no response. */
static void resize_srq(struct command *m)
{
	struct {
		struct ib_uverbs_modify_srq core;
		struct rxe_modify_srq_cmd part;
	} *u = command_core(m);
	struct ib_uverbs_cmd_hdr h;
	if (!has(m, sizeof *u) || !(u->core.attr_mask & MASK_SRQ_MAX_WR))
		return;
	m->response = (void *)(uintptr_t)u->part.mmap_info_addr;
	m->room = sizeof(struct mminfo);
	memcpy(&h, m->bytes, sizeof h);
	h.out_words = m->room / 4;
	memcpy(m->bytes, &h, sizeof h);
}

/* prepare translates descriptors and user handles, which only this process knows. Commands
 * that are too short go to the daemon unchanged, and the daemon refuses them. */
static int prepare(struct command *m)
{
	union {
		struct ib_uverbs_create_cq create_cq;
		struct ib_uverbs_resize_cq resize_cq;
		struct ib_uverbs_destroy_cq destroy_cq;
		struct ib_uverbs_create_qp create_qp;
		struct ib_uverbs_destroy_qp destroy_qp;
		struct ib_uverbs_create_srq create_srq;
		struct ib_uverbs_create_xsrq create_xsrq;
		struct ib_uverbs_destroy_srq destroy_srq;
	} *u = command_core(m);
	if (m->extended)
		return prepare_extended(m);
	switch (m->number) {
	case IB_USER_VERBS_CMD_CREATE_CQ:
		if (!has(m, sizeof u->create_cq))
			return 0;
		u->create_cq.reserved = uverbs_flags;
		return create_cq(m, &u->create_cq.user_handle, &u->create_cq.comp_channel);
	case IB_USER_VERBS_CMD_RESIZE_CQ:
		return has(m, sizeof u->resize_cq) ? find(m, OBJ_CQ, u->resize_cq.cq_handle) : 0;
	case IB_USER_VERBS_CMD_DESTROY_CQ:
		return has(m, sizeof u->destroy_cq) ? find(m, OBJ_CQ, u->destroy_cq.cq_handle) : 0;
	case IB_USER_VERBS_CMD_CREATE_QP:
		if (!has(m, sizeof u->create_qp))
			return 0;
		u->create_qp.reserved = uverbs_flags;
		return create_qp(m, &u->create_qp.user_handle, u->create_qp.send_cq_handle, u->create_qp.recv_cq_handle);
	case IB_USER_VERBS_CMD_DESTROY_QP:
		return has(m, sizeof u->destroy_qp) ? find(m, OBJ_QP, u->destroy_qp.qp_handle) : 0;
	case IB_USER_VERBS_CMD_CREATE_SRQ:
		return has(m, sizeof u->create_srq) ? create(m, OBJ_SRQ, &u->create_srq.user_handle) : 0;
	case IB_USER_VERBS_CMD_CREATE_XSRQ:
		return has(m, sizeof u->create_xsrq) ? create(m, OBJ_SRQ, &u->create_xsrq.user_handle) : 0;
	case IB_USER_VERBS_CMD_MODIFY_SRQ:
		resize_srq(m);
		return 0;
	case IB_USER_VERBS_CMD_DESTROY_SRQ:
		return has(m, sizeof u->destroy_srq) ? find(m, OBJ_SRQ, u->destroy_srq.srq_handle) : 0;
	}
	return 0;
}

/* ---- memory ---- */

__thread struct dmabuf *uverbs_dmabuf;

enum { LOCAL_WRITE = 1, ON_DEMAND = 1 << 6 }; /* of enum ibv_access_flags */

/* registers stores the range that a command registers. It returns the size of the command's
 * structure, 0 for other commands. */
static size_t registers(struct command *m, uint64_t *start, uint64_t *length)
{
	enum { TRANSLATION = 1 }; /* IBV_REREG_MR_CHANGE_TRANSLATION */
	struct ib_uverbs_reg_mr *reg = command_core(m);
	struct ib_uverbs_rereg_mr *rereg = command_core(m);
	if (!m->extended && m->number == IB_USER_VERBS_CMD_REG_MR && has(m, sizeof *reg)) {
		*start = reg->start;
		*length = reg->length;
		return sizeof *reg;
	}
	if (!m->extended && m->number == IB_USER_VERBS_CMD_REREG_MR && has(m, sizeof *rereg) &&
	    rereg->flags & TRANSLATION) {
		*start = rereg->start;
		*length = rereg->length;
		return sizeof *rereg;
	}
	return 0;
}

/* locate prepares the memory that a command registers. */
static void locate(struct command *m, uint64_t start, uint64_t length, unsigned ways)
{
	struct ib_uverbs_reg_mr *reg = command_core(m);
	bool new = m->number == IB_USER_VERBS_CMD_REG_MR;
	if (uverbs_dmabuf && new) {
		reg->access_flags &= ~ON_DEMAND;
		shared_describe(&m->source, uverbs_dmabuf->fd, start);
		return;
	}
	if (!new) /* the command may keep the rights of the region */
		ways = 0;
	m->source = mr_prepare(m->c, start, length, reg->access_flags & LOCAL_WRITE, ways);
}

/* prepare_memory prepares the memory that a command registers and describes its location in
 * the provider's part, which is otherwise empty. */
static void prepare_memory(struct command *m, unsigned ways)
{
	uint64_t start, length;
	struct ib_uverbs_cmd_hdr h;
	m->source = (struct mr_source){ 0 };
	size_t size = registers(m, &start, &length);
	if (size == 0)
		return;
	locate(m, start, length, ways);
	uint32_t part[] = { m->source.kind, m->source.handle };
	memcpy(m->bytes + HDR + size, part, sizeof part);
	m->n = HDR + size + sizeof part;
	memcpy(&h, m->bytes, sizeof h);
	if (m->source.kind == MR_MAP) {
		memcpy(m->bytes + m->n, &m->source.map, sizeof m->source.map);
		m->n += sizeof m->source.map;
		h.out_words = (sizeof(struct ib_uverbs_reg_mr_resp) + sizeof part) / 4;
	} else if (m->source.kind == MR_FILE) {
		memcpy(m->bytes + m->n, &m->source.place, sizeof m->source.place);
		m->n += sizeof m->source.place;
	}
	h.in_words = m->n / 4;
	memcpy(m->bytes, &h, sizeof h);
}
/* execute sends a command and delivers the answer. The caller holds c->call. */
static int execute(struct command *m)
{
	struct context *c = m->c;
	int ret = m->source.kind == MR_COPIED ? pass_memory_needed(c) : 0;
	if (ret == 0)
		ret = prepare(m);
	if (ret)
		return ret;
	ret = context_send(c, m->bytes, m->n, &m->source.fd, m->source.kind == MR_FILE);
	if (ret == -EIO && command_destroys(m) && conn_hung_up(c->fd))
		answer_destroyed(&c->answer);
	ret = answer_settle(m);
	if (ret == 0 && m->source.kind == MR_MAP)
		ret = answer_mapped(m);
	if (ret) {
		answer_close(&c->answer, 0);
		return ret;
	}
	ret = answer_take_fds(m);
	if (ret)
		return ret;
	if (m->response)
		answer_copy(&c->answer, m->response, m->room);
	if (m->number == IB_USER_VERBS_CMD_GET_CONTEXT) {
		context_start_doorbells(c);
		pass_memory(c); /* while /proc is visible: programs may confine themselves later */
	}
	return 0;
}

/* record_memory updates the list of regions after a command. */
static void record_memory(struct command *m)
{
	struct ib_uverbs_rereg_mr *rereg = command_core(m);
	struct ib_uverbs_dereg_mr *dereg = command_core(m);
	uint64_t start, length;
	uint32_t handle;
	if (registers(m, &start, &length)) {
		if (m->number == IB_USER_VERBS_CMD_REREG_MR) {
			handle = rereg->mr_handle;
			mr_released(m->c, handle);
		} else if (m->response && m->room >= sizeof handle) {
			memcpy(&handle, m->response, sizeof handle);
		} else {
			return mr_abandoned(&m->source);
		}
		mr_registered(m->c, handle, start, length, &m->source);
	} else if (!m->extended && m->number == IB_USER_VERBS_CMD_DEREG_MR) {
		mr_released(m->c, dereg->mr_handle);
	}
}

/* run executes a command without a fast path. */
static int run(struct context *c, const void *buf, size_t n)
{
	struct command *m = malloc(sizeof *m);
	if (!m)
		return -ENOMEM;
	m->c = c;
	int ret = -EINVAL, cancel;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	file_hold(&c->file); /* the program may close it meanwhile */
	adopt(c);
	/* If the daemon fails to map memory with the registering command, try other ways. */
	unsigned ways = MR_TOGETHER | MR_SHARED;
	for (bool retry = parse(m, buf, n); retry; ways = 0) {
		prepare_memory(m, ways);
		call_lock(c->call, c->fd);
		ret = execute(m);
		call_unlock(c->call);
		retry = ret != 0 && (m->source.kind == MR_MAP || m->source.kind == MR_FILE) && !uverbs_dmabuf && parse(m, buf, n);
		if (ret == 0)
			record_memory(m);
		else
			mr_abandoned(&m->source);
	}
	file_put(&c->file);
	pthread_setcancelstate(cancel, NULL);
	free(m);
	return ret;
}

ssize_t uverbs_write(struct context *c, const void *buf, size_t n)
{
	const struct ib_uverbs_cmd_hdr *h = buf;
	if (n >= HDR + sizeof(struct ib_uverbs_post_send) && h->command == IB_USER_VERBS_CMD_POST_SEND &&
	    post_send(c, (const void *)(h + 1)))
		return n;
	if (n >= HDR + sizeof(struct ib_uverbs_req_notify_cq) && h->command == IB_USER_VERBS_CMD_REQ_NOTIFY_CQ &&
	    req_notify(c, (const void *)(h + 1)))
		return n;
	int ret = run(c, buf, n);
	if (ret < 0) {
		errno = -ret;
		return -1;
	}
	return n;
}
