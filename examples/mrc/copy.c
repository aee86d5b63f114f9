/*
 * copy: sends data by MRC from one process to another, which verifies it.
 *
 *   cc -I/usr/include/roced copy.c -L/usr/lib/roced -lmrc -libverbs -o copy
 *   rocectl exec -- ./copy rxe_a PORT            the receiver
 *   rocectl exec -- ./copy rxe_b PORT ADDRESS    the sender; ADDRESS is the receiver's, for TCP
 *
 * Both exchange the numbers of their queue pairs by TCP. The sender WRITEs blocks in any order and announces each by a
 * WRITE with immediate data, its index.
 */
#include <mrc.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 1 << 16, BLOCKS = 64, IN_FLIGHT = 16 };

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* What each side tells the other. */
struct wire {
	uint32_t qpn, psn, rkey;
	uint64_t address;
	union ibv_gid gid;
};

struct end {
	struct ibv_context *verbs;
	struct mrc_context *context;
	struct ibv_pd *pd;
	struct mrc_cq *cq;
	struct mrc_qp *qp;
	struct ibv_mr *mr;
	unsigned char *data;
};

static unsigned char pattern(int block, int i)
{
	return block * 7 + i * 13 + (i >> 8);
}

/* meet returns a TCP connection to the other process. */
static int meet(const char *port, const char *address)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	int s = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	if (address) {
		if (inet_pton(AF_INET, address, &a.sin_addr) != 1 || connect(s, (void *)&a, sizeof a) != 0)
			die("connect");
		return s;
	}
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(s, (void *)&a, sizeof a) != 0 || listen(s, 1) != 0)
		die("listen");
	return accept(s, NULL, NULL);
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	for (int i = 0; list && list[i]; i++)
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			return ibv_open_device(list[i]);
	return NULL;
}

static void create(struct end *e, const char *device)
{
	struct mrc_device_attr attr;
	int supported;
	if (!(e->verbs = open_device(device)))
		die(device);
	if (mrc_query_device(e->verbs, &attr, &supported) != 0 || !supported) {
		fprintf(stderr, "%s has another transport profile than mrc\n", device);
		exit(1);
	}
	e->context = mrc_create_context(e->verbs, NULL);
	e->pd = ibv_alloc_pd(e->verbs);
	e->cq = e->context ? mrc_create_cq(e->context, 2 * BLOCKS, NULL, NULL, 0) : NULL;
	struct mrc_qp_init_attr init = { .send_cq = e->cq, .recv_cq = e->cq, .pd = e->pd, .sq_sig_all = 1,
					 .cap = { .max_send_wr = 2 * BLOCKS, .max_recv_wr = BLOCKS, .max_send_sge = 1, .max_recv_sge = 1 } };
	if (!e->cq || !(e->qp = mrc_create_qp(e->context, &init)))
		die("mrc_create_qp");
	e->data = aligned_alloc(4096, BLOCKS * BLOCK);
	e->mr = ibv_reg_mr(e->pd, e->data, BLOCKS * BLOCK, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!e->mr)
		die("ibv_reg_mr");
}

static void modify(struct end *e, struct ibv_qp_attr *v, int vmask, struct mrc_qp_attr *m, int mask)
{
	if (mrc_modify_qp(e->qp, v, vmask, m, mask) != 0)
		die("mrc_modify_qp");
}

/* attach connects the queue pair to that of the peer. The peer may have a smaller range. */
static void attach(struct end *e, const struct wire *me, const struct wire *peer)
{
	struct mrc_qp_attr m = { .mpr = { 8, 8 }, .wimm = { IN_FLIGHT, IN_FLIGHT }, .timeout = 14, .retry = { 7, 3 }, .cap = MRC_QP_CAP_DYNAMIC_MPR };
	struct ibv_qp_attr v = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qpn, .rq_psn = peer->psn,
				  .ah_attr = { .is_global = 1, .grh = { .dgid = peer->gid, .hop_limit = 64 } } };
	modify(e, &v, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, &m,
	       MRC_QP_MPR_DEST | MRC_QP_MAX_WIMM_DEST | MRC_QP_CAP);
	v = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = me->psn };
	modify(e, &v, IBV_QP_STATE | IBV_QP_SQ_PSN, &m, MRC_QP_MPR | MRC_QP_MAX_WIMM | MRC_QP_TIMEOUT | MRC_QP_RETRY_CNT);
}

