/* Reports of completions and asynchronous events, and the names of statuses, operations and states. */
#include "agent.h"

#include <endian.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

static const char *const statuses[] = {
	[IBV_WC_SUCCESS] = "SUCCESS", [IBV_WC_LOC_LEN_ERR] = "LOC_LEN_ERR", [IBV_WC_LOC_QP_OP_ERR] = "LOC_QP_OP_ERR",
	[IBV_WC_LOC_PROT_ERR] = "LOC_PROT_ERR", [IBV_WC_WR_FLUSH_ERR] = "WR_FLUSH_ERR", [IBV_WC_MW_BIND_ERR] = "MW_BIND_ERR",
	[IBV_WC_BAD_RESP_ERR] = "BAD_RESP_ERR", [IBV_WC_LOC_ACCESS_ERR] = "LOC_ACCESS_ERR", [IBV_WC_REM_INV_REQ_ERR] = "REM_INV_REQ_ERR",
	[IBV_WC_REM_ACCESS_ERR] = "REM_ACCESS_ERR", [IBV_WC_REM_OP_ERR] = "REM_OP_ERR", [IBV_WC_RETRY_EXC_ERR] = "RETRY_EXC_ERR",
	[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR_RETRY_EXC_ERR", [IBV_WC_REM_ABORT_ERR] = "REM_ABORT_ERR", [IBV_WC_FATAL_ERR] = "FATAL_ERR",
	[IBV_WC_RESP_TIMEOUT_ERR] = "RESP_TIMEOUT_ERR", [IBV_WC_GENERAL_ERR] = "GENERAL_ERR",
};

const char *status_name(int status)
{
	const char *name = status >= 0 && (size_t)status < sizeof statuses / sizeof *statuses ? statuses[status] : NULL;
	return name ? name : "UNKNOWN";
}

static const char *operation_name(enum ibv_wc_opcode o)
{
	switch (o) {
	case IBV_WC_SEND: return "SEND";
	case IBV_WC_RDMA_WRITE: return "RDMA_WRITE";
	case IBV_WC_RDMA_READ: return "RDMA_READ";
	case IBV_WC_COMP_SWAP: return "COMP_SWAP";
	case IBV_WC_FETCH_ADD: return "FETCH_ADD";
	case IBV_WC_BIND_MW: return "BIND_MW";
	case IBV_WC_LOCAL_INV: return "LOCAL_INV";
	case IBV_WC_ATOMIC_WRITE: return "ATOMIC_WRITE";
	case IBV_WC_RECV: return "RECV";
	case IBV_WC_RECV_RDMA_WITH_IMM: return "RECV_RDMA_WITH_IMM";
	default: return "OTHER";
	}
}

static const char *const state_names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

const char *state_name(int state)
{
	return state >= 0 && state < 7 ? state_names[state] : "UNKNOWN";
}

int state_number(const char *name)
{
	for (int i = 0; i < 7; i++)
		if (!strcmp(name, state_names[i]))
			return i;
	return -1;
}

/* owner returns the name of the queue pair with this number. */
static const char *owner(uint32_t qpn)
{
	for (struct object *o = objects; o < objects + OBJECTS; o++)
		if (o->kind == QP && o->qp->qp_num == qpn)
			return o->name;
	return "";
}

/* completed reports one completion. Linux 6.1's rxe hands programs the kernel's flag for an invalidated key, which is 4, not
 * libibverbs' 8. */
static void completed(const struct ibv_wc *wc, bool recv)
{
	say("cqe on=%s queue=%s wr=%lu status=%s", owner(wc->qp_num), recv ? "recv" : "send", (unsigned long)wc->wr_id, status_name(wc->status));
	if (wc->status == IBV_WC_SUCCESS) {
		say(" op=%s", operation_name(wc->opcode));
		if (wc->opcode & IBV_WC_RECV || wc->opcode == IBV_WC_RDMA_READ || wc->opcode == IBV_WC_COMP_SWAP || wc->opcode == IBV_WC_FETCH_ADD)
			say(" len=%u", wc->byte_len);
		if (wc->wc_flags & IBV_WC_WITH_IMM)
			say(" imm=%u", be32toh(wc->imm_data));
		else if (wc->opcode & IBV_WC_RECV && wc->wc_flags & (IBV_WC_WITH_INV | 4))
			say(" inv=%u", wc->invalidated_rkey);
		if (wc->wc_flags & IBV_WC_GRH)
			say(" peer=%u", wc->src_qp);
	}
	reported();
}

/* event_name returns the name of an event that scripts can expect, NULL for others. */
static const char *event_name(enum ibv_event_type t)
{
	switch (t) {
	case IBV_EVENT_QP_FATAL: return "QP_FATAL";
	case IBV_EVENT_QP_REQ_ERR: return "QP_REQ_ERR";
	case IBV_EVENT_QP_ACCESS_ERR: return "QP_ACCESS_ERR";
	case IBV_EVENT_COMM_EST: return "COMM_EST";
	case IBV_EVENT_SQ_DRAINED: return "SQ_DRAINED";
	case IBV_EVENT_SRQ_LIMIT_REACHED: return "SRQ_LIMIT_REACHED";
	case IBV_EVENT_QP_LAST_WQE_REACHED: return "QP_LAST_WQE_REACHED";
	case IBV_EVENT_CQ_ERR: return "CQ_ERR";
	default: return NULL;
	}
}

/* report_event reports an asynchronous event if there is one. */
static void report_event(void)
{
	struct pollfd p = {.fd = device->async_fd, .events = POLLIN};
	struct ibv_async_event e;
	if (poll(&p, 1, 0) != 1 || ibv_get_async_event(device, &e))
		return;
	const char *name = event_name(e.event_type);
	struct object *o = e.event_type == IBV_EVENT_SRQ_LIMIT_REACHED ? e.element.srq->srq_context :
		e.event_type == IBV_EVENT_CQ_ERR ? e.element.cq->cq_context : name ? e.element.qp->qp_context : NULL;
	if (o) {
		say("event on=%s type=%s", o->name, name);
		reported();
	}
	ibv_ack_async_event(&e);
}

struct ibv_comp_channel *notifications;

/* report_notification reports that an armed completion queue has a completion. */
static void report_notification(void)
{
	struct pollfd p = {.fd = notifications->fd, .events = POLLIN};
	struct ibv_cq *cq;
	void *context;
	if (poll(&p, 1, 0) != 1 || ibv_get_cq_event(notifications, &cq, &context))
		return;
	ibv_ack_cq_events(cq, 1);
	say("event on=%s type=COMPLETION", ((struct object *)context)->name);
	reported();
}

/* report reports all completions, one event and one notification, and those of the connection manager. */
void report(void)
{
	struct ibv_wc wc;
	for (struct object *o = objects; o < objects + OBJECTS; o++)
		while (o->kind == CQ && ibv_poll_cq(o->cq, 1, &wc) > 0)
			completed(&wc, o->recv || wc.opcode & IBV_WC_RECV);
	report_event();
	if (notifications)
		report_notification();
	if (cm_report)
		cm_report();
}
