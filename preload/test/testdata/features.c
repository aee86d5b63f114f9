/* Verbs that rdma-core's rxe provider or its write() ABI does not support fail in the same way with all
 * releases; docs/reference/clients.md lists them. If one of them starts to work, change that list. */
#include "verbs.h"

#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

static void refused(const char *what, bool did, int err)
{
	if (did || (err != EOPNOTSUPP && err != ENOSYS)) {
		fprintf(stderr, "%s: %s\n", what, did ? "works" : strerror(err));
		exit(1);
	}
}

/* REFUSED checks a call that returns an object. */
#define REFUSED(call)                                      \
	do {                                               \
		errno = 0;                                 \
		bool did = (call) != NULL;                 \
		refused(#call, did, errno);                \
	} while (0)

int main(void)
{
	struct loop l = loop_open();
	struct ibv_device_attr_ex all;
	CHECK(ibv_query_device_ex(l.ctx, NULL, &all) == 0);

	/* SEND_WITH_INV and LOCAL_INV, as rdma_rxe reports them. No verb reaches fast registration. */
	CHECK(all.orig_attr.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS);

	REFUSED(ibv_open_xrcd(l.ctx, &(struct ibv_xrcd_init_attr){ .comp_mask = 3, .fd = -1, .oflags = O_CREAT }));
	REFUSED(ibv_alloc_td(l.ctx, &(struct ibv_td_init_attr){ 0 }));
	REFUSED(ibv_alloc_parent_domain(l.ctx, &(struct ibv_parent_domain_init_attr){ .pd = l.pd }));
	REFUSED(ibv_alloc_dm(l.ctx, &(struct ibv_alloc_dm_attr){ .length = 64 }));
	REFUSED(ibv_alloc_null_mr(l.pd));
	REFUSED(ibv_create_counters(l.ctx, &(struct ibv_counters_init_attr){ 0 }));
	REFUSED(ibv_import_device(dup(l.ctx->cmd_fd)));
	REFUSED(ibv_import_pd(l.ctx, l.pd->handle));
	REFUSED(ibv_import_mr(l.pd, l.mr->handle));

	errno = 0;
	int err = ibv_rereg_mr(l.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	refused("ibv_rereg_mr", err == 0, errno);

	/* On-demand paging: none is announced, and regions that ask for it are refused. */
	CHECK(all.odp_caps.general_caps == 0);
	CHECK(ibv_reg_mr(l.pd, l.buf, BUF, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND) == NULL);
	struct ibv_sge sge = { (uintptr_t)l.buf, 4096, l.mr->lkey };
	CHECK(ibv_advise_mr(l.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1) != 0);
	return 0;
}
