/*
 * Commands of the connection manager, by librdmacm. Only rocedrill-agent-cm has them. No queue pair belongs to a connection:
 * the script chooses the number in its messages, so that a test of the handshake needs no other object.
 */
#include "agent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

#include <rdma/rdma_cma.h>

enum { RESOLVE_MS = 2000, REASON_CONSUMER = 28, PORT = 7471 };

static struct rdma_event_channel *channel;
/* The addresses of both ends: index 0 is IPv4, 1 is IPv6. */
static struct address {
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	};
} ours[2], theirs[2];

/* parse reads the addresses of an end. */
static void parse(struct address *a, const char *v4, const char *v6)
{
	a[0].v4.sin_family = AF_INET;
	a[1].v6.sin6_family = AF_INET6;
	inet_pton(AF_INET, text(v4, "0.0.0.0"), &a[0].v4.sin_addr);
	inet_pton(AF_INET6, text(v6, "::"), &a[1].v6.sin6_addr);
}

/* with_port returns the address of the command's IP version, with a port. */
static struct address with_port(const struct address *both, uint16_t port)
{
	struct address a = both[number("ip", 4) == 6];
	a.v4.sin_port = htons(port); /* sin6_port has the same place */
	return a;
}

/* cm_open reports whether the device has a connection manager at one of its addresses. */
bool cm_open(void)
{
	bool has = false;
	parse(ours, "dut", "dut6");
	parse(theirs, "tester", "tester6");
	channel = rdma_create_event_channel();
	if (!channel || fcntl(channel->fd, F_SETFL, O_NONBLOCK))
		return false;
	for (int v = 0; v < 2; v++) {
		struct rdma_cm_id *id;
		if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
			return false;
		has |= !rdma_bind_addr(id, &ours[v].any) && id->verbs &&
			!strcmp(ibv_get_device_name(id->verbs->device), ibv_get_device_name(device->device));
		rdma_destroy_id(id);
	}
	return has;
}

/* adopt keeps a request under the name of its listener. A request for which there is no room is destroyed. */
static void adopt(struct rdma_cm_id *request)
{
	struct object *listener = request->context, *o = place(CONN, UNNAMED);
	if (!o) {
		rdma_destroy_id(request);
		return;
	}
	o->id = request;
	o->kind = CONN;
	listener->newest = request;
}

/* take takes an event and reports it if a script can expect it. It returns the event's type, -1 for none. */
static int take(void)
{
	static const char prefix[] = "RDMA_CM_EVENT_";
	struct rdma_cm_event *e;
	if (rdma_get_cm_event(channel, &e))
		return -1;
	enum rdma_cm_event_type type = e->event;
	struct object *o = e->id->context;
	struct rdma_cm_id *id = e->id;
	uint8_t data[256];
	size_t n = type >= RDMA_CM_EVENT_CONNECT_REQUEST && e->param.conn.private_data ? e->param.conn.private_data_len : 0;
	memcpy(data, n ? e->param.conn.private_data : data, n);
	struct rdma_conn_param p = e->param.conn;
	struct rdma_ud_param ud = e->param.ud;
	bool connection = id->ps == RDMA_PS_TCP;
	int status = e->status;
	rdma_ack_cm_event(e); /* before adopt, which may destroy the identifier */
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		adopt(id);
	if (type >= RDMA_CM_EVENT_CONNECT_REQUEST) {
		say("event on=%s type=%s private=", o->name, rdma_event_str(type) + sizeof prefix - 1);
		for (size_t i = 0; i < n; i++)
			say("%02x", data[i]);
		if (connection && type == RDMA_CM_EVENT_CONNECT_REQUEST)
			say(" retry=%u", p.retry_count);
		if (connection && (type == RDMA_CM_EVENT_CONNECT_REQUEST || type == RDMA_CM_EVENT_CONNECT_RESPONSE))
			say(" resources=%u depth=%u rnr_retry=%u peer=%u", p.responder_resources, p.initiator_depth, p.rnr_retry_count, p.qp_num);
		if (!connection && type == RDMA_CM_EVENT_ESTABLISHED)
			say(" peer=%u qkey=%u", ud.qp_num, ud.qkey);
		if (type == RDMA_CM_EVENT_REJECTED)
			say(" reason=%d", status);
		reported();
	}
	return type;
}

/* cm_report reports all events. */
void cm_report(void)
{
	while (channel && take() >= 0)
		;
}

/* resolved waits for the end of a resolution and reports whether it succeeded. Other events are reported. */
static bool resolved(int success)
{
	struct pollfd p = {.fd = channel->fd, .events = POLLIN};
	while (poll(&p, 1, RESOLVE_MS) == 1) {
		int type = take();
		if (type == success)
			return true;
		if (type == RDMA_CM_EVENT_ADDR_ERROR || type == RDMA_CM_EVENT_ROUTE_ERROR) {
			errno = EHOSTUNREACH;
			return false;
		}
	}
	errno = ETIMEDOUT;
	return false;
}

/* private_data reads the private data of a message. It points to the newest. */
static int private_data(const void **data, uint8_t *len)
{
	static uint8_t bytes[196]; /* of a REP */
	size_t n = unhex("private", bytes, sizeof bytes);
	errno = 0;
	if (n > sizeof bytes)
		return fail("private has not two hexadecimal digits for each of up to %zu bytes", sizeof bytes);
	*data = bytes;
	*len = (uint8_t)n;
	return 0;
}

