/* Commands that create, change and destroy objects. */
#include "agent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_vlan.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* The addresses of both ends: index 0 is IPv4, 1 is IPv6. */
static union ibv_gid ours[2], theirs[2];
static int gid_index[2] = {-1, -1};
static int gid_vlan; /* of both */

enum { GIDS = 256 };

/* parse_gid reads an IP address as a GID; IPv4 addresses are mapped (IBTA annex A17.4.1). */
static void parse_gid(const char *s, union ibv_gid *gid)
{
	memset(gid, 0, sizeof *gid);
	if (inet_pton(AF_INET6, s, gid->raw) == 1)
		return;
	gid->raw[10] = gid->raw[11] = 0xff;
	inet_pton(AF_INET, s, gid->raw + 12);
}

/* is_v2 reports whether an entry of the GID table is of RoCE v2. */
static bool is_v2(int index)
{
	char path[256], line[32] = "";
	snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/%d/gid_attrs/types/%d", ibv_get_device_name(device->device), port, index);
	FILE *f = fopen(path, "r");
	if (!f)
		return true; /* the device does not say */
	bool v2 = fgets(line, sizeof line, f) && strstr(line, "v2");
	fclose(f);
	return v2;
}

/* vlan_of returns the VLAN of the interface of an entry of the GID table, 0 for none, -1 if there is no interface. */
static int vlan_of(int index)
{
	char path[256];
	struct vlan_ioctl_args a = {.cmd = GET_VLAN_VID_CMD};
	snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/%d/gid_attrs/ndevs/%d", ibv_get_device_name(device->device), port, index);
	FILE *f = fopen(path, "r");
	bool known = f && fscanf(f, "%23s", a.device1) == 1;
	if (f)
		fclose(f);
	int s = known ? socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
	if (s < 0)
		return -1;
	int id = ioctl(s, SIOCGIFVLAN, &a) ? 0 : a.u.VID;
	close(s);
	return id;
}

/* find_gid returns the index of an address of RoCE v2 in a VLAN, -1 if there is none. If the address is on other interfaces only,
 * it returns the first of them: roced tags by itself, on an interface without a VLAN. */
static int find_gid(const union ibv_gid *gid, int vlan)
{
	union ibv_gid g;
	int other = -1;
	for (int i = 0; i < GIDS; i++) {
		if (ibv_query_gid(device, port, i, &g) || memcmp(&g, gid, sizeof g) || !is_v2(i))
			continue;
		if (vlan_of(i) == vlan)
			return i;
		if (other < 0)
			other = i;
	}
	return other;
}

/* can_create reports whether the device has queue pairs of a type. */
static bool can_create(struct ibv_pd *pd, enum ibv_qp_type type)
{
	struct ibv_cq *cq = ibv_create_cq(device, 1, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = type,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = cq ? ibv_create_qp(pd, &init) : NULL;
	bool can = qp;
	if (qp)
		ibv_destroy_qp(qp);
	if (cq)
		ibv_destroy_cq(cq);
	return can;
}

/* has_atomic_write reads a flag of the kernel, IB_UVERBS_DEVICE_ATOMIC_WRITE. */
static bool has_atomic_write(void)
{
	struct ibv_device_attr_ex a = {0};
	return !ibv_query_device_ex(device, NULL, &a) && a.device_cap_flags_ex >> 40 & 1;
}

/* counts_from_zero reports whether the device has regions whose addresses count from 0. */
static bool counts_from_zero(struct ibv_pd *pd)
{
	enum { SIZE = 4096 };
	void *data;
	if (posix_memalign(&data, SIZE, SIZE))
		return false;
	struct ibv_mr *mr = ibv_reg_mr_iova(pd, data, SIZE, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED);
	bool can = mr;
	if (mr)
		ibv_dereg_mr(mr);
	free(data);
	return can;
}

/* say_capabilities lists the device's capabilities in the words of "need". */
static void say_capabilities(struct ibv_pd *pd)
{
	struct ibv_device_attr a = {0};
	ibv_query_device(device, &a);
	unsigned flags = a.device_cap_flags;
	const struct { const char *name; bool has; } caps[] = {
		{"rc", can_create(pd, IBV_QPT_RC)}, {"uc", can_create(pd, IBV_QPT_UC)}, {"ud", can_create(pd, IBV_QPT_UD)},
		{"srq", a.max_srq > 0}, {"mw", a.max_mw > 0 && flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)},
		{"cm", cm_open && cm_open()}, {"atomic", a.atomic_cap != IBV_ATOMIC_NONE}, {"inval", flags & IBV_DEVICE_MEM_MGT_EXTENSIONS},
		{"ipv4", gid_index[0] >= 0}, {"ipv6", gid_index[1] >= 0},
		{"awrite", has_atomic_write()}, {"multicast", a.max_mcast_grp > 0}, {"zero_based", counts_from_zero(pd)},
	};
	const char *between = " caps=";
	for (size_t i = 0; i < sizeof caps / sizeof *caps; i++)
		if (caps[i].has) {
			say("%s%s", between, caps[i].name);
			between = ",";
		}
}

