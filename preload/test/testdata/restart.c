/* A new daemon replaces the old one: open devices are dead, and the device can be opened again. The
 * program prints "ready" when the test may replace the daemon, then waits for a line. */
#include "user.h"

#include <poll.h>
#include <rdma/rdma_cma.h>

static void fatal(struct ibv_context *ctx)
{
	struct ibv_async_event e;
	do { /* events from before the end of the daemon come first */
		CHECK(ibv_get_async_event(ctx, &e) == 0);
		ibv_ack_async_event(&e);
	} while (e.event_type != IBV_EVENT_DEVICE_FATAL);
	FAILS(ibv_get_async_event(ctx, &e), EIO);
}

static void cm_dead(struct rdma_event_channel *ch, struct rdma_cm_id *id)
{
	struct rdma_cm_event *e;
	struct pollfd p = { .fd = ch->fd, .events = POLLIN };
	CHECK(poll(&p, 1, 0) == 1);
	FAILS(rdma_get_cm_event(ch, &e), EIO);
	struct sockaddr_in self = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc6120001) };
	FAILS(rdma_bind_addr(id, (struct sockaddr *)&self), EIO);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(ch);
}

static void cm_alive(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct sockaddr_in self = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc6120001) };
	CHECK(ch && rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&self) == 0 && rdma_listen(id, 1) == 0);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(ch);
}

int main(void)
{
	struct user old = user_open();
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;
	char line[16];
	talk(&old);
	CHECK(ch && rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) == 0);
	printf("ready\n");
	fflush(stdout);
	CHECK(fgets(line, sizeof line, stdin) != NULL);

	struct user new = user_open();
	talk(&new);
	fatal(old.l.ctx);
	CHECK(ibv_alloc_pd(old.l.ctx) == NULL && errno == EIO);
	user_close(&old);
	cm_dead(ch, id);
	cm_alive();
	talk(&new);
	user_close(&new);
	return 0;
}
