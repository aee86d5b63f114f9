/* Programs that close, duplicate and poll descriptors. The library's private descriptors survive,
 * and numbers of closed devices are free. */
#define _GNU_SOURCE
#include "user.h"
#include "old.h"

#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <unistd.h>

enum { MANY = 1024 };

static bool of_program(const struct user *u, int fd)
{
	return fd < 3 || fd == u->l.ctx->cmd_fd || fd == u->l.ctx->async_fd || fd == u->ch->fd;
}

/* close_others closes all descriptors that the program did not open, from either end. */
static void close_others(void)
{
	for (int up = 0; up < 2; up++) {
		struct user u = user_open();
		for (int i = 0; i < MANY; i++) {
			int fd = up ? i : MANY - 1 - i;
			if (!of_program(&u, fd))
				FAILS(close(fd), EBADF);
		}
		talk(&u);
		struct ibv_mr *mr = ibv_reg_mr(u.l.pd, u.l.buf, 100, IBV_ACCESS_LOCAL_WRITE);
		CHECK(mr && ibv_dereg_mr(mr) == 0);
		user_close(&u);
	}
}

/* ordinary opens files until they reuse the closed numbers, and writes the bytes of a command to
 * them. */
static void ordinary(void)
{
	char text[8] = "";
	uint32_t command[2] = { 1, 0 };
	for (int i = 0; i < 20; i++) {
		int fd = memfd_create("ordinary", MFD_CLOEXEC);
		CHECK(fd >= 0 && write(fd, command, sizeof command) == sizeof command && lseek(fd, 0, SEEK_SET) == 0);
		CHECK(read(fd, text, sizeof text) == sizeof text && !memcmp(text, command, sizeof command));
	}
	CHECK(close_range(3, 30, 0) == 0);
}

static void close_all_by_closefrom(void) { closefrom(3); }
static void close_all_by_range(void) { CHECK(close_range(3, ~0U, 0) == 0); }
static void close_all_by_loop(void)
{
	for (int fd = 3; fd < MANY; fd++)
		close(fd);
}

/* close_all closes the program's descriptors while objects exist. Commands fail, and the device can
 * be opened again. */
static void close_all(void (*all)(void))
{
	struct user u = user_open();
	all();
	ordinary();
	errno = 0;
	CHECK(ibv_alloc_pd(u.l.ctx) == NULL && errno == EBADF);
	struct user again = user_open();
	talk(&again);
	user_close(&again);
}

static void marked(void)
{
	struct user u = user_open();
	CHECK(close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) == 0);
	FAILS(close_range(5, 4, 0), EINVAL);
	talk(&u);
	user_close(&u);
}

/* duplicates work like the original, also after that is closed. */
static void duplicates(void)
{
	struct user u = user_open();
	int dups[] = { dup(u.ch->fd), dup2(u.ch->fd, 150), dup3(u.ch->fd, 151, O_CLOEXEC), fcntl(u.ch->fd, F_DUPFD, 100),
		       fcntl(u.ch->fd, F_DUPFD_CLOEXEC, 100) };
	int original = u.ch->fd;
	CHECK(dups[1] == 150 && dups[2] == 151 && close(original) == 0);
	for (size_t i = 0; i < sizeof dups / sizeof *dups; i++) {
		u.ch->fd = dups[i];
		talk(&u);
		if (i > 0)
			CHECK(close(dups[i]) == 0);
	}
	u.ch->fd = dups[0];
	/* A duplication that fails leaves its target alone; one onto a descriptor of the
	 * library's is refused. */
	FAILS(dup2(900, u.ch->fd), EBADF);
	FAILS(dup3(dups[0], u.ch->fd, 7), EINVAL);
	talk(&u);
	int refused = 0;
	for (int fd = 160; fd < 300; fd++)
		if (dup2(0, fd) == -1)
			refused += errno == EBUSY;
		else
			CHECK(close(fd) == 0);
	CHECK(refused > 0);
	int command = dup(u.l.ctx->cmd_fd);
	CHECK(command >= 0 && close(u.l.ctx->cmd_fd) == 0 && dup2(command, u.l.ctx->cmd_fd) >= 0 && close(command) == 0);
	talk(&u);
	user_close(&u);
}

static bool in_poll(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	return poll(&p, 1, 0) == 1 && p.revents == POLLIN;
}

static bool in_select(int fd)
{
	fd_set set;
	struct timeval none = { 0, 0 };
	FD_ZERO(&set);
	FD_SET(fd, &set);
	return select(fd + 1, &set, NULL, NULL, &none) == 1;
}

static bool in_epoll(int fd)
{
	struct epoll_event e = { .events = EPOLLIN }, got;
	int ep = epoll_create1(EPOLL_CLOEXEC);
	CHECK(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == 0);
	bool readable = epoll_wait(ep, &got, 1, 0) == 1;
	CHECK(close(ep) == 0);
	return readable;
}

static void readable(int fd, bool want)
{
	CHECK(in_poll(fd) == want && in_select(fd) == want && in_epoll(fd) == want);
}

static void nonblocking(int fd, bool on)
{
	CHECK(fcntl(fd, F_SETFL, on ? O_NONBLOCK : 0) == 0 && !(fcntl(fd, F_GETFL) & O_NONBLOCK) == !on);
}

/* watched checks that poll() reports waiting events on the three kinds of descriptors. */
static void watched(void)
{
	struct user u = user_open();
	struct ibv_cq *got;
	void *context;
	struct ibv_async_event async;
	for (int round = 0; round < 3; round++) {
		nonblocking(u.ch->fd, true);
		readable(u.ch->fd, false);
		FAILS(ibv_get_cq_event(u.ch, &got, &context), EAGAIN);
		message(&u);
		readable(u.ch->fd, true);
		nonblocking(u.ch->fd, round % 2);
		take_event(&u);
	}
	readable(u.l.ctx->async_fd, false);
	nonblocking(u.l.ctx->async_fd, true);
	FAILS(ibv_get_async_event(u.l.ctx, &async), EAGAIN);
	user_close(&u);

	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct rdma_cm_event *e;
	struct sockaddr_in self = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc6120001) };
	CHECK(ch && rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) == 0);
	readable(ch->fd, false);
	nonblocking(ch->fd, true);
	FAILS(rdma_get_cm_event(ch, &e), EAGAIN);
	nonblocking(ch->fd, false);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&self, 2000) == 0);
	struct pollfd p = { .fd = ch->fd, .events = POLLIN };
	CHECK(poll(&p, 1, -1) == 1);
	readable(ch->fd, true);
	CHECK(rdma_get_cm_event(ch, &e) == 0 && e->event == RDMA_CM_EVENT_ADDR_RESOLVED && rdma_ack_cm_event(e) == 0);
	readable(ch->fd, false);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(ch);
}

int main(void)
{
	closefrom(3); /* inherited descriptors */
	close_others();
	watched();
	marked();
	duplicates();
	close_all(close_all_by_closefrom);
	close_all(close_all_by_range);
	close_all(close_all_by_loop);
	return 0;
}
