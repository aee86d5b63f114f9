/* Creates one object of each kind, prints "ready" and waits to be killed. */
#include "verbs.h"

#include <unistd.h>

int main(void)
{
	struct loop l = loop_open();
	struct ibv_comp_channel *ch = ibv_create_comp_channel(l.ctx);
	struct ibv_cq *cq = ibv_create_cq(l.ctx, 32, NULL, ch, 0);
	CHECK(ch && cq);
	struct ibv_qp *qp = loop_qp(&l, cq, cq);
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 8, .max_sge = 1 } };
	CHECK(ibv_create_srq(l.pd, &srq) != NULL);
	CHECK(ibv_alloc_mw(l.pd, IBV_MW_TYPE_2) != NULL || errno == EOPNOTSUPP); /* before rdma-core 35 */
	struct ibv_ah_attr ah = { .is_global = 1, .port_num = 1, .grh = { .dgid = l.gid, .sgid_index = GID_INDEX } };
	CHECK(ibv_create_ah(l.pd, &ah) != NULL);
	post_recv(&l, qp, 1);
	printf("ready\n");
	fflush(stdout);
	for (;;)
		pause();
}
