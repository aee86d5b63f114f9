/*
 * rxepeer drives RDMA verbs inside the virtual machine by commands from the control
 * channel. A command is a verb and key=value arguments, and ends with a zero byte;
 * numbers are decimal or 0x. The answer is a line "ok N" or "error N" and N bytes
 * of text.
 *
 * An end is a queue pair with completion queues and a buffer. Numbers of
 * operations, transports, flags and states are those of libibverbs.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ENDS = 8, DEPTH = 256, GRH = 40, LINE = 4096, ANSWER = 1 << 20 };

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	uint8_t *buf;
	size_t size;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	struct ibv_mw *mw;
	int sgid;
	union ibv_gid gid;
	uint32_t dest, qkey;
};

static struct end ends[ENDS];
static char answer[ANSWER];
static size_t used;
static char *args; /* of the command being run */

static void say(const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	int n = vsnprintf(answer + used, sizeof answer - used, format, ap);
	va_end(ap);
	if (n > 0)
		used += (size_t)n < sizeof answer - used ? (size_t)n : sizeof answer - used - 1;
}

/* fail describes what went wrong; it is what every command returns then. */
static int fail(const char *what)
{
	say("%s: %s", what, strerror(errno));
	return -1;
}

/* text finds the value of an argument, which ends at a space. */
static const char *text(const char *key)
{
	size_t n = strlen(key);
	for (const char *p = args; p && *p; p = strchr(p, ' ') ? strchr(p, ' ') + 1 : NULL)
		if (!strncmp(p, key, n) && p[n] == '=')
			return p + n + 1;
	return NULL;
}

static uint64_t number(const char *key)
{
	const char *v = text(key);
	return v ? strtoull(v, NULL, 0) : 0;
}

static int64_t nanoseconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* mix is the finalizer of splitmix64: the i-th word of the pattern of a seed is
 * mix(seed + i). The other side computes the same. */
static uint64_t mix(uint64_t x)
{
	x *= 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

/* pattern gives the bytes of a seed one after the other. */
struct pattern {
	uint64_t seed, index, word;
};

static uint8_t next(struct pattern *p)
{
	if (p->index % 8 == 0)
		p->word = mix(p->seed + p->index / 8);
	return p->word >> 8 * (p->index++ % 8);
}

static struct pattern pattern(void)
{
	struct pattern p = {number("seed"), number("from"), 0};
	if (p.index % 8)
		p.word = mix(p.seed + p.index / 8);
	return p;
}

static struct end *end(void)
{
	return &ends[number("end") % ENDS];
}

/* place checks that off and len lie inside the buffer. */
static uint8_t *place(const struct end *e, size_t *len)
{
	size_t off = number("off");
	*len = number("len");
	if (off > e->size || *len > e->size - off)
		return NULL;
	return e->buf + off;
}

static int cmd_open(void)
{
	struct end *e = end();
	const char *name = text("dev");
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	for (int i = 0; i < n && !e->ctx; i++) {
		const char *have = ibv_get_device_name(list[i]);
		size_t len = strlen(have);
		if (name && !strncmp(have, name, len) && (name[len] == ' ' || !name[len]))
			e->ctx = ibv_open_device(list[i]);
	}
	ibv_free_device_list(list);
	if (!e->ctx)
		return fail("no such device");
	e->size = number("size");
	e->pd = ibv_alloc_pd(e->ctx);
	if (!e->pd || posix_memalign((void **)&e->buf, 4096, e->size))
		return fail("memory");
	memset(e->buf, 0, e->size);
	e->mr = ibv_reg_mr(e->pd, e->buf, e->size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND);
	if (!e->mr)
		return fail("reg_mr");
	say("addr=%#lx rkey=%#x", (unsigned long)e->buf, e->mr->rkey);
	return 0;
}

/* parse_gid reads 32 hexadecimal digits. */
static int parse_gid(const char *s, union ibv_gid *gid)
{
	for (int i = 0; i < 16; i++)
		if (!s || sscanf(s + 2 * i, "%2hhx", &gid->raw[i]) != 1)
			return fail("gid");
	return 0;
}

static int find_gid(struct end *e)
{
	union ibv_gid g;
	if (parse_gid(text("gid"), &e->gid))
		return -1;
	for (int i = 0; i < 64 && !ibv_query_gid(e->ctx, 1, i, &g); i++)
		if (!memcmp(&g, &e->gid, sizeof g)) {
			e->sgid = i;
			return 0;
		}
	return fail("the device does not have this gid");
}

static int cmd_qp(void)
{
	struct end *e = end();
	e->qkey = number("qkey");
	if (find_gid(e))
		return -1;
	e->cq = ibv_create_cq(e->ctx, 2 * DEPTH, NULL, NULL, 0);
	if (!e->cq)
		return fail("create_cq");
	struct ibv_qp_init_attr init = {.send_cq = e->cq, .recv_cq = e->cq, .qp_type = number("type"),
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1}};
	e->qp = ibv_create_qp(e->pd, &init);
	if (!e->qp)
		return fail("create_qp");
	int mask = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX;
	mask |= init.qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = e->qkey,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
	if (ibv_modify_qp(e->qp, &attr, mask))
		return fail("modify to INIT");
	say("qpn=%u", e->qp->qp_num);
	return 0;
}

