/* A program with one object of each kind, and the protection domain of librdmacm. It prints the number of its queue pair and waits for the end of its input. */
#include "check.h"

#include <unistd.h>

#include <netinet/in.h>
#include <rdma/rdma_cma.h>

static char memory[4096] __attribute__((aligned(4096)));

int main(void)
{
	char c;
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(7471), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct rdma_cm_id *id;
	CHECK(events && rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&any) == 0 && rdma_listen(id, 1) == 0);
	struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
	CHECK(pd && ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE));
	struct ibv_cq *cq = ibv_create_cq(id->verbs, 15, NULL, NULL, 0);
	CHECK(cq);
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .cap = { .max_send_wr = 1, .max_recv_wr = 1,
				       .max_send_sge = 1, .max_recv_sge = 1 }, .qp_type = IBV_QPT_UD };
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	CHECK(qp && printf("%u\n", qp->qp_num) > 0 && fflush(stdout) == 0);
	CHECK(read(0, &c, 1) == 0);
	return 0;
}
