/* Commands that post work requests, and that read and write memory and counters. */
#include "agent.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int cmd_recv(void)
{
	struct ibv_sge list[SGES];
	struct ibv_recv_wr *bad, wr = {.wr_id = number("wr", 0), .sg_list = list, .num_sge = find_sges(list)};
	const char *on = text("on", "");
	if (wr.num_sge < 0)
		return -1;
	for (struct object *o = objects; o < objects + OBJECTS; o++)
		if (!strcmp(o->name, on) && (o->kind == QP || o->kind == SRQ)) {
			errno = o->kind == QP ? ibv_post_recv(o->qp, &wr, &bad) : ibv_post_srq_recv(o->srq, &wr, &bad);
			return errno ? fail("post_recv") : 0;
		}
	return fail("no object %s", on);
}

/* operation returns the operation of a verb with its immediate data or key. */
static int operation(void)
{
	bool imm = has("imm");
	if (!strcmp(verb, "send"))
		return has("inv") ? IBV_WR_SEND_WITH_INV : imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
	if (!strcmp(verb, "write"))
		return imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
	if (!strcmp(verb, "read"))
		return IBV_WR_RDMA_READ;
	if (!strcmp(verb, "cas"))
		return IBV_WR_ATOMIC_CMP_AND_SWP;
	return IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static unsigned flags(void)
{
	return (number("signaled", 1) ? IBV_SEND_SIGNALED : 0u) | (number("solicited", 0) ? IBV_SEND_SOLICITED : 0u) |
		(number("fence", 0) ? IBV_SEND_FENCE : 0u) | (number("inline", 0) ? IBV_SEND_INLINE : 0u);
}

/* unhex writes the bytes of a hexadecimal value and returns their number; room + 1 if the value is longer or malformed. */
size_t unhex(const char *key, uint8_t *to, size_t room)
{
	const char *v = value(key);
	size_t n = 0, digits = v ? strcspn(v, " ") : 0;
	if (digits % 2 || digits / 2 > room || strspn(v ? v : "", "0123456789abcdefABCDEF") != digits)
		return room + 1;
	for (unsigned b; n < digits / 2 && sscanf(v + 2 * n, "%2x", &b) == 1; n++)
		to[n] = (uint8_t)b;
	return n;
}

/* group reads a multicast group, an IP address of 4 or 16 bytes. */
int group(union ibv_gid *gid)
{
	uint8_t b[16];
	size_t n = unhex("group", b, sizeof b);
	errno = 0;
	if (n != 4 && n != sizeof b)
		return fail("group is not an IP address of 4 or 16 bytes");
	memset(gid, 0, sizeof *gid);
	if (n == 4)
		gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + sizeof b - n, b, n);
	return 0;
}

/* cmd_attach attaches a queue pair to a multicast group. */
int cmd_attach(void)
{
	struct object *o = find(QP, text("on", ""));
	union ibv_gid gid;
	if (!o || group(&gid))
		return -1;
	if (o->attached == GROUPS)
		return fail("%s has been attached to %d groups", o->name, GROUPS);
	if ((errno = ibv_attach_mcast(o->qp, &gid, 0)))
		return fail("mcast");
	o->groups[o->attached++] = gid;
	return 0;
}

/* detach detaches a queue pair from a multicast group. It returns 0 or an error number. */
static int detach(struct object *o, const union ibv_gid *gid)
{
	int error = ibv_detach_mcast(o->qp, gid, 0);
	for (int i = o->attached - 1; i >= 0 && !error; i--)
		if (!memcmp(&o->groups[i], gid, sizeof *gid))
			o->groups[i] = o->groups[--o->attached];
	return error;
}

int cmd_detach(void)
{
	struct object *o = find(QP, text("on", ""));
	union ibv_gid gid;
	if (!o || group(&gid))
		return -1;
	return (errno = detach(o, &gid)) ? fail("mcast") : 0;
}

/* detach_all detaches a queue pair from its groups: Linux destroys none that is attached. It returns 0 or an error number. */
int detach_all(struct object *o)
{
	int error = 0;
	while (o->attached && !error) {
		union ibv_gid gid = o->groups[0];
		error = detach(o, &gid);
	}
	return error;
}

static int64_t nanoseconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* The time that a stream waits for its last completions, in ns. */
enum { DRAIN_NS = 1000000000 };