static int to_rtr(struct end *e, const struct ibv_ah_attr *ah)
{
	int mask = IBV_QP_STATE;
	if (e->qp->qp_type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (e->qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .ah_attr = *ah, .path_mtu = number("mtu"),
		.dest_qp_num = e->dest, .rq_psn = number("rqpsn"), .max_dest_rd_atomic = 16,
		.min_rnr_timer = number("rnrtimer")};
	return ibv_modify_qp(e->qp, &attr, mask);
}

static int to_rts(struct end *e)
{
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (e->qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .sq_psn = number("sqpsn"), .timeout = number("timeout"),
		.retry_cnt = number("retry"), .rnr_retry = number("rnrretry"), .max_rd_atomic = 16};
	return ibv_modify_qp(e->qp, &attr, mask);
}

static int cmd_connect(void)
{
	struct end *e = end();
	struct ibv_ah_attr ah = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = e->sgid, .hop_limit = 64}};
	e->dest = number("dest");
	if (parse_gid(text("dgid"), &ah.grh.dgid))
		return -1;
	if (to_rtr(e, &ah))
		return fail("modify to RTR");
	if (to_rts(e))
		return fail("modify to RTS");
	if (e->qp->qp_type != IBV_QPT_UD)
		return 0;
	e->ah = ibv_create_ah(e->pd, &ah);
	return e->ah ? 0 : fail("create_ah");
}

static int cmd_fill(void)
{
	size_t len;
	uint8_t *p = place(end(), &len);
	struct pattern q = pattern();
	if (!p)
		return fail("range");
	for (size_t i = 0; i < len; i++)
		p[i] = next(&q);
	return 0;
}

static int cmd_check(void)
{
	size_t len;
	uint8_t *p = place(end(), &len);
	struct pattern q = pattern();
	if (!p)
		return fail("range");
	for (size_t i = 0; i < len; i++) {
		uint8_t want = next(&q);
		if (p[i] != want) {
			say("byte %zu of %zu is %#x, want %#x", i, len, p[i], want);
			return -1;
		}
	}
	return 0;
}

/* word reads or writes 8 aligned bytes: what an atomic operation works on. */
static int cmd_word(void)
{
	size_t len;
	uint8_t *p = place(end(), &len);
	if (!p || len != 8)
		return fail("range");
	if (text("value"))
		*(volatile uint64_t *)p = number("value");
	say("value=%lu", (unsigned long)*(volatile uint64_t *)p);
	return 0;
}