/* find_gids finds the entries of the device's addresses, or takes that of "gid_index" for its IP version. */
static int find_gids(void)
{
	gid_vlan = (int)number("vlan", 0);
	for (int v = 0; v < 2; v++)
		gid_index[v] = find_gid(&ours[v], gid_vlan);
	errno = 0;
	if (has("gid_index")) {
		int index = (int)number("gid_index", 0);
		union ibv_gid g;
		if (ibv_query_gid(device, port, index, &g) || !is_v2(index))
			return fail("GID %d of %s is not one of RoCE v2", index, ibv_get_device_name(device->device));
		int v = !IN6_IS_ADDR_V4MAPPED((struct in6_addr *)g.raw);
		if (memcmp(&g, &ours[v], sizeof g))
			return fail("GID %d of %s is not the address %s (--dut-address)", index, ibv_get_device_name(device->device),
				text(v ? "dut6" : "dut", ""));
		gid_index[v] = index;
		gid_index[!v] = -1;
	}
	if (gid_index[0] >= 0 || gid_index[1] >= 0)
		return 0;
	return fail("%s has neither %s nor %s as a RoCE v2 GID", ibv_get_device_name(device->device), text("dut", "0.0.0.0"), text("dut6", "::"));
}

/* cmd_open opens a device and finds the GIDs of its addresses. */
int cmd_open(void)
{
	int n = 0;
	const char *name = text("device", "");
	struct ibv_device **list = ibv_get_device_list(&n);
	for (int i = 0; i < n && !device; i++)
		if (!*name || !strcmp(ibv_get_device_name(list[i]), name))
			device = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	if (!device)
		return fail("cannot open device %s; there are %d devices", name, n);
	parse_gid(text("dut", "0.0.0.0"), &ours[0]);
	parse_gid(text("dut6", "::"), &ours[1]);
	parse_gid(text("tester", "0.0.0.0"), &theirs[0]);
	parse_gid(text("tester6", "::"), &theirs[1]);
	port = (uint8_t)number("port", 1);
	struct ibv_port_attr p;
	if ((errno = ibv_query_port(device, port, &p)))
		return fail("%s has no port %d", ibv_get_device_name(device->device), port);
	if (find_gids())
		return -1;
	struct object *o = create(PD);
	if (!o || !(o->pd = ibv_alloc_pd(device)))
		return fail("alloc_pd");
	if (!(notifications = ibv_create_comp_channel(device)))
		return fail("create_comp_channel");
	o->name[0] = '\0';
	o->kind = PD;
	count_from_now();
	say("version=%d mtu=%u gid4=%d gid6=%d", VERSION, 128u << p.active_mtu, gid_index[0], gid_index[1]);
	say_capabilities(o->pd);
	return 0;
}

int cmd_pd(void)
{
	struct object *o = create(PD);
	if (!o || !(o->pd = ibv_alloc_pd(device)))
		return fail("alloc_pd");
	o->kind = PD;
	return 0;
}

static const int all_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
	IBV_ACCESS_MW_BIND;

/* The greatest size of a region, in bytes. */
enum { MOST_MEMORY = 1 << 30 };

int cmd_mr(void)
{
	struct object *o = create(MR);
	struct ibv_pd *pd = domain();
	size_t size = number("size", 4096), page = 4096;
	if (!o || !pd)
		return -1;
	if (size > MOST_MEMORY || posix_memalign((void **)&o->data, page, (size + page - 1) / page * page))
		return fail("memory of %zu bytes", size);
	o->size = size;
	memset(o->data, 0, size);
	for (size_t i = 0; i < size && !strcmp(text("fill", ""), "count"); i++)
		o->data[i] = (uint8_t)(i % 251);
	int access = access_flags(all_access);
	o->base = access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)o->data;
	o->mr = ibv_reg_mr_iova(pd, o->data, size, o->base, access);
	if (!o->mr) {
		free(o->data);
		return fail("reg_mr");
	}
	o->kind = MR;
	say("va=%lu lkey=%u rkey=%u", (unsigned long)o->base, o->mr->lkey, o->mr->rkey);
	return 0;
}

