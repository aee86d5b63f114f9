/* Verbs contexts: commands, rings, doorbells. */
#include "preload.h"
#include "mr.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>

/* Doorbell memory (docs/reference/control-protocol.md). */
enum { BELL_SLEEPING = 0, BELL_SUMMARY = 64, BELL_CQ_SUMMARY = 96, BELL_MAP = 4096, BELL_CQ_MAP = 6144, BELL_SIZE = 12288 };

enum { EXT_VERSION = 2, HELLO_ROOM = 264 };

struct hello {
	struct ib_uverbs_cmd_hdr h;
	uint32_t version;
};

struct doorbell {
	uint64_t offset; /* in the context's memfd */
	uint32_t size, reserved;
};

/* Of enum ib_qp_attr_mask, enum ib_qp_state and enum ib_srq_attr_mask. */
enum { MASK_STATE = 1, STATE_RTS = 3, MASK_SRQ_MAX_WR = 1 };

enum { HDR = sizeof(struct ib_uverbs_cmd_hdr), EX_HDR = HDR + sizeof(struct ib_uverbs_ex_cmd_hdr) };

/* A command of the program on its way. */
struct command {
	struct context *c;
	uint8_t bytes[MAX_MESSAGE]; /* a copy: some fields are translated */
	size_t n;
	uint32_t number;
	bool extended;
	void *response; /* where the program wants it */
	size_t room;
	struct object *object; /* created or destroyed by it */
	struct mr_source source; /* of a command about memory: where it is */
};

/* ---- contexts ---- */