static int cmd_recv(void)
{
	struct end *e = end();
	struct ibv_recv_wr *bad;
	for (uint64_t i = 0, n = number("count"); i < n; i++) {
		struct ibv_sge sge = {(uintptr_t)e->buf + number("off") + i * number("stride"), number("len"), e->mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = number("id") + i, .sg_list = &sge, .num_sge = 1};
		if ((errno = ibv_post_recv(e->qp, &wr, &bad)))
			return fail("post_recv");
	}
	return 0;
}

/* post posts the send work request that the arguments describe, its buffers
 * moved by shift. */
static int post(struct end *e, uint64_t id, uint64_t shift)
{
	struct ibv_sge sge = {(uintptr_t)e->buf + number("off") + shift, number("len"), e->mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = id, .sg_list = &sge, .num_sge = sge.length ? 1 : 0,
		.opcode = number("op"), .send_flags = IBV_SEND_SIGNALED | number("flags")};
	if (wr.opcode == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = number("imm");
	else
		wr.imm_data = htobe32(number("imm"));
	if (e->qp->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = e->ah;
		wr.wr.ud.remote_qpn = e->dest;
		wr.wr.ud.remote_qkey = e->qkey;
	} else if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = number("raddr") + shift;
		wr.wr.atomic.rkey = number("rkey");
		wr.wr.atomic.compare_add = number("compare");
		wr.wr.atomic.swap = number("swap");
	} else {
		wr.wr.rdma.remote_addr = number("raddr") + shift;
		wr.wr.rdma.rkey = number("rkey");
	}
	return (errno = ibv_post_send(e->qp, &wr, &bad)) ? fail("post_send") : 0;
}

static int cmd_send(void)
{
	return post(end(), number("id"), 0);
}

/* invalidated reports whether a completion names a key that the peer has
 * invalidated. Linux 6.1's rxe hands programs the kernel's flag for that, which is
 * 4, not libibverbs' 8. */
static int invalidated(const struct ibv_wc *wc)
{
	return wc->opcode == IBV_WC_RECV && (wc->wc_flags & (IBV_WC_WITH_INV | 4));
}

/* poll waits for n completions and describes each. */
static int cmd_poll(void)
{
	struct end *e = end();
	struct ibv_wc wc;
	uint64_t n = number("n");
	int64_t until = nanoseconds() + (int64_t)number("ms") * 1000000;
	while (n > 0) {
		int got = ibv_poll_cq(e->cq, 1, &wc);
		if (got < 0)
			return fail("poll_cq");
		if (got == 0) {
			if (nanoseconds() > until)
				break;
			usleep(20);
			continue;
		}
		int inv = invalidated(&wc), flags = inv ? (int)(wc.wc_flags & ~4U) | IBV_WC_WITH_INV : (int)wc.wc_flags;
		say("%lu %d %d %d %u %u %u\n", (unsigned long)wc.wr_id, wc.status, wc.opcode, flags, wc.byte_len,
			inv ? wc.invalidated_rkey : be32toh(wc.imm_data), wc.src_qp);
		n--;
	}
	return 0;
}

/* stream runs count work requests, depth of them at a time, and says how long that
 * took and how the first that failed ended. */
static int cmd_stream(void)
{
	struct end *e = end();
	uint64_t count = number("count"), depth = number("depth"), stride = number("stride"), posted = 0, done = 0;
	int64_t begin = nanoseconds(), until = begin + (int64_t)number("ms") * 1000000;
	struct ibv_wc wc = {0};
	while (done < count && nanoseconds() < until) {
		for (; posted < count && posted - done < depth; posted++)
			if (post(e, posted, posted * stride))
				return -1;
		int got = ibv_poll_cq(e->cq, 1, &wc);
		if (got < 0 || (got > 0 && wc.status))
			break;
		done += got;
	}
	say("ns=%lu done=%lu status=%d", (unsigned long)(nanoseconds() - begin), (unsigned long)done, wc.status);
	return 0;
}

/* window opens a memory window of type 2 on a part of the buffer, after giving up
 * the last one. */