/*
 * stream repeats a request, "depth" of them in flight, until "ms" have passed or a request fails. Then it waits for the requests in
 * flight, so that the next stream finds no completion of this one.
 */
static int stream(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	uint64_t depth = number("depth", 1), posted = 0, done = 0;
	int64_t begin = nanoseconds(), until = begin + (int64_t)number("ms", 0) * 1000000, now = begin;
	struct ibv_send_wr *bad;
	struct ibv_wc wc = {0};
	while (wc.status == IBV_WC_SUCCESS && (now < until || (done < posted && now < until + DRAIN_NS))) {
		for (; now < until && posted - done < depth; posted++)
			if ((errno = ibv_post_send(qp, wr, &bad)))
				return fail("post_send");
		if (ibv_poll_cq(qp->send_cq, 1, &wc) > 0 && wc.status == IBV_WC_SUCCESS)
			done++;
		now = nanoseconds();
	}
	say("ns=%lu done=%lu status=%s", (unsigned long)(now - begin), (unsigned long)done, status_name(wc.status));
	return 0;
}

int cmd_post(void)
{
	struct object *o = find(QP, text("on", ""));
	struct ibv_sge list[SGES];
	struct ibv_send_wr *bad, wr = {.wr_id = number("wr", 0), .sg_list = list, .num_sge = find_sges(list), .opcode = operation(), .send_flags = flags()};
	if (!o || wr.num_sge < 0)
		return -1;
	if (wr.opcode == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = (uint32_t)number("inv", 0);
	else
		wr.imm_data = htobe32((uint32_t)number("imm", 0));
	if (o->qp->qp_type == IBV_QPT_UD) {
		struct object *ah = find(AH, text("ah", ""));
		if (!ah)
			return -1;
		wr.wr.ud.ah = ah->ah;
		wr.wr.ud.remote_qpn = (uint32_t)number("peer", 0x11);
		wr.wr.ud.remote_qkey = (uint32_t)number("qkey", 0x11111111);
	} else if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = number("remote", 0);
		wr.wr.atomic.rkey = (uint32_t)number("rkey", 0);
		wr.wr.atomic.compare_add = number("compare", number("add", 0));
		wr.wr.atomic.swap = number("swap", 0);
	} else {
		wr.wr.rdma.remote_addr = number("remote", 0);
		wr.wr.rdma.rkey = (uint32_t)number("rkey", 0);
	}
	if (has("depth"))
		return stream(o->qp, &wr);
	return (errno = ibv_post_send(o->qp, &wr, &bad)) ? fail("post_send") : 0;
}

int cmd_awrite(void)
{
	struct object *o = find(QP, text("on", ""));
	struct ibv_qp_ex *qp = o ? ibv_qp_to_qp_ex(o->qp) : NULL;
	uint8_t word[8];
	if (!qp)
		return o ? fail("the queue pair has no ATOMIC WRITE") : -1;
	if (unhex("data", word, sizeof word) != sizeof word)
		return fail("data has not 16 hexadecimal digits");
	ibv_wr_start(qp);
	qp->wr_id = number("wr", 0);
	qp->wr_flags = flags();
	ibv_wr_atomic_write(qp, (uint32_t)number("rkey", 0), number("remote", 0), word);
	return (errno = ibv_wr_complete(qp)) ? fail("post_send") : 0;
}

int cmd_bind(void)
{
	struct object *o = find(QP, text("on", "")), *mw = find(MW, text("mw", "")), *mr;
	size_t len;
	char to[128];
	snprintf(to, sizeof to, "%s", text("to", ""));
	uint8_t *at = o && mw ? part(to, &mr, &len) : NULL;
	if (!at)
		return -1;
	struct ibv_send_wr *bad, wr = {.wr_id = number("wr", 0), .opcode = IBV_WR_BIND_MW, .send_flags = flags(),
		.bind_mw = {.mw = mw->mw, .rkey = (uint32_t)number("rkey", mw->mw->rkey + 1), .bind_info = {.mr = mr->mr, .addr = (uintptr_t)at, .length = len,
			.mw_access_flags = (unsigned)access_flags(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)}}};
	if ((errno = ibv_post_send(o->qp, &wr, &bad)))
		return fail("post_send");
	mw->mw->rkey = wr.bind_mw.rkey; /* as the program has to do for windows of type 2 */
	return 0;
}