/* complete waits for a completion. */
static struct ibv_wc complete(struct end *e)
{
	struct ibv_wc wc;
	int n;
	while ((n = mrc_poll_cq(e->cq, 1, &wc)) == 0)
		;
	if (n < 0 || wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "completion: %s\n", n < 0 ? "mrc_poll_cq failed" : ibv_wc_status_str(wc.status));
		exit(1);
	}
	return wc;
}

static void send_all(struct end *e, const struct wire *peer)
{
	for (int b = 0; b < BLOCKS; b++)
		for (int i = 0; i < BLOCK; i++)
			e->data[b * BLOCK + i] = pattern(b, i);
	for (int b = 0; b < BLOCKS; b++) {
		uint64_t at = (uint64_t)b * BLOCK;
		struct ibv_sge sge = { (uintptr_t)e->data + at, BLOCK, e->mr->lkey };
		struct ibv_send_wr note = { .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htonl(b), .wr.rdma = { peer->address, peer->rkey } };
		struct ibv_send_wr data = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1, .next = &note,
					    .wr.rdma = { peer->address + at, peer->rkey } }, *bad;
		if (mrc_post_send(e->qp, &data, &bad) != 0)
			die("mrc_post_send");
		if (b >= IN_FLIGHT)
			complete(e), complete(e);
	}
	for (int n = 0; n < IN_FLIGHT; n++)
		complete(e), complete(e);
	printf("sent %d bytes\n", BLOCKS * BLOCK);
}

static void receive_all(struct end *e)
{
	for (int b = 0; b < BLOCKS; b++) {
		struct ibv_wc wc = complete(e);
		int told = ntohl(wc.imm_data);
		if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM || told != b) {
			fprintf(stderr, "announcement %d names block %d\n", b, told);
			exit(1);
		}
		for (int i = 0; i < BLOCK; i++)
			if (e->data[b * BLOCK + i] != pattern(b, i)) {
				fprintf(stderr, "block %d: byte %d is wrong\n", b, i);
				exit(1);
			}
	}
	printf("received and verified %d bytes\n", BLOCKS * BLOCK);
}

static void destroy(struct end *e)
{
	if (mrc_destroy_qp(e->qp) || mrc_destroy_cq(e->cq) || mrc_destroy_context(e->context) || ibv_dereg_mr(e->mr) ||
	    ibv_dealloc_pd(e->pd) || ibv_close_device(e->verbs))
		die("destroy");
	free(e->data);
}

int main(int argc, char **argv)
{
	if (argc < 3 || argc > 4) {
		fprintf(stderr, "usage: copy DEVICE PORT [ADDRESS]\n");
		return 2;
	}
	const char *to = argc == 4 ? argv[3] : NULL;
	struct end e = { 0 };
	struct wire me = { 0 }, peer;
	create(&e, argv[1]);
	me.address = (uintptr_t)e.data;
	me.rkey = e.mr->rkey;
	me.psn = getpid() & 0xffffff;
	if (mrc_get_qpn(e.qp, &me.qpn) != 0 || ibv_query_gid(e.verbs, 1, 0, &me.gid) != 0)
		die("mrc_get_qpn");
	struct ibv_qp_attr v = { .qp_state = IBV_QPS_INIT, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	modify(&e, &v, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS, NULL, 0);
	for (int b = 0; !to && b < BLOCKS; b++) { /* receives can be posted from INIT on */
		struct ibv_recv_wr wr = { 0 }, *bad;
		if (mrc_post_recv(e.qp, &wr, &bad) != 0)
			die("mrc_post_recv");
	}
	int s = meet(argv[2], to);
	if (write(s, &me, sizeof me) != sizeof me || recv(s, &peer, sizeof peer, MSG_WAITALL) != sizeof peer)
		die("exchange");
	attach(&e, &me, &peer);
	/* Both are ready, then both are done, before either continues. */
	char c = 0;
	for (int done = 0; done < 2; done++) {
		if (write(s, &c, 1) != 1 || recv(s, &c, 1, MSG_WAITALL) != 1)
			die("exchange");
		if (!done)
			to ? send_all(&e, &peer) : receive_all(&e);
	}
	destroy(&e);
	return 0;
}