int cmd_mw(void)
{
	struct object *o = create(MW);
	struct ibv_pd *pd = domain();
	if (!o || !pd)
		return -1;
	if (!(o->mw = ibv_alloc_mw(pd, number("type", 2) == 1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2)))
		return fail("alloc_mw");
	o->kind = MW;
	say("rkey=%u", o->mw->rkey);
	return 0;
}

int cmd_cq(void)
{
	struct object *o = create(CQ);
	if (!o || !(o->cq = ibv_create_cq(device, (int)number("size", 64), o, notifications, 0)))
		return fail("create_cq");
	o->kind = CQ;
	return 0;
}

int cmd_arm(void)
{
	struct object *o = find(CQ, text("on", ""));
	if (!o)
		return -1;
	return (errno = ibv_req_notify_cq(o->cq, number("solicited", 0) != 0)) ? fail("req_notify_cq") : 0;
}

int cmd_srq(void)
{
	struct object *o = create(SRQ);
	struct ibv_pd *pd = domain();
	struct ibv_srq_init_attr a = {.srq_context = o, .attr = {.max_wr = (uint32_t)number("size", 16), .max_sge = SGES}};
	if (!o || !pd)
		return -1;
	if (!(o->srq = ibv_create_srq(pd, &a)))
		return fail("create_srq");
	o->kind = SRQ;
	return has("limit") ? cmd_limit() : 0;
}

int cmd_resize(void)
{
	struct object *o = find(SRQ, text("on", ""));
	struct ibv_srq_attr a = {.max_wr = (uint32_t)number("size", 16)};
	if (!o)
		return -1;
	return (errno = ibv_modify_srq(o->srq, &a, IBV_SRQ_MAX_WR)) ? fail("modify_srq") : 0;
}

int cmd_limit(void)
{
	struct object *o = find(SRQ, text(has("on") ? "on" : "name", ""));
	struct ibv_srq_attr a = {.srq_limit = (uint32_t)number("limit", 0)};
	if (!o)
		return -1;
	return (errno = ibv_modify_srq(o->srq, &a, IBV_SRQ_LIMIT)) ? fail("modify_srq") : 0;
}

/* path makes the address vector to the tester. It returns -1 if the device has no address in the VLAN. */
static int path(struct ibv_ah_attr *a)
{
	int v = number("ip", 4) == 6, vlan = (int)number("vlan", (uint64_t)gid_vlan), index = vlan == gid_vlan ? gid_index[v] : find_gid(&ours[v], vlan);
	errno = 0;
	if (index < 0)
		return fail("the device has no address %s in VLAN %d", v ? "of IPv6" : "of IPv4", vlan);
	*a = (struct ibv_ah_attr){.is_global = 1, .port_num = port, .sl = (uint8_t)number("sl", 0),
		.grh = {.dgid = theirs[v], .sgid_index = (uint8_t)index, .hop_limit = (uint8_t)number("ttl", 64),
			.traffic_class = (uint8_t)number("tclass", 0), .flow_label = (uint32_t)number("flow", 0)}};
	return has("group") ? group(&a->grh.dgid) : 0;
}

int cmd_ah(void)
{
	struct object *o = create(AH);
	struct ibv_pd *pd = domain();
	struct ibv_ah_attr a;
	if (!o || !pd || path(&a))
		return -1;
	if (!(o->ah = ibv_create_ah(pd, &a)))
		return fail("create_ah");
	o->kind = AH;
	return 0;
}

/* completion_queue returns the queue that the argument names, or a new one of this queue pair. */
static struct ibv_cq *completion_queue(const char *key)
{
	if (has(key)) {
		struct object *o = find(CQ, text(key, ""));
		return o ? o->cq : NULL;
	}
	struct object *o = create(CQ);
	if (!o || !(o->cq = ibv_create_cq(device, 256, o, NULL, 0))) {
		fail("create_cq");
		return NULL;
	}
	o->name[0] = '\1'; /* no script can name it */
	o->recv = key[0] == 'r';
	o->kind = CQ;
	return o->cq;
}

enum { QKEY = 0x11111111, TESTER_QPN = 0x11, PSNS = 0xffffff };

/* mtu_code returns the ibv_mtu of a number of bytes. */
static enum ibv_mtu mtu_code(uint64_t bytes)
{
	int code = IBV_MTU_256;
	for (; code < IBV_MTU_4096 && (128u << code) < bytes; code++)
		;
	return code;
}