int cmd_invalidate(void)
{
	struct object *o = find(QP, text("on", ""));
	struct ibv_send_wr *bad, wr = {.wr_id = number("wr", 0), .opcode = IBV_WR_LOCAL_INV, .send_flags = flags(),
		.invalidate_rkey = (uint32_t)number("rkey", 0)};
	if (!o)
		return -1;
	return (errno = ibv_post_send(o->qp, &wr, &bad)) ? fail("post_send") : 0;
}

/* inside returns the bytes of the argument "sge", which have to lie inside their region. */
static uint8_t *inside(size_t *len)
{
	struct object *mr;
	uint8_t *at = part(text("sge", ""), &mr, len);
	if (at && (at < mr->data || at > mr->data + mr->size || *len > (size_t)(mr->data + mr->size - at))) {
		errno = ERANGE;
		fail("the part lies outside the region");
		return NULL;
	}
	return at;
}

/* mix is the finalizer of splitmix64: word i of the pattern of a seed is mix(seed + i). The tester computes the same. */
static uint64_t mix(uint64_t x)
{
	x *= 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

/* fill writes the pattern of "seed", beginning with its byte "from". */
static void fill(uint8_t *to, size_t len)
{
	uint64_t seed = number("seed", 0), from = number("from", 0), word = mix(seed + from / 8);
	for (size_t i = 0; i < len; i++, from++) {
		if (from % 8 == 0)
			word = mix(seed + from / 8);
		to[i] = (uint8_t)(word >> from % 8 * 8);
	}
}

/* compare compares memory with the same pattern. */
static int compare(const uint8_t *at, size_t len)
{
	uint8_t *want = malloc(len);
	size_t i = 0;
	if (!want)
		return fail("memory of %zu bytes", len);
	fill(want, len);
	while (i < len && at[i] == want[i])
		i++;
	errno = 0;
	int failed = i < len ? fail("byte %zu of %zu is %#x, want %#x", i, len, at[i], want[i]) : 0;
	free(want);
	return failed;
}

int cmd_check(void)
{
	size_t len;
	uint8_t *at = inside(&len);
	if (!at)
		return -1;
	if (has("seed"))
		return compare(at, len);
	say("data=");
	for (size_t i = 0; i < len; i++)
		say("%02x", at[i]);
	return 0;
}

/* counters of the port, as they were when the script began. */
static struct { char name[64]; unsigned long first; } counters[256];

/* read_counter reads a counter of the port. */
static bool read_counter(const char *name, unsigned long *v)
{
	char path[512];
	snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/%d/hw_counters/%s", ibv_get_device_name(device->device), port, name);
	FILE *f = fopen(path, "r");
	if (!f)
		return false;
	bool ok = fscanf(f, "%lu", v) == 1;
	fclose(f);
	return ok;
}

/* count_from_now notes the counters at the beginning of a script. */
void count_from_now(void)
{
	char path[512];
	size_t n = 0;
	snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/%d/hw_counters", ibv_get_device_name(device->device), port);
	memset(counters, 0, sizeof counters);
	DIR *d = opendir(path);
	for (struct dirent *e; d && n < sizeof counters / sizeof *counters && (e = readdir(d));)
		if (strlen(e->d_name) < sizeof counters->name && read_counter(e->d_name, &counters[n].first))
			strcpy(counters[n++].name, e->d_name);
	if (d)
		closedir(d);
}

/* cmd_counter returns how much a counter of the port has grown since the script began. */
int cmd_counter(void)
{
	unsigned long v;
	const char *name = text("name", "");
	errno = 0;
	for (size_t i = 0; *name && i < sizeof counters / sizeof *counters; i++)
		if (!strcmp(counters[i].name, name) && read_counter(name, &v)) {
			say("value=%lu", v - counters[i].first);
			return 0;
		}
	return fail("the device has no counter %s", name);
}

int cmd_set(void)
{
	size_t len;
	uint8_t *at = inside(&len);
	if (!at)
		return -1;
	if (has("seed")) {
		fill(at, len);
		return 0;
	}
	return unhex("data", at, len) == len ? 0 : fail("data has not two hexadecimal digits for each byte of the part");
}