/* parameters reads the parameters of a REQ or REP. rdma_cm chooses the others. */
static int parameters(struct rdma_conn_param *p)
{
	static const char *const fixed[] = {"psn", "cm_timeout", "cm_retries"};
	for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
		if (has(fixed[i])) {
			errno = 0;
			return fail("rdma_cm chooses %s itself", fixed[i]);
		}
	*p = (struct rdma_conn_param){.qp_num = (uint32_t)number("qpn", 2), .responder_resources = (uint8_t)number("resources", 1),
		.initiator_depth = (uint8_t)number("depth", 1), .retry_count = 7, .rnr_retry_count = 7};
	return private_data(&p->private_data, &p->private_data_len);
}

/* create_id makes the identifier of a listener or connection. */
static struct object *create_id(enum kind kind)
{
	struct object *o = create(kind);
	if (!o)
		return NULL;
	if (rdma_create_id(channel, &o->id, o, number("udp", 0) ? RDMA_PS_UDP : RDMA_PS_TCP)) {
		fail("create_id");
		return NULL;
	}
	o->kind = kind;
	return o;
}

int cmd_listen(void)
{
	struct object *o = create_id(LISTENER);
	if (!o)
		return -1;
	struct address a = with_port(ours, (uint16_t)number("port", PORT));
	if (rdma_bind_addr(o->id, &a.any))
		return fail("bind_addr");
	return rdma_listen(o->id, (int)number("backlog", 16)) ? fail("listen") : 0;
}

int cmd_connect(void)
{
	struct rdma_conn_param p;
	struct address from = with_port(ours, 0), to = with_port(theirs, (uint16_t)number("port", PORT));
	if (parameters(&p))
		return -1;
	struct object *o = create_id(CONN);
	if (!o)
		return -1;
	o->newest = o->id;
	if (rdma_resolve_addr(o->id, &from.any, &to.any, RESOLVE_MS) || !resolved(RDMA_CM_EVENT_ADDR_RESOLVED))
		return fail("resolve_addr");
	if (rdma_resolve_route(o->id, RESOLVE_MS) || !resolved(RDMA_CM_EVENT_ROUTE_RESOLVED))
		return fail("resolve_route");
	return rdma_connect(o->id, &p) ? fail("connect") : 0;
}

/* named returns the connection of the argument "on", or the newest request of the listener, NULL if there is none. */
static struct rdma_cm_id *named(void)
{
	const char *on = text("on", "");
	for (struct object *o = objects; o < objects + OBJECTS; o++)
		if ((o->kind == LISTENER || o->kind == CONN) && !strcmp(o->name, on) && o->newest)
			return o->newest;
	return NULL;
}

/* connection is named, but fails if there is none. */
static struct rdma_cm_id *connection(void)
{
	struct rdma_cm_id *id = named();
	errno = 0;
	if (!id)
		fail("no connection %s", text("on", ""));
	return id;
}

/* cm_query answers with the attributes that rdma_cm gives to the queue pair of a connection. It returns 1 if the argument "on"
 * names none. */
int cm_query(void)
{
	struct rdma_cm_id *id = named();
	struct ibv_qp_attr in = {.qp_state = IBV_QPS_RTR}, out = {.qp_state = IBV_QPS_RTS};
	int mask;
	if (!id)
		return 1;
	if (rdma_init_qp_attr(id, &in, &mask) || rdma_init_qp_attr(id, &out, &mask))
		return fail("init_qp_attr");
	say("psn=%u rqpsn=%u peer=%u timeout=%u retry=%u rnr_retry=%u rd_atomic=%u dest_rd_atomic=%u mtu=%u", out.sq_psn, in.rq_psn, in.dest_qp_num,
		out.timeout, out.retry_cnt, out.rnr_retry, out.max_rd_atomic, in.max_dest_rd_atomic, 128u << in.path_mtu);
	return 0;
}

int cmd_accept(void)
{
	struct rdma_cm_id *id = connection();
	struct rdma_conn_param p;
	if (!id || parameters(&p))
		return -1;
	return rdma_accept(id, &p) ? fail("accept") : 0;
}

int cmd_reject(void)
{
	struct rdma_cm_id *id = connection();
	if (!id)
		return -1;
	if (number("reason", REASON_CONSUMER) != REASON_CONSUMER)
		return fail("rdma_cm rejects with the reason %d only", REASON_CONSUMER);
	const void *data;
	uint8_t len = 0;
	if (private_data(&data, &len))
		return -1;
	return rdma_reject(id, data, len) ? fail("reject") : 0;
}

int cmd_establish(void)
{
	struct rdma_cm_id *id = connection();
	if (!id)
		return -1;
	return rdma_establish(id) ? fail("establish") : 0;
}

int cmd_leave(void)
{
	struct rdma_cm_id *id = connection();
	if (!id)
		return -1;
	return rdma_disconnect(id) ? fail("disconnect") : 0;
}

/* cm_destroy destroys a connection, or a listener with its requests. It returns 0 or an error number. */
int cm_destroy(struct object *o)
{
	for (struct object *c = objects; o->kind == LISTENER && c < objects + OBJECTS; c++)
		if (c->kind == CONN && c->id->context == o) {
			if (rdma_destroy_id(c->id))
				return errno;
			c->kind = FREE;
		}
	return rdma_destroy_id(o->id) ? errno : 0;
}