void context_put(struct context *c)
{
	if (atomic_fetch_sub(&c->holders, 1) != 1)
		return;
	objects_free(&c->objects);
	if (c->bell) {
		syscall(SYS_munmap, c->bell, BELL_SIZE);
		fd_drop(c->bell_fd);
	}
	call_lock_free(c->call);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

/* context_closed ends the connection when the program has closed the device;
 * channels may still be open. */
static void context_closed(struct file *f)
{
	struct context *c = (struct context *)f;
	death_forget(c);
	mr_context_closed(c);
	fd_drop(c->fd);
	fd_drop(c->rings);
	context_put(c);
}

/* greet asks for the memfd of the context; -1 with errno set. */
static int greet(struct context *c)
{
	struct hello h = { .h = { .command = EXT_HELLO, .in_words = sizeof h / 4, .out_words = HELLO_ROOM / 4 },
			   .version = EXT_VERSION };
	struct answer *a = &c->answer;
	int r = conn_call(c->fd, &h, sizeof h, NULL, 0, a);
	if (r == 0 && a->nfd == 1 && a->fd[0].kind == ANSWER_MEMORY)
		return a->fd[0].fd;
	answer_close(a, 0);
	errno = r < 0 ? -r : EPROTO;
	return -1;
}

/* context_end gives up what context_open has got. */
static void context_end(struct context *c)
{
	int err = errno;
	if (c->rings >= 0)
		fd_drop(c->rings);
	if (c->fd >= 0)
		fd_drop(c->fd);
	if (c->call)
		call_lock_free(c->call);
	free(c);
	errno = err;
}

/* context_open connects; it returns the program's descriptor or -1 with errno set. */
static int context_open(struct context *c, const char *name)
{
	char class_device[64];
	snprintf(class_device, sizeof class_device, "infiniband_verbs/%s", name);
	c->file = (struct file){ .kind = FD_UVERBS, .rdev = path_rdev(class_device), .release = context_closed };
	c->opener = process_id();
	atomic_init(&c->watcher, process_id());
	atomic_init(&c->holders, 1);
	pthread_mutex_init(&c->lock, NULL);
	c->rings = -1;
	c->fd = fd_own(conn_dial(name));
	c->call = c->fd < 0 ? NULL : call_lock_new();
	int fd = c->call ? greet(c) : -1;
	if (fd >= 0 && (c->rings = fd_keep(fd)) >= 0 && fd_set_file(fd, &c->file) == 0)
		return fd;
	if (fd >= 0)
		syscall(SYS_close, fd);
	return -1;
}

int uverbs_open(const char *name, int flags)
{
	struct context *c = calloc(1, sizeof *c);
	if (!c)
		return -1;
	int fd = context_open(c, name);
	if (fd < 0) {
		context_end(c);
		return -1;
	}
	if (!(flags & O_CLOEXEC))
		syscall(SYS_fcntl, fd, F_SETFD, 0);
	death_watch(c);
	return fd;
}

struct context *context_of(int fd)
{
	struct file *f = fd_file(fd);
	return f && f->kind == FD_UVERBS ? (struct context *)f : NULL;
}

/* adopt: a process that goes on with the context of its parent, as daemon() makes it,
 * watches over it from now on. No lock is held. */
static void adopt(struct context *c)
{
	pid_t was = atomic_load(&c->watcher);
	if (was != process_id() && atomic_compare_exchange_strong(&c->watcher, &was, process_id()))
		death_watch(c);
}

/* call sends a command; the caller holds c->call. */
static int call(struct context *c, const void *cmd, size_t n, const int *fds, size_t nfds)
{
	if (nfds == 0 && !atomic_load(&c->dead) && direct_call(c, cmd, n))
		return 0;
	if (!atomic_load(&c->dead))
		return conn_call(c->fd, cmd, n, fds, nfds, &c->answer);
	c->answer.nfd = 0;
	return c->answer.ret = -EIO;
}

int context_call_on(struct context *c, const void *cmd, size_t n, const int *fds, size_t nfds, void *resp,
		    size_t resp_len)
{
	int ret = call(c, cmd, n, fds, nfds);
	if (ret == 0) {
		if (resp)
			answer_copy(&c->answer, resp, resp_len);
		answer_close(&c->answer, 0);
	}
	return ret;
}

int context_call(struct context *c, const void *cmd, size_t n, int send_fd, void *resp, size_t resp_len)
{
	call_lock(c->call, c->fd);
	int ret = context_call_on(c, cmd, n, &send_fd, send_fd >= 0, resp, resp_len);
	call_unlock(c->call);
	return ret;
}

/* ---- doorbells ---- */

/* start_bell gets the doorbells of a new context. Without them each POST_SEND is a
 * command. The caller holds c->call. */
static void start_bell(struct context *c)
{
	struct ib_uverbs_cmd_hdr cmd = { .command = EXT_DOORBELL, .in_words = HDR / 4,
					 .out_words = sizeof(struct doorbell) / 4 };
	if (call(c, &cmd, sizeof cmd, NULL, 0) != 0)
		return;
	struct answer *a = &c->answer;
	struct doorbell d;
	answer_copy(a, &d, sizeof d);
	if (a->nfd != 1 || a->fd[0].kind != ANSWER_EVENTFD || d.size < BELL_SIZE) {
		answer_close(a, 0);
		return;
	}
	struct ring r = ring_map(c->rings, d.offset, BELL_SIZE);
	c->bell_fd = r.mem ? fd_keep(a->fd[0].fd) : -1;
	if (c->bell_fd < 0)
		ring_unmap(&r);
	c->bell = r.mem;
	answer_close(a, 0);
}

void bell_wake(struct context *c)
{
	_Atomic uint32_t *sleeping = (_Atomic uint32_t *)(c->bell + BELL_SLEEPING);
	if (atomic_load(sleeping) && atomic_exchange(sleeping, 0)) {
		uint64_t one = 1;
		syscall(SYS_write, c->bell_fd, &one, sizeof one);
	}
}

/* ring_bell tells the daemon that a queue needs it: a send queue that has work, or a
 * completion queue that has been armed over completions. */
static void ring_bell(struct context *c, size_t summary, size_t map, uint32_t handle)
{
	uint8_t *b = c->bell;
	uint32_t word = handle / 64;
	atomic_fetch_or((_Atomic uint64_t *)(b + map) + word, (uint64_t)1 << handle % 64);
	atomic_fetch_or((_Atomic uint64_t *)(b + summary) + word / 64, (uint64_t)1 << word % 64);
	bell_wake(c);
}

/* post_send is the fast path: work requests are in the ring already. A queue pair that
 * may not send yet takes the slow one, for the daemon to say so. */
static bool post_send(struct context *c, const struct ib_uverbs_post_send *cmd)
{
	if (!c->bell || cmd->qp_handle >= BELL_QPS || !atomic_load(&c->ready[cmd->qp_handle]))
		return false;
	ring_bell(c, BELL_SUMMARY, BELL_MAP, cmd->qp_handle);
	return true;
}

/* The word of a ring of completions that asks for an event, and its bits. */
enum { CQ_ARM = 260, ARM_ANY = 1, ARM_SOLICITED = 2 };

/* req_notify is the fast path: the ring is armed by a store. Of what lies in it already the
 * daemon tells when it is asked to, as adapters do. RESIZE_CQ, which replaces the ring,
 * holds c->call too. */
static bool req_notify(struct context *c, const struct ib_uverbs_req_notify_cq *cmd)
{
	if (!c->bell || cmd->cq_handle >= BELL_QPS)
		return false;
	call_lock(c->call, c->fd);
	pthread_mutex_lock(&c->lock);
	struct object *o = objects_get(&c->objects, OBJ_CQ, cmd->cq_handle);
	bool armed = o && o->cq.mem && !atomic_load(&c->dead);
	if (armed) {
		atomic_fetch_or((_Atomic uint32_t *)(o->cq.mem + CQ_ARM),
				cmd->solicited_only ? ARM_SOLICITED : ARM_ANY);
		if (!ring_empty(&o->cq))
			ring_bell(c, BELL_CQ_SUMMARY, BELL_CQ_MAP, cmd->cq_handle);
	}
	pthread_mutex_unlock(&c->lock);
	call_unlock(c->call);
	return armed;
}

/* ---- what goes to the daemon ---- */

/* core is the command's own structure. Structures of plain commands begin with the
 * response pointer, if they have one. */
static void *core(struct command *m)
{
	return m->bytes + (m->extended ? EX_HDR : HDR);
}

static bool has(struct command *m, size_t size)
{
	return m->n >= (m->extended ? EX_HDR : HDR) + size;
}

/* parse copies a command of the program. */
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

/* create begins to keep an object: its events will carry our cookie. */
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

/* create_cq also names the completion channel as the daemon does. */
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

/* find remembers the object that a command names. */
static int find(struct command *m, enum object_kind kind, uint32_t handle)
{
	pthread_mutex_lock(&m->c->lock);
	m->object = objects_get(&m->c->objects, kind, handle);
	pthread_mutex_unlock(&m->c->lock);
	return 0; /* the daemon refuses what does not exist */
}

static int prepare_extended(struct command *m)
{
	struct ib_uverbs_ex_create_cq *cq = core(m);
	struct ib_uverbs_ex_create_qp *qp = core(m);
	switch (m->number) {
	case IB_USER_VERBS_CMD_CREATE_CQ:
		return has(m, sizeof *cq) ? create_cq(m, &cq->user_handle, &cq->comp_channel) : 0;
	case IB_USER_VERBS_CMD_CREATE_QP:
		return has(m, offsetof(struct ib_uverbs_ex_create_qp, srq_handle)) ?
			       create_qp(m, &qp->user_handle, qp->send_cq_handle, qp->recv_cq_handle) : 0;
	}
	return 0;
}

/* resize_srq asks where the new ring is. The provider wants that at an address, not in the
 * response, of which it has none. */
static void resize_srq(struct command *m)
{
	struct {
		struct ib_uverbs_modify_srq core;
		struct rxe_modify_srq_cmd part;
	} *u = core(m);
	struct ib_uverbs_cmd_hdr h;
	if (!has(m, sizeof *u) || !(u->core.attr_mask & MASK_SRQ_MAX_WR))
		return;
	m->response = (void *)(uintptr_t)u->part.mmap_info_addr;
	m->room = sizeof(struct mminfo);
	memcpy(&h, m->bytes, sizeof h);
	h.out_words = m->room / 4;
	memcpy(m->bytes, &h, sizeof h);
}

/* prepare translates what only this process can: descriptors, and handles in events.
 * Commands that are too short go as they are, and the daemon refuses them. */
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
	} *u = core(m);
	if (m->extended)
		return prepare_extended(m);
	switch (m->number) {
	case IB_USER_VERBS_CMD_CREATE_CQ:
		return has(m, sizeof u->create_cq) ?
			       create_cq(m, &u->create_cq.user_handle, &u->create_cq.comp_channel) : 0;
	case IB_USER_VERBS_CMD_RESIZE_CQ:
		return has(m, sizeof u->resize_cq) ? find(m, OBJ_CQ, u->resize_cq.cq_handle) : 0;
	case IB_USER_VERBS_CMD_DESTROY_CQ:
		return has(m, sizeof u->destroy_cq) ? find(m, OBJ_CQ, u->destroy_cq.cq_handle) : 0;
	case IB_USER_VERBS_CMD_CREATE_QP:
		return has(m, sizeof u->create_qp) ?
			       create_qp(m, &u->create_qp.user_handle, u->create_qp.send_cq_handle,
					 u->create_qp.recv_cq_handle) : 0;
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

/* ---- what comes back ---- */

/* provider is the provider's part of the answer, which must have size bytes. */
static const void *provider(struct command *m, size_t core_size, size_t size)
{
	struct ib_uverbs_cmd_hdr h;
	memcpy(&h, m->bytes, sizeof h);
	size_t at = m->extended ? h.out_words * 8 : core_size;
	return at + size <= m->c->answer.len ? m->c->answer.body + at : NULL;
}

/* keep_ring maps a ring for the library's own use. */
static void keep_ring(struct command *m, struct ring *r, const struct mminfo *mi)
{
	ring_unmap(r);
	if (mi && mi->size > 0)
		*r = ring_map(m->c->rings, mi->offset, mi->size);
}

/* created names a new object and keeps its rings. The caller holds c->lock. */
static bool created(struct command *m)
{
	struct object *o = m->object;
	uint32_t handle[2];
	if (m->c->answer.len < sizeof handle)
		return false;
	memcpy(handle, m->c->answer.body, sizeof handle); /* every response begins so */
	const struct mminfo *mi;
	switch (o->kind) {
	case OBJ_CQ:
		mi = provider(m, sizeof(struct ib_uverbs_create_cq_resp), sizeof *mi);
		keep_ring(m, &o->cq, mi);
		break;
	case OBJ_QP:
		o->qpn = handle[1];
		mi = provider(m, sizeof(struct ib_uverbs_create_qp_resp), 2 * sizeof *mi);
		keep_ring(m, &o->rq, mi);
		keep_ring(m, &o->sq, mi ? mi + 1 : NULL);
		break;
	default:
		break;
	}
	if (o->kind == OBJ_QP && handle[0] < BELL_QPS)
		atomic_store(&m->c->ready[handle[0]], false);
	return objects_name(&m->c->objects, o, handle[0]);
}

/* ends reports whether a command ends the life of something. */
static bool ends(const struct command *m)
{
	static const uint64_t destroy = 1ull << IB_USER_VERBS_CMD_DEALLOC_PD | 1ull << IB_USER_VERBS_CMD_DESTROY_AH |
					1ull << IB_USER_VERBS_CMD_DEREG_MR | 1ull << IB_USER_VERBS_CMD_DEALLOC_MW |
					1ull << IB_USER_VERBS_CMD_DESTROY_CQ | 1ull << IB_USER_VERBS_CMD_DESTROY_QP |
					1ull << IB_USER_VERBS_CMD_DETACH_MCAST | 1ull << IB_USER_VERBS_CMD_DESTROY_SRQ;
	return !m->extended && m->number < 64 && destroy >> m->number & 1;
}

/* gone makes the answer to a command that ends something when the daemon, and so what
 * it names, is dead: it succeeds. */
static void gone(struct answer *a)
{
	memset(a->body, 0, sizeof a->body);
	a->len = sizeof(struct ib_uverbs_destroy_cq_resp); /* the longest */
	a->nfd = 0;
	a->ret = 0;
}

/* destroyed reports the events that the program has read: it waits until it has
 * acknowledged as many. The caller holds c->lock. */
static void destroyed(struct command *m)
{
	struct object *o = m->object;
	uint32_t counts[2] = { o->kind == OBJ_CQ ? o->comp_read : o->async_read, o->async_read };
	struct answer *a = &m->c->answer;
	size_t n = o->kind == OBJ_CQ ? sizeof counts : sizeof counts[0];
	if (a->ret == 0 && a->len >= n)
		memcpy(a->body, counts, n);
	objects_remove(&m->c->objects, o);
}

/* modified notes whether a queue pair may send now. */
static void modified(struct command *m)
{
	const struct ib_uverbs_modify_qp *qp = core(m); /* also begins the extended structure */
	if (m->c->answer.ret == 0 && qp->attr_mask & MASK_STATE && qp->qp_handle < BELL_QPS)
		atomic_store(&m->c->ready[qp->qp_handle], qp->qp_state >= STATE_RTS);
}

/* settle brings the table of objects up to date after a command. It returns what the
 * command comes to, 0 or -errno: an object without a name is none. */
static int settle(struct command *m)
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
			keep_ring(m, &m->object->cq,
				  provider(m, sizeof(struct ib_uverbs_resize_cq_resp), sizeof(struct mminfo)));
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

/* opens is the kind of channel that a command opens, FD_NONE for none. */
static enum fd_kind opens(const struct command *m)
{
	if (m->extended)
		return FD_NONE;
	return m->number == IB_USER_VERBS_CMD_GET_CONTEXT	   ? FD_ASYNC :
	       m->number == IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL ? FD_COMP :
								     FD_NONE;
}

/* place_number puts the number of a new descriptor into the response and makes it a
 * channel. */
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

/* take_fds gives the descriptors of an answer to their owners. A channel has exactly
 * one: the program would take the daemon's id for it otherwise. */
static int take_fds(struct command *m)
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

/* registers finds the range that a command is to register. It returns the size of the
 * command's structure, 0 if it registers none. */
static size_t registers(struct command *m, uint64_t *start, uint64_t *length)
{
	enum { TRANSLATION = 1 }; /* IBV_REREG_MR_CHANGE_TRANSLATION */
	struct ib_uverbs_reg_mr *reg = core(m);
	struct ib_uverbs_rereg_mr *rereg = core(m);
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

/* before gets memory ready that a command registers, and says where it is in the
 * provider's part, of which there is none otherwise. Together: memory may be mapped by the same
 * command. */
static void before(struct command *m, bool together)
{
	uint64_t start, length;
	struct ib_uverbs_cmd_hdr h;
	m->source = (struct mr_source){ 0 };
	size_t size = registers(m, &start, &length);
	if (size == 0)
		return;
	m->source = mr_prepare(m->c, start, length, together && m->number == IB_USER_VERBS_CMD_REG_MR);
	uint32_t part[] = { m->source.kind, m->source.handle };
	memcpy(m->bytes + HDR + size, part, sizeof part);
	m->n = HDR + size + sizeof part;
	memcpy(&h, m->bytes, sizeof h);
	if (m->source.kind == MR_MAP) {
		memcpy(m->bytes + m->n, &m->source.map, sizeof m->source.map);
		m->n += sizeof m->source.map;
		h.out_words = (sizeof(struct ib_uverbs_reg_mr_resp) + sizeof part) / 4;
	}
	h.in_words = m->n / 4;
	memcpy(m->bytes, &h, sizeof h);
}

/* mapped takes the answer about the memory that has been mapped for a region. */
static int mapped(struct command *m)
{
	const uint32_t *handle = provider(m, sizeof(struct ib_uverbs_reg_mr_resp), 2 * sizeof *handle);
	if (!handle)
		return -EIO;
	mr_mapped(&m->source, *handle);
	return 0;
}

/* execute sends a command and hands the answer out. The caller holds c->call. */
static int execute(struct command *m)
{
	struct context *c = m->c;
	int ret = m->source.kind == MR_COPIED ? pass_memory_needed(c) : 0;
	if (ret == 0)
		ret = prepare(m);
	if (ret)
		return ret;
	ret = call(c, m->bytes, m->n, NULL, 0);
	if (ret == -EIO && ends(m) && conn_gone(c->fd))
		gone(&c->answer);
	ret = settle(m);
	if (ret == 0 && m->source.kind == MR_MAP)
		ret = mapped(m);
	if (ret) {
		answer_close(&c->answer, 0);
		return ret;
	}
	ret = take_fds(m);
	if (ret)
		return ret;
	if (m->response)
		answer_copy(&c->answer, m->response, m->room);
	if (m->number == IB_USER_VERBS_CMD_GET_CONTEXT) {
		start_bell(c);
		pass_memory(c); /* while there is a /proc: programs may lock themselves up */
	}
	return 0;
}

/* after keeps account of what a command has made of regions. */
static void after(struct command *m)
{
	struct ib_uverbs_rereg_mr *rereg = core(m);
	struct ib_uverbs_dereg_mr *dereg = core(m);
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

/* run carries out a command that is more than a doorbell. */
static int run(struct context *c, const void *buf, size_t n)
{
	struct command *m = malloc(sizeof *m);
	if (!m)
		return -ENOMEM;
	m->c = c;
	int ret = -EINVAL, cancel;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	file_hold(&c->file); /* whatever the program closes meanwhile */
	adopt(c);
	/* What the daemon does not map and register at once it may do one after the other. */
	for (bool again = parse(m, buf, n), together = true; again; together = false) {
		before(m, together);
		call_lock(c->call, c->fd);
		ret = execute(m);
		call_unlock(c->call);
		again = ret != 0 && m->source.kind == MR_MAP && parse(m, buf, n);
		if (ret == 0)
			after(m);
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
