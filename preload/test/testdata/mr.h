/* RDMA between memory regions of one program, over a queue pair connected to itself. */
#include "verbs.h"

#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALL_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

struct lab {
	struct loop loop;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static inline struct lab lab_open(void)
{
	struct lab l = { .loop = loop_open() };
	CHECK((l.cq = ibv_create_cq(l.loop.ctx, 64, NULL, NULL, 0)) != NULL);
	l.qp = loop_qp(&l.loop, l.cq, l.cq);
	struct ibv_qp_attr a = { .qp_access_flags = ALL_ACCESS };
	CHECK(ibv_modify_qp(l.qp, &a, IBV_QP_ACCESS_FLAGS) == 0);
	return l;
}

/* lab_renew replaces a queue pair in the error state. */
static inline void lab_renew(struct lab *l)
{
	CHECK(ibv_destroy_qp(l->qp) == 0);
	l->qp = loop_qp(&l->loop, l->cq, l->cq);
	struct ibv_qp_attr a = { .qp_access_flags = ALL_ACCESS };
	CHECK(ibv_modify_qp(l->qp, &a, IBV_QP_ACCESS_FLAGS) == 0);
}

static inline struct ibv_mr *reg(struct lab *l, void *p, size_t n)
{
	struct ibv_mr *mr = ibv_reg_mr(l->loop.pd, p, n, ALL_ACCESS);
	CHECK(mr != NULL);
	return mr;
}

/* rdma executes one operation and returns its status. */
static inline enum ibv_wc_status rdma(struct lab *l, enum ibv_wr_opcode op, struct ibv_mr *local, void *p, size_t n,
				      struct ibv_mr *remote, void *to)
{
	struct ibv_sge sge = { (uintptr_t)p, n, local->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED }, *bad;
	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)to;
		wr.wr.atomic.rkey = remote->rkey;
		wr.wr.atomic.compare_add = 0x0102030405060708;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)to;
		wr.wr.rdma.rkey = remote->rkey;
	}
	CHECK(ibv_post_send(l->qp, &wr, &bad) == 0);
	return reap(l->cq).status;
}

/* denied returns true if the responder refused access. Requester and responder are the same queue
 * pair, so a refusal may also flush the request. */
static inline int denied(enum ibv_wc_status s)
{
	return s == IBV_WC_REM_ACCESS_ERR || s == IBV_WC_WR_FLUSH_ERR;
}

/* fill writes a pattern that depends on the seed and the offset. */
static inline void fill(void *p, size_t n, unsigned seed)
{
	uint8_t *b = p;
	for (size_t i = 0; i < n; i++)
		b[i] = (uint8_t)(seed * 31 + i * 7 + i / 251);
}

static inline int filled(const void *p, size_t n, unsigned seed)
{
	const uint8_t *b = p;
	for (size_t i = 0; i < n; i++)
		if (b[i] != (uint8_t)(seed * 31 + i * 7 + i / 251)) {
			fprintf(stderr, "byte %zu of %zu at %p is %#x\n", i, n, p, b[i]);
			return 0;
		}
	return 1;
}

/* exchange moves data both ways between two regions, and checks every byte. */
static inline void exchange(struct lab *l, struct ibv_mr *am, void *a, struct ibv_mr *bm, void *b, size_t n, unsigned seed)
{
	fill(a, n, seed);
	fill(b, n, seed + 1);
	CHECK(rdma(l, IBV_WR_RDMA_WRITE, am, a, n, bm, b) == IBV_WC_SUCCESS);
	CHECK(filled(a, n, seed) && filled(b, n, seed));
	fill(b, n, seed + 2); /* written by the processor: the daemon must see it */
	CHECK(rdma(l, IBV_WR_RDMA_READ, am, a, n, bm, b) == IBV_WC_SUCCESS);
	CHECK(filled(a, n, seed + 2) && filled(b, n, seed + 2));
}

/* backing returns the size of the library's memfd in memory, 0 if there is none. */
static inline size_t backing(void)
{
	char name[64], target[64];
	struct stat st;
	for (int fd = 3; fd < 1024; fd++) {
		snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
		ssize_t n = readlink(name, target, sizeof target - 1);
		target[n > 0 ? n : 0] = 0;
		if (strstr(target, "/memfd:roced ("))
			return fstat(fd, &st) == 0 ? (size_t)st.st_blocks * 512 : 0;
	}
	return 0;
}