/* needed returns the attributes that a transition of a queue pair needs (IBTA vol.1 10.3.1). */
static int needed(enum ibv_qp_type type, int from, int to)
{
	int mask = IBV_QP_STATE;
	if (to == IBV_QPS_INIT)
		return mask | IBV_QP_PORT | IBV_QP_PKEY_INDEX | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	if (to == IBV_QPS_RTR && type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (to == IBV_QPS_RTR && type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (to == IBV_QPS_RTS && from == IBV_QPS_RTR)
		mask |= IBV_QP_SQ_PSN;
	if (to == IBV_QPS_RTS && from == IBV_QPS_RTR && type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	return mask;
}

/* attributes are the attributes of the keys of modify. */
static const struct { const char *key; int mask; } attributes[] = {
	{"sl", IBV_QP_AV}, {"tclass", IBV_QP_AV}, {"ttl", IBV_QP_AV}, {"flow", IBV_QP_AV}, {"mtu", IBV_QP_PATH_MTU}, {"peer", IBV_QP_DEST_QPN},
	{"rqpsn", IBV_QP_RQ_PSN}, {"psn", IBV_QP_SQ_PSN}, {"timeout", IBV_QP_TIMEOUT}, {"retry", IBV_QP_RETRY_CNT}, {"rnr_retry", IBV_QP_RNR_RETRY},
	{"min_rnr", IBV_QP_MIN_RNR_TIMER}, {"rd_atomic", IBV_QP_MAX_QP_RD_ATOMIC}, {"dest_rd_atomic", IBV_QP_MAX_DEST_RD_ATOMIC},
	{"qkey", IBV_QP_QKEY}, {"pkey_index", IBV_QP_PKEY_INDEX}, {"access", IBV_QP_ACCESS_FLAGS}, {"notify", IBV_QP_EN_SQD_ASYNC_NOTIFY}};

/* chosen returns the attributes that the command names, or the one that it leaves out. */
static int chosen(const char *left_out)
{
	int mask = 0;
	for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
		if (left_out ? !strcmp(attributes[i].key, left_out) : has(attributes[i].key))
			mask |= attributes[i].mask;
	return mask;
}

/* modify changes the attributes of a mask. Keys that the command lacks have their defaults. */
static int modify(struct ibv_qp *qp, int to, int mask)
{
	struct ibv_qp_attr a = {.qp_state = to, .port_num = port, .pkey_index = (uint16_t)number("pkey_index", 0), .qkey = (uint32_t)number("qkey", QKEY),
		.qp_access_flags = (unsigned)access_flags(all_access) & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC),
		.path_mtu = mtu_code(number("mtu", 1024)), .dest_qp_num = (uint32_t)number("peer", TESTER_QPN), .rq_psn = (uint32_t)number("rqpsn", 0) & PSNS,
		.max_dest_rd_atomic = (uint8_t)number("dest_rd_atomic", 4), .min_rnr_timer = (uint8_t)number("min_rnr", 12),
		.sq_psn = (uint32_t)number("psn", 0) & PSNS, .timeout = (uint8_t)number("timeout", 14), .retry_cnt = (uint8_t)number("retry", 7),
		.rnr_retry = (uint8_t)number("rnr_retry", 7), .max_rd_atomic = (uint8_t)number("rd_atomic", 4),
		.en_sqd_async_notify = (uint8_t)number("notify", 0)};
	if (mask & IBV_QP_AV && path(&a.ah_attr))
		return -1;
	if ((errno = ibv_modify_qp(qp, &a, mask)))
		return mask & IBV_QP_STATE ? fail("modify_qp to %s", state_name(to)) : fail("modify_qp");
	return 0;
}

/* state returns the state of a queue pair. */
static int state(struct ibv_qp *qp)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	return ibv_query_qp(qp, &a, IBV_QP_STATE, &init) ? IBV_QPS_RESET : a.qp_state;
}

int cmd_qp(void)
{
	const char *type = text("type", "rc");
	int target = state_number(text("state", "RTS"));
	struct ibv_pd *pd = domain();
	struct ibv_qp_init_attr_ex init = {.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd, .send_cq = completion_queue("scq"), .recv_cq = completion_queue("rcq"),
		.qp_type = !strcmp(type, "ud") ? IBV_QPT_UD : !strcmp(type, "uc") ? IBV_QPT_UC : IBV_QPT_RC, .sq_sig_all = (int)number("sigall", 0),
		.cap = {.max_send_wr = (uint32_t)number("size", 64), .max_recv_wr = (uint32_t)number("rsize", 64), .max_send_sge = (uint32_t)number("sges", SGES),
			.max_recv_sge = (uint32_t)number("sges", SGES), .max_inline_data = (uint32_t)number("inline", 64)}};
	if (!pd || !init.send_cq || !init.recv_cq || target < 0)
		return target < 0 ? fail("no such state") : -1;
	if (has("profile"))
		return fail("libibverbs has no transport profiles");
	if (has("srq")) {
		struct object *s = find(SRQ, text("srq", ""));
		if (!s)
			return -1;
		init.srq = s->srq;
	}
	struct object *o = create(QP);
	if (!o)
		return -1;
	init.qp_context = o;
	if (init.qp_type == IBV_QPT_RC && has_atomic_write()) {
		init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		init.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE;
	}
	if (!(o->qp = ibv_create_qp_ex(device, &init)))
		return fail("create_qp");
	o->kind = QP;
	for (int s = IBV_QPS_INIT; s <= IBV_QPS_RTS && s <= target; s++)
		if (modify(o->qp, s, needed(init.qp_type, s - 1, s)))
			return -1;
	if (target > IBV_QPS_RTS && modify(o->qp, target, IBV_QP_STATE))
		return -1;
	say("num=%u", o->qp->qp_num);
	return 0;
}

/* cmd_modify changes the attributes that the command names, and with a state those that the transition needs, but one. */
int cmd_modify(void)
{
	struct object *o = find(QP, text("on", ""));
	int mask = chosen(NULL), to = state_number(text("state", "RTS"));
	if (!o)
		return -1;
	if (to < 0)
		return fail("no such state");
	if (has("state"))
		mask |= needed(o->qp->qp_type, state(o->qp), to);
	return modify(o->qp, to, mask & ~chosen(text("without", "")));
}

int cmd_query(void)
{
	int connection = cm_query ? cm_query() : 1;
	if (connection <= 0)
		return connection;
	struct object *o = find(QP, text("on", ""));
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	if (!o)
		return -1;
	if ((errno = ibv_query_qp(o->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RQ_PSN | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER | IBV_QP_DEST_QPN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_QKEY |
			IBV_QP_PKEY_INDEX, &init)))
		return fail("query_qp");
	say("state=%s psn=%u rqpsn=%u peer=%u timeout=%u retry=%u rnr_retry=%u min_rnr=%u rd_atomic=%u dest_rd_atomic=%u qkey=%u pkey_index=%u mtu=%u",
		state_name((int)a.qp_state), a.sq_psn, a.rq_psn, a.dest_qp_num, a.timeout, a.retry_cnt, a.rnr_retry, a.min_rnr_timer, a.max_rd_atomic,
		a.max_dest_rd_atomic, a.qkey, a.pkey_index, 128u << a.path_mtu);
	return 0;
}

/* destroy destroys an object. It returns 0 or an error number. */
static int destroy(struct object *o)
{
	int error = EINVAL;
	switch (o->kind) {
	case QP:
		error = detach_all(o);
		if (!error)
			error = ibv_destroy_qp(o->qp);
		break;
	case AH:
		error = ibv_destroy_ah(o->ah);
		break;
	case MW:
		error = ibv_dealloc_mw(o->mw);
		break;
	case MR:
		error = ibv_dereg_mr(o->mr);
		if (!error)
			free(o->data);
		break;
	case SRQ:
		error = ibv_destroy_srq(o->srq);
		break;
	case CQ:
		error = ibv_destroy_cq(o->cq);
		break;
	case PD:
		error = ibv_dealloc_pd(o->pd);
		break;
	case LISTENER:
	case CONN:
		error = cm_destroy(o);
		break;
	case FREE:
		break;
	}
	if (!error)
		o->kind = FREE;
	return error;
}

int cmd_destroy(void)
{
	const char *name = text("on", "");
	for (struct object *o = objects; o < objects + OBJECTS; o++)
		if (o->kind != FREE && !strcmp(o->name, name))
			return (errno = destroy(o)) ? fail("destroy %s", name) : 0;
	return fail("no object %s", name);
}

/* cmd_close destroys the objects of a script, those that depend on others first: in Linux, a bound window holds its
 * queue pair. The device and its first protection domain stay. */
int cmd_close(void)
{
	static const enum kind order[] = {LISTENER, CONN, MW, QP, AH, MR, SRQ, CQ, PD};
	for (size_t i = 0; i < sizeof order / sizeof *order; i++)
		for (struct object *o = objects; o < objects + OBJECTS; o++)
			if (o->kind == order[i] && (o->kind != PD || o->name[0]) && (errno = destroy(o)))
				return fail("destroy %s", o->name);
	count_from_now();
	return 0;
}