static int cmd_window(void)
{
	struct end *e = end();
	struct ibv_wc wc = {0};
	if (e->mw && ibv_dealloc_mw(e->mw))
		return fail("dealloc_mw");
	e->mw = ibv_alloc_mw(e->pd, IBV_MW_TYPE_2);
	if (!e->mw)
		return fail("alloc_mw");
	uint32_t rkey = ibv_inc_rkey(e->mw->rkey);
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {.mw = e->mw, .rkey = rkey & 0xff, .bind_info = {.mr = e->mr, .addr = (uintptr_t)e->buf + number("off"),
			.length = number("len"), .mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ}}};
	if ((errno = ibv_post_send(e->qp, &wr, &bad)))
		return fail("bind");
	while (ibv_poll_cq(e->cq, 1, &wc) == 0)
		;
	if (wc.status)
		return fail(ibv_wc_status_str(wc.status));
	say("rkey=%u", rkey);
	return 0;
}

static int cmd_state(void)
{
	struct end *e = end();
	struct ibv_qp_attr attr = {.qp_state = number("set")};
	struct ibv_qp_init_attr init;
	if (text("set") && ibv_modify_qp(e->qp, &attr, IBV_QP_STATE))
		return fail("modify_qp");
	if (ibv_query_qp(e->qp, &attr, IBV_QP_STATE, &init))
		return fail("query_qp");
	say("state=%d", attr.qp_state);
	return 0;
}

/* close gives up the queue pair; device and memory stay for the next one. */
static int cmd_close(void)
{
	struct end *e = end();
	if (e->mw)
		ibv_dealloc_mw(e->mw);
	if (e->ah)
		ibv_destroy_ah(e->ah);
	if (e->qp && ibv_destroy_qp(e->qp))
		return fail("destroy_qp");
	if (e->cq && ibv_destroy_cq(e->cq))
		return fail("destroy_cq");
	e->mw = NULL;
	e->ah = NULL;
	e->qp = NULL;
	e->cq = NULL;
	return 0;
}

/* sh runs the rest of the command in a shell; what it prints is the answer. */
static int cmd_sh(void)
{
	FILE *f = popen(args, "r");
	if (!f)
		return fail("popen");
	size_t n;
	while ((n = fread(answer + used, 1, sizeof answer - used, f)) > 0)
		used += n;
	return pclose(f);
}

static const struct {
	const char *name;
	int (*run)(void);
} commands[] = {
	{"open", cmd_open}, {"qp", cmd_qp}, {"connect", cmd_connect}, {"fill", cmd_fill}, {"check", cmd_check},
	{"word", cmd_word}, {"recv", cmd_recv}, {"send", cmd_send}, {"poll", cmd_poll}, {"stream", cmd_stream},
	{"window", cmd_window}, {"state", cmd_state}, {"close", cmd_close}, {"sh", cmd_sh},
};

static int run(char *line)
{
	args = strchr(line, ' ');
	if (args)
		*args++ = '\0';
	else
		args = line + strlen(line);
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
		if (!strcmp(line, commands[i].name))
			return commands[i].run();
	say("no such command");
	return -1;
}

/* put writes everything, or ends the program: the other side is gone. */
static void put(int fd, const char *p, size_t n)
{
	while (n > 0) {
		ssize_t w = write(fd, p, n);
		if (w <= 0)
			exit(1);
		p += w;
		n -= (size_t)w;
	}
}

int main(int argc, char **argv)
{
	static char line[LINE];
	size_t n = 0;
	int fd = open(argc > 1 ? argv[1] : "", O_RDWR);
	if (fd < 0) {
		perror("rxepeer");
		return 1;
	}
	for (;;) {
		ssize_t r = read(fd, line + n, sizeof line - n);
		if (r <= 0)
			return 0;
		n += (size_t)r;
		for (char *z; (z = memchr(line, '\0', n));) {
			char head[32];
			used = 0;
			int failed = run(line);
			int h = snprintf(head, sizeof head, "%s %zu\n", failed ? "error" : "ok", used);
			put(fd, head, (size_t)h);
			put(fd, answer, used);
			n -= (size_t)(z + 1 - line);
			memmove(line, z + 1, n);
		}
	}
}
