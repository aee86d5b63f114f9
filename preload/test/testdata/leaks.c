/* Creates and destroys objects repeatedly. Neither this process nor the daemon may leak descriptors,
 * mappings or memory. argv: the daemon's PID, the number of rounds. */
#include "verbs.h"
#include "old.h"
#include "self.h"

#include <malloc.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

/* SLACK is the tolerated growth in mappings, because heaps grow at any time. A leak is more than LEAST
 * bytes per round; a table of librdmacm grows by 8 bytes per identifier, up to half a MiB. */
enum { WARM = 100, SLACK = 40, LEAST = 16 };

static struct loop l;
static struct ibv_cq *shared_cq;
static struct rdma_event_channel *shared_channel;

static void completion_queue(void)
{
	struct ibv_cq *cq = ibv_create_cq(l.ctx, 32, NULL, NULL, 0);
	CHECK(cq && ibv_destroy_cq(cq) == 0);
}

static void queue_pair(void)
{
	CHECK(ibv_destroy_qp(loop_qp(&l, shared_cq, shared_cq)) == 0);
}

static void shared_receive_queue(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(l.pd, &init);
	struct ibv_srq_attr bigger = { .max_wr = 100 }, too_big = { .max_wr = 1 << 30 };
	CHECK(srq && ibv_modify_srq(srq, &bigger, IBV_SRQ_MAX_WR) == 0);
	CHECK(ibv_modify_srq(srq, &too_big, IBV_SRQ_MAX_WR) != 0 && ibv_destroy_srq(srq) == 0);
}

static void channel(void)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(l.ctx);
	struct ibv_cq *cq = ibv_create_cq(l.ctx, 4, NULL, ch, 0);
	CHECK(ch && cq && ibv_req_notify_cq(cq, 0) == 0);
	CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(ch) == 0);
}

static void memory_region(void)
{
	char *p = malloc(100000);
	struct ibv_mr *mr = ibv_reg_mr(l.pd, p, 100000, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && ibv_dereg_mr(mr) == 0);
	free(p);
}

static void context(void)
{
	struct ibv_context *ctx = ibv_open_device(l.ctx->device);
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	struct ibv_cq *cq = pd ? ibv_create_cq(ctx, 4, NULL, NULL, 0) : NULL;
	CHECK(cq && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(ctx) == 0);
}

static void identifier(void)
{
	struct rdma_cm_id *id;
	CHECK(rdma_create_id(shared_channel, &id, NULL, RDMA_PS_TCP) == 0 && rdma_destroy_id(id) == 0);
}

static void cm_channel(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;
	CHECK(ch && rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) == 0 && rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(ch);
}

static void refused(void)
{
	CHECK(ibv_reg_mr(l.pd, (void *)4096, 100, 0) == NULL);
	CHECK(ibv_create_cq(l.ctx, 1 << 30, NULL, NULL, 0) == NULL);
	CHECK(ibv_resize_cq(shared_cq, 1 << 30) != 0);
}

static void resized(void)
{
	CHECK(ibv_resize_cq(shared_cq, 40) == 0 && ibv_resize_cq(shared_cq, 500) == 0);
}

static void repeat(const char *name, void (*run)(void), int rounds)
{
	for (int i = 0; i < WARM; i++)
		run();
	int fds = open_fds("self"), maps = mappings("self");
	long heap = mallinfo2().uordblks;
	for (int i = 0; i < rounds; i++)
		run();
	int more_fds = open_fds("self") - fds, more_maps = mappings("self") - maps;
	long more_heap = mallinfo2().uordblks - heap;
	fprintf(stderr, "%s: descriptors %+d, mappings %+d, bytes %+ld\n", name, more_fds, more_maps, more_heap);
	CHECK(more_fds == 0 && more_maps < SLACK && more_heap < (long)rounds * LEAST);
}

/* settled waits until the daemon has no more than before, because it notices a closed connection
 * with a delay. */
static void settled(const char *daemon, int fds, int maps)
{
	for (int i = 0; open_fds(daemon) > fds || mappings(daemon) > maps + SLACK; i++) {
		CHECK(i < 2000);
		usleep(10000);
	}
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*run)(void); } part[] = {
		{ "CQ", completion_queue }, { "QP", queue_pair }, { "SRQ", shared_receive_queue }, { "channel", channel },
		{ "MR", memory_region }, { "context", context }, { "cm_id", identifier }, { "cm channel", cm_channel },
		{ "refused", refused }, { "resized", resized },
	};
	CHECK(argc == 3);
	int rounds = atoi(argv[2]);
	l = loop_open(); /* once before, so that the daemon has opened its permanent descriptors */
	CHECK(ibv_dereg_mr(l.mr) == 0 && ibv_dealloc_pd(l.pd) == 0 && ibv_close_device(l.ctx) == 0);
	int fds = open_fds(argv[1]), maps = mappings(argv[1]);
	l = loop_open();
	CHECK((shared_cq = ibv_create_cq(l.ctx, 32, NULL, NULL, 0)) != NULL);
	CHECK((shared_channel = rdma_create_event_channel()) != NULL);
	for (size_t i = 0; i < sizeof part / sizeof *part; i++)
		repeat(part[i].name, part[i].run, rounds);
	rdma_destroy_event_channel(shared_channel);
	CHECK(ibv_destroy_cq(shared_cq) == 0 && ibv_dereg_mr(l.mr) == 0 && ibv_dealloc_pd(l.pd) == 0);
	CHECK(ibv_close_device(l.ctx) == 0);
	/* librdmacm keeps one connection per device open. */
	settled(argv[1], fds + SLACK, maps);
	return 0;
}
