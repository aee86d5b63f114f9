/* The loop of the agent: commands, and the tables that all of them use. */
#define _GNU_SOURCE
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 1 << 20 };

/* The time between two polls, in ns. It doubles from the least to the most while nothing happens. */
enum { LEAST_PAUSE = 100000, MOST_PAUSE = 3200000, NO_POLL = 100000000 };

struct object objects[OBJECTS];
struct ibv_context *device;
uint8_t port = 1;
const char *verb;

static int in = 0, out = 1;
static char answer[2 * LINE];
static size_t used;
static long pause_ns = LEAST_PAUSE;
static char *arguments; /* of the command that runs */

/* say appends to the answer. */
void say(const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	int n = vsnprintf(answer + used, sizeof answer - used, format, ap);
	va_end(ap);
	if (n > 0)
		used += (size_t)n < sizeof answer - used ? (size_t)n : sizeof answer - used - 1;
}

/* fail replaces the answer by an error. Every command returns its value. */
int fail(const char *format, ...)
{
	int error = errno;
	va_list ap;
	used = 0;
	va_start(ap, format);
	int n = vsnprintf(answer, sizeof answer, format, ap);
	va_end(ap);
	used = n > 0 ? (size_t)n : 0;
	if (error)
		say(": %s", strerror(error));
	return -1;
}

/* value returns the start of the value of a key, which ends at a space or a zero byte. */
const char *value(const char *key)
{
	size_t n = strlen(key);
	for (const char *p = arguments; *p; p += strcspn(p, " ")) {
		p += strspn(p, " ");
		if (!strncmp(p, key, n) && p[n] == '=')
			return p + n + 1;
	}
	return NULL;
}

/* text returns the value of a key as a string, which is valid until four more calls. */
const char *text(const char *key, const char *otherwise)
{
	static char buffers[4][256];
	static unsigned turn;
	const char *v = value(key);
	if (!v)
		return otherwise;
	char *b = buffers[turn++ % 4];
	snprintf(b, sizeof buffers[0], "%.*s", (int)strcspn(v, " "), v);
	return b;
}

uint64_t number(const char *key, uint64_t otherwise)
{
	const char *v = value(key);
	return v ? strtoull(v, NULL, 0) : otherwise;
}

bool has(const char *key)
{
	return value(key) != NULL;
}

/* find returns an object by its name. */
struct object *find(enum kind kind, const char *name)
{
	for (struct object *o = objects; o < objects + OBJECTS; o++)
		if (o->kind == kind && !strcmp(o->name, name))
			return o;
	errno = 0;
	fail("no object %s", name);
	return NULL;
}

/* place returns a place for an object. The caller fills it in, and its kind last of all. */
struct object *place(enum kind kind, const char *name)
{
	for (struct object *o = objects; o < objects + OBJECTS; o++)
		if (o->kind == FREE) {
			memset(o, 0, sizeof *o);
			snprintf(o->name, sizeof o->name, "%s", name);
			return o;
		}
	errno = ENOSPC;
	fail("object %s of kind %d", name, kind);
	return NULL;
}

/* create is place for the object that the argument "name" names. An earlier object of that name stays, without the name. */
struct object *create(enum kind kind)
{
	const char *name = text("name", "");
	for (struct object *o = objects; o < objects + OBJECTS; o++)
		if (o->kind == kind && !strcmp(o->name, name))
			memcpy(o->name, UNNAMED, sizeof UNNAMED);
	return place(kind, name);
}

/* domain returns the protection domain of the argument "pd", by default the one that cmd_open has made. */
struct ibv_pd *domain(void)
{
	struct object *o = find(PD, text("pd", ""));
	return o ? o->pd : NULL;
}

/* part parses "region:offset:length". It returns the address, which may lie beyond the region: scripts test that. */
uint8_t *part(const char *v, struct object **mr, size_t *len)
{
	char name[40];
	unsigned long off, n;
	if (!v || sscanf(v, "%39[^: ]:%lu:%lu", name, &off, &n) != 3) {
		errno = EINVAL;
		fail("not a part of a region");
		return NULL;
	}
	*mr = find(MR, name);
	*len = n;
	return *mr ? (*mr)->data + off : NULL;
}

/* find_sges fills a list with the parts of the argument "sge" and returns their number. */
int find_sges(struct ibv_sge *list)
{
	int n = 0;
	for (const char *v = value("sge"); v && n < SGES; n++) {
		struct object *mr;
		size_t len;
		uint8_t *at = part(v, &mr, &len);
		if (!at)
			return -1;
		list[n] = (struct ibv_sge){mr->base + (uint64_t)(at - mr->data), (uint32_t)len, mr->mr->lkey};
		v += strcspn(v, ", ");
		v = *v == ',' ? v + 1 : NULL;
	}
	return n;
}

