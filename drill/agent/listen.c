/* The TCP listener of the agent. The commands give access to all memory of the agent, so a tester sends a token first. */
#include "agent.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* The time in which a connection must send the token, in ms, and the number of connections that may do so at once. */
enum { TOKEN_MS = 5000, PENDING = 16 };

struct pending {
	int fd; /* -1: free */
	int64_t until;
	size_t n;
	char line[256];
};

static int64_t milliseconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

/* same compares n bytes with a token in a time that depends only on n. */
static bool same(const char *line, size_t n, const char *token)
{
	size_t len = strlen(token);
	unsigned differ = n != len;
	for (size_t i = 0; i < n; i++)
		differ |= (unsigned char)(line[i] ^ token[i % len]);
	return !differ;
}

/* listener returns a listening socket on "ADDRESS:PORT", "[ADDRESS]:PORT" or, on a loopback address, "PORT". */
static int listener(const char *where)
{
	char copy[128], *host = copy, *service = copy;
	snprintf(copy, sizeof copy, "%s", where);
	char *colon = strrchr(copy, ':');
	if (colon) {
		*colon = '\0';
		service = colon + 1;
		size_t n = strlen(host);
		if (*host == '[' && host[n - 1] == ']') {
			host[n - 1] = '\0';
			host++;
		}
	}
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV}, *list;
	int failed = getaddrinfo(colon ? host : NULL, service, &hints, &list);
	if (failed) {
		fprintf(stderr, "rocedrill-agent: --listen %s: %s; use PORT, ADDRESS:PORT or [ADDRESS]:PORT\n", where, gai_strerror(failed));
		return -1;
	}
	int l = -1, one = 1;
	for (struct addrinfo *a = list; a && l < 0; a = a->ai_next) {
		l = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
		if (l >= 0 && (bind(l, a->ai_addr, a->ai_addrlen) || listen(l, PENDING))) {
			close(l);
			l = -1;
		}
	}
	freeaddrinfo(list);
	if (l < 0)
		fprintf(stderr, "rocedrill-agent: --listen %s: %s\n", where, strerror(errno));
	return l;
}

static void drop(struct pending *p)
{
	close(p->fd);
	p->fd = -1;
}

/* admit accepts a connection. If there is no place, the oldest one without a token gives way. */
static void admit(int l, struct pending *all)
{
	struct pending *at = all;
	int one = 1, fd = accept(l, NULL, NULL);
	if (fd < 0)
		return;
	for (struct pending *p = all; p < all + PENDING && at->fd >= 0; p++)
		if (p->fd < 0 || p->until < at->until)
			at = p;
	if (at->fd >= 0)
		drop(at);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	*at = (struct pending){.fd = fd, .until = milliseconds() + TOKEN_MS};
}

/* authentic reads a connection that has bytes. It reports whether the first line is the token, and drops it if it is another. */
static bool authentic(struct pending *p, const char *token)
{
	while (p->n < sizeof p->line) {
		ssize_t r = recv(p->fd, p->line + p->n, 1, MSG_DONTWAIT); /* commands may follow the line */
		if (r < 0 && (errno == EAGAIN || errno == EINTR))
			return false;
		if (r <= 0)
			break;
		if (p->line[p->n++] != '\n')
			continue;
		if (same(p->line, p->n - 1, token))
			return true;
		break;
	}
	drop(p);
	return false;
}

/* listen_for returns the first connection whose first line is the token. */
int listen_for(const char *where, const char *token)
{
	struct pending all[PENDING];
	struct pollfd polled[PENDING + 1];
	int l = listener(where), tester = -1;
	for (int i = 0; i < PENDING; i++)
		all[i].fd = -1;
	while (l >= 0 && tester < 0) {
		polled[PENDING] = (struct pollfd){.fd = l, .events = POLLIN};
		int64_t now = milliseconds(), next = now + TOKEN_MS;
		for (int i = 0; i < PENDING; i++) {
			if (all[i].fd >= 0 && all[i].until <= now)
				drop(&all[i]);
			if (all[i].fd >= 0 && all[i].until < next)
				next = all[i].until;
			polled[i] = (struct pollfd){.fd = all[i].fd, .events = POLLIN};
		}
		if (poll(polled, PENDING + 1, (int)(next - now)) < 0 && errno != EINTR)
			break;
		for (int i = 0; i < PENDING && tester < 0; i++)
			if (polled[i].revents && authentic(&all[i], token)) {
				tester = all[i].fd;
				all[i].fd = -1;
			}
		if (tester < 0 && polled[PENDING].revents)
			admit(l, all);
	}
	for (int i = 0; i < PENDING; i++)
		if (all[i].fd >= 0)
			drop(&all[i]);
	if (l >= 0)
		close(l);
	return tester;
}
