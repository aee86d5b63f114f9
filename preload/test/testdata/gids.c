/* The queries of GIDs, port and device agree, and refuse what does not exist. With the argument "mlx5" the table has mlx5's
 * order. */
#include "verbs.h"

#include <arpa/inet.h>
#include <stdbool.h>

static struct ibv_context *ctx;

static bool is_zero(const union ibv_gid *g)
{
	return g->global.subnet_prefix == 0 && g->global.interface_id == 0;
}

/* entry checks that all queries of an index agree, and returns whether the entry is in use. */
static bool entry(int i, const struct ibv_gid_entry *table, int n)
{
	struct ibv_gid_entry e;
	union ibv_gid gid;
	int at = 0;
	CHECK(ibv_query_gid(ctx, 1, i, &gid) == 0);
	while (at < n && table[at].gid_index != (uint32_t)i)
		at++;
	if (is_zero(&gid)) {
		CHECK(at == n && ibv_query_gid_ex(ctx, 1, i, &e, 0) == ENODATA);
		return false;
	}
	CHECK(at < n && ibv_query_gid_ex(ctx, 1, i, &e, 0) == 0);
	CHECK(memcmp(&e.gid, &gid, sizeof gid) == 0 && memcmp(&table[at].gid, &gid, sizeof gid) == 0);
	CHECK(e.gid_type == IBV_GID_TYPE_ROCE_V2 && table[at].gid_type == e.gid_type && e.port_num == 1);
	CHECK(e.ndev_ifindex == table[at].ndev_ifindex && e.ndev_ifindex > 0);
	return true;
}

static void mlx5_order(void)
{
	union ibv_gid pair[2], first;
	CHECK(ibv_query_gid(ctx, 1, 0, &first) == 0 && first.raw[0] == 0xfe && first.raw[1] == 0x80);
	for (int i = 0; i < 4; i += 2) {
		CHECK(ibv_query_gid(ctx, 1, i, &pair[0]) == 0 && ibv_query_gid(ctx, 1, i + 1, &pair[1]) == 0);
		CHECK(memcmp(&pair[0], &pair[1], sizeof pair[0]) == 0);
	}
	CHECK(pair[1].raw[10] == 0xff && pair[1].raw[11] == 0xff); /* index 3 is IPv4 */
}

int main(int argc, char **argv)
{
	(void)argv;
	struct loop l = loop_open();
	struct ibv_port_attr port;
	struct ibv_gid_entry table[300];
	ctx = l.ctx;
	CHECK(ibv_query_port(ctx, 1, &port) == 0 && ibv_query_port(ctx, 0, &port) == EINVAL && ibv_query_port(ctx, 2, &port) == EINVAL);
	CHECK(ibv_query_port(ctx, 1, &port) == 0 && port.gid_tbl_len > 1 && port.pkey_tbl_len == 1);
	ssize_t n = ibv_query_gid_table(ctx, table, 300, 0);
	CHECK(n > 1);
	int used = 0;
	for (int i = 0; i < port.gid_tbl_len; i++)
		used += entry(i, table, n);
	CHECK(used == n);

	struct ibv_gid_entry e;
	union ibv_gid gid;
	uint16_t key;
	CHECK(ibv_query_gid(ctx, 1, port.gid_tbl_len, &gid) != 0 && ibv_query_gid(ctx, 2, 0, &gid) != 0);
	CHECK(ibv_query_gid_ex(ctx, 1, port.gid_tbl_len, &e, 0) != 0 && ibv_query_gid_ex(ctx, 2, 0, &e, 0) != 0);
	CHECK(ibv_query_gid_table(ctx, table, 1, 0) == -EINVAL);
	CHECK(ibv_query_pkey(ctx, 1, 0, &key) == 0 && key == 0xffff && ibv_query_pkey(ctx, 1, 1, &key) != 0);
	CHECK(ibv_get_pkey_index(ctx, 1, 0xffff) == 0 && ibv_get_pkey_index(ctx, 1, htons(0x1234)) == -1);

	struct ibv_device_attr old;
	struct ibv_device_attr_ex all;
	CHECK(ibv_query_device(ctx, &old) == 0 && ibv_query_device_ex(ctx, NULL, &all) == 0);
	CHECK(memcmp(&old, &all.orig_attr, sizeof old) == 0 && all.phys_port_cnt_ex == 1);
	if (argc > 1) {
		mlx5_order();
		struct ibv_cq *cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
		struct ibv_qp *qp = loop_qp(&l, cq, cq); /* at GID_INDEX, the second entry of an address */
		post_recv(&l, qp, 1);
		CHECK(post_send(&l, qp, 2) == 0 && reap(cq).status == IBV_WC_SUCCESS && reap(cq).status == IBV_WC_SUCCESS);
	}
	return 0;
}