/* access_flags parses the letters of the argument "access". */
int access_flags(int otherwise)
{
	static const struct { char letter; int flag; } flags[] = {{'l', IBV_ACCESS_LOCAL_WRITE}, {'w', IBV_ACCESS_REMOTE_WRITE},
		{'r', IBV_ACCESS_REMOTE_READ}, {'a', IBV_ACCESS_REMOTE_ATOMIC}, {'b', IBV_ACCESS_MW_BIND}, {'z', IBV_ACCESS_ZERO_BASED}};
	const char *v = text("access", NULL);
	int sum = 0;
	if (!v)
		return otherwise;
	for (size_t i = 0; strcmp(v, "none") && i < sizeof flags / sizeof *flags; i++)
		if (strchr(v, flags[i].letter))
			sum |= flags[i].flag;
	return sum;
}

/* cmd_ping answers without the device: the tester measures the round trip. */
static int cmd_ping(void)
{
	return 0;
}

/* Keys of paths, of queue pairs, and of work requests. */
#define PATH_KEYS "sl tclass ttl flow vlan ip "
#define QP_KEYS "mtu psn rqpsn peer timeout retry rnr_retry min_rnr rd_atomic dest_rd_atomic qkey pkey_index access state " PATH_KEYS
#define POST_KEYS "on sge wr signaled solicited fence inline imm inv remote rkey compare swap add peer qkey ah depth ms"
#define CM_KEYS "qpn psn resources depth private "

/* Commands with all of their keys. */
static const struct {
	const char *name;
	int (*run)(void);
	const char *keys;
} commands[] = {
	{"open", cmd_open, "device port gid_index vlan dut dut6 tester tester6"}, {"ping", cmd_ping, ""}, {"close", cmd_close, ""},
	{"pd", cmd_pd, "name"}, {"mr", cmd_mr, "name pd size fill access"}, {"mw", cmd_mw, "name pd type"}, {"cq", cmd_cq, "name size"},
	{"srq", cmd_srq, "name pd size limit"}, {"ah", cmd_ah, "name pd group " PATH_KEYS},
	{"attach", cmd_attach, "on group"}, {"detach", cmd_detach, "on group"},
	{"qp", cmd_qp, "name type pd scq rcq srq size rsize sges sigall inline profile " QP_KEYS}, {"modify", cmd_modify, "on notify without " QP_KEYS},
	{"limit", cmd_limit, "on limit"}, {"resize", cmd_resize, "on size"}, {"arm", cmd_arm, "on solicited"}, {"query", cmd_query, "on"}, {"destroy", cmd_destroy, "on"}, {"recv", cmd_recv, "on sge wr"},
	{"send", cmd_post, POST_KEYS}, {"write", cmd_post, POST_KEYS}, {"read", cmd_post, POST_KEYS}, {"cas", cmd_post, POST_KEYS},
	{"fadd", cmd_post, POST_KEYS}, {"awrite", cmd_awrite, "on data wr remote rkey signaled"},
	{"bind", cmd_bind, "on mw to wr rkey signaled access"}, {"invalidate", cmd_invalidate, "on wr rkey signaled"},
	{"set", cmd_set, "sge data seed from"}, {"check", cmd_check, "sge seed from"}, {"counter", cmd_counter, "name min max"},
	{"listen", cmd_listen, "name port backlog udp ip"}, {"connect", cmd_connect, "name port cm_timeout cm_retries udp ip " CM_KEYS},
	{"accept", cmd_accept, "on " CM_KEYS}, {"reject", cmd_reject, "on reason private"}, {"establish", cmd_establish, "on"},
	{"leave", cmd_leave, "on"},
};

/* is_key reports whether a list of keys with spaces between them has the first n bytes of a word. */
static bool is_key(const char *keys, const char *word, size_t n)
{
	for (; *keys; keys += strspn(keys, " ")) {
		size_t len = strcspn(keys, " ");
		if (len == n && !strncmp(keys, word, n))
			return true;
		keys += len;
	}
	return false;
}

/* The letters of access_flags. */
#define RIGHTS "lwrabz"

/* unknown refuses a command that has other keys than these, which may be those of a newer agent. */
static int unknown(const char *keys)
{
	for (const char *p = arguments; *p; p += strcspn(p, " ")) {
		p += strspn(p, " ");
		size_t n = strcspn(p, "= ");
		if (n && !is_key(keys, p, n))
			return fail("the agent has no key %.*s of %s", (int)n, p, verb);
	}
	const char *rights = value("access");
	if (!rights || !strncmp(rights, "none", 4))
		return 0;
	rights += strspn(rights, RIGHTS);
	return *rights && *rights != ' ' ? fail("the agent has no key access=%c of %s", *rights, verb) : 0;
}

static int run(char *line)
{
	arguments = strchr(line, ' ');
	if (arguments)
		*arguments++ = '\0';
	else
		arguments = line + strlen(line);
	verb = line;
	errno = 0;
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
		if (!strcmp(line, commands[i].name) && commands[i].run)
			return unknown(commands[i].keys) ? -1 : commands[i].run();
	return fail("no verb %s", line);
}

/* put writes everything, or ends the program: the tester has gone. */
static void put(const char *p, size_t n)
{
	while (n > 0) {
		ssize_t w = write(out, p, n);
		if (w <= 0)
			exit(1);
		p += w;
		n -= (size_t)w;
	}
}

/* flush_answer writes the answer after its first words, or as it is. */
static void flush_answer(const char *word)
{
	put(word, strlen(word));
	put(answer, used);
	put("\n", 1);
	used = 0;
}

/* reported writes a report; report.c calls it. */
void reported(void)
{
	flush_answer("");
	pause_ns = LEAST_PAUSE;
}

/* answer_line runs a command, "NUMBER VERB ...", and answers "NUMBER ok ..." or "NUMBER error ...". A command that somebody types may
 * lack the number. */
static void answer_line(char *line)
{
	char *end, word[40];
	unsigned long number = strtoul(line, &end, 10);
	bool numbered = end > line && *end == ' ';
	used = 0;
	int failed = run(numbered ? end + 1 : line);
	int n = numbered ? snprintf(word, sizeof word, "%lu ", number) : 0;
	snprintf(word + n, sizeof word - (size_t)n, "%s ", failed ? "error" : "ok");
	flush_answer(word);
}

/* run_lines runs the complete lines of a buffer and returns how many bytes remain. */
static size_t run_lines(char *line, size_t n)
{
	for (char *end; (end = memchr(line, '\n', n));) {
		*end = '\0';
		answer_line(line);
		n -= (size_t)(end + 1 - line);
		memmove(line, end + 1, n);
	}
	return n;
}

/* polls reports whether a queue or a connection can have reports. Agents that do not poll leave the processors to others. */
static bool polls(void)
{
	for (struct object *o = objects; o < objects + OBJECTS; o++)
		if (o->kind >= CQ)
			return true;
	return false;
}

/* serve reads commands until the tester closes the channel. Completion queues are polled in between. */
static void serve(void)
{
	static char line[LINE];
	size_t n = 0;
	for (;;) {
		struct timespec pause = {0, polls() ? pause_ns : NO_POLL};
		struct pollfd p = {.fd = in, .events = POLLIN};
		if (ppoll(&p, 1, &pause, NULL) < 0 && errno != EINTR)
			return;
		pause_ns = pause_ns < MOST_PAUSE ? 2 * pause_ns : MOST_PAUSE;
		if (p.revents) {
			pause_ns = LEAST_PAUSE;
			ssize_t r = read(in, line + n, sizeof line - n);
			if (r <= 0)
				return;
			n = run_lines(line, n + (size_t)r);
			if (n == sizeof line)
				return; /* no line is that long */
		}
		if (device)
			report();
	}
}

static const char usage[] =
	"usage: rocedrill-agent                drive verbs by commands on standard input\n"
	"       rocedrill-agent FILE           by commands from a character device, such as a virtio port\n"
	"       rocedrill-agent --listen [ADDRESS:]PORT\n"
	"                                      by commands of the first TCP client that sends $ROCEDRILL_TOKEN;\n"
	"                                      without ADDRESS it listens on a loopback address\n";

int main(int argc, char **argv)
{
	const char *token = getenv("ROCEDRILL_TOKEN");
	if (argc == 3 && !strcmp(argv[1], "--listen") && token && *token)
		in = out = listen_for(argv[2], token);
	else if (argc == 2 && argv[1][0] == '/')
		in = out = open(argv[1], O_RDWR);
	else if (argc != 1) {
		fputs(usage, stderr);
		return 2;
	}
	if (in < 0) {
		if (argc == 2)
			perror("rocedrill-agent");
		return 1;
	}
	serve();
	return 0;
}
