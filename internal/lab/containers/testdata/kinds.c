/*
 * Two of these move data between each other's memory of every kind and check every byte.
 *
 *   kinds listen|connect SOCKET FOLDER [KIND...]
 *
 * They meet at a Unix socket. FOLDER is for files. For each kind a line tells the result;
 * memory that cannot be had here is no failure: the line says so.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

enum { SIZE = 100000, LOCKED = 32 << 10, HUGE = 2 << 20, GUARD = 64,
       ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

static int peer; /* the socket to the other one */
static bool first; /* the one that listens */
static const char *folder, *kind = "start";
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;

static void die(const char *format, ...)
{
	va_list v;
	int err = errno;
	va_start(v, format);
	fprintf(stderr, "%s (%s): ", kind, first ? "listening" : "connecting");
	vfprintf(stderr, format, v);
	fprintf(stderr, " (%s)\n", strerror(err));
	exit(1);
}

#define CHECK(cond) ((cond) ? (void)0 : die("line %d: %s", __LINE__, #cond))

/* ---- the other one ---- */

static void meet(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_STREAM, 0);
	strncpy(a.sun_path, path, sizeof a.sun_path - 1);
	if (first) {
		CHECK(bind(s, (void *)&a, sizeof a) == 0 && chmod(path, 0666) == 0 && listen(s, 1) == 0);
		CHECK((peer = accept(s, NULL, NULL)) >= 0);
		close(s);
		return;
	}
	peer = s;
	for (int i = 0; connect(s, (void *)&a, sizeof a) != 0; i++) {
		CHECK(i < 1000);
		usleep(10000);
	}
}

/* swap gives the other one n bytes for as many of its own. */
static void swap(const void *mine, void *other, size_t n)
{
	CHECK(write(peer, mine, n) == (ssize_t)n);
	CHECK(recv(peer, other, n, MSG_WAITALL) == (ssize_t)n);
}

static void wait_for_other(void)
{
	char c = 0;
	swap(&c, &c, 1);
}

/* ---- verbs ---- */

struct address {
	union ibv_gid gid;
	uint32_t qpn;
};

/* gid_index finds the GID of an IPv4 address, which ports have at different places. */
static int gid_index(union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	for (int i = 0; i < 16; i++)
		if (ibv_query_gid(ctx, 1, i, gid) == 0 && !memcmp(gid, mapped, sizeof mapped) && gid->raw[13] == 18 &&
		    gid->raw[14] == 0)
			return i;
	die("no GID of an IPv4 address");
	return -1;
}

static void open_device(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	CHECK(list && n > 0);
	CHECK((ctx = ibv_open_device(list[0])) != NULL);
	ibv_free_device_list(list);
	CHECK((pd = ibv_alloc_pd(ctx)) && (cq = ibv_create_cq(ctx, 16, NULL, NULL, 0)));
}

static void join(void)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
	CHECK((qp = ibv_create_qp(pd, &init)) != NULL);
	struct address mine = { .qpn = qp->qp_num }, other;
	int index = gid_index(&mine.gid);
	swap(&mine, &other, sizeof mine);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL };
	CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = other.qpn,
				  .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
				  .ah_attr = { .is_global = 1, .port_num = 1,
					       .grh = { .dgid = other.gid, .sgid_index = index, .hop_limit = 64 } } };
	CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 17, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void reap(void)
{
	struct ibv_wc wc;
	int n;
	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	CHECK(n == 1);
	if (wc.status != IBV_WC_SUCCESS)
		die("completion: %s", ibv_wc_status_str(wc.status));
}

static void post(enum ibv_wr_opcode op, struct ibv_mr *mr, uint64_t to, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)mr->addr, mr->length, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma = { to, rkey } }, *bad;
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
	reap();
}

static void post_recv(struct ibv_mr *mr)
{
	struct ibv_sge sge = { (uintptr_t)mr->addr, mr->length, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
}

/* ---- patterns ---- */

static uint8_t byte_at(unsigned seed, size_t i) { return seed * 31 + i * 7 + i / 251; }

static void fill(uint8_t *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = byte_at(seed, i);
}

static void check(const uint8_t *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != byte_at(seed, i)) {
			errno = 0;
			die("byte %zu of %zu is %#x, not %#x", i, n, p[i], byte_at(seed, i));
		}
}

/* transfer moves n bytes between p here and there: by WRITE, by READ of what the
 * processor has written since, and by SEND, both ways. What lies around is not touched. */
static void transfer(void *memory, size_t size)
{
	uint8_t *p = (uint8_t *)memory + GUARD;
	size_t n = size - 2 * GUARD;
	struct { uint64_t addr; uint32_t rkey; } mine, other;
	fill(memory, size, 99);
	struct ibv_mr *mr = ibv_reg_mr(pd, p, n, ALL);
	if (!mr)
		die("ibv_reg_mr of %zu bytes", n);
	check(memory, size, 99);
	mine.addr = (uintptr_t)p;
	mine.rkey = mr->rkey;
	for (int turn = 0; turn < 2; turn++) { /* each is the active one once */
		bool active = first == (turn == 0);
		fill(p, n, active ? 1 : 2);
		swap(&mine, &other, sizeof mine);
		if (active)
			post(IBV_WR_RDMA_WRITE, mr, other.addr, other.rkey);
		wait_for_other();
		check(p, n, 1);
		if (!active)
			fill(p, n, 3);
		wait_for_other();
		if (active)
			post(IBV_WR_RDMA_READ, mr, other.addr, other.rkey);
		wait_for_other();
		check(p, n, 3);
		fill(p, n, active ? 4 : 5);
		if (!active)
			post_recv(mr);
		wait_for_other();
		if (active)
			post(IBV_WR_SEND, mr, 0, 0);
		else
			reap();
		wait_for_other();
		check(p, n, 4);
	}
	CHECK(ibv_dereg_mr(mr) == 0);
	fill(p, n, 6);
	check(p, n, 6);
	for (size_t i = 0; i < GUARD; i++)
		CHECK(((uint8_t *)memory)[i] == byte_at(99, i) && p[n + i] == byte_at(99, GUARD + n + i));
}

/* ---- kinds of memory ---- */

static void *map(size_t n, int flags, int fd)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, flags, fd, 0);
	CHECK(p != MAP_FAILED);
	return p;
}

static void heap(void)
{
	void *p = malloc(SIZE);
	transfer(p, SIZE);
	free(p);
}

static void stack(void)
{
	uint8_t p[SIZE];
	transfer(p, SIZE);
}

static uint8_t in_bss[SIZE];

static void bss(void) { transfer(in_bss, SIZE); }

static void file(void)
{
	char name[256];
	snprintf(name, sizeof name, "%s/fileXXXXXX", folder);
	int fd = mkstemp(name);
	CHECK(fd >= 0 && ftruncate(fd, SIZE) == 0 && unlink(name) == 0);
	transfer(map(SIZE, MAP_SHARED, fd), SIZE);
	transfer(map(SIZE, MAP_PRIVATE, fd), SIZE);
	close(fd);
}

static void sysv(void)
{
	int id = shmget(IPC_PRIVATE, SIZE, IPC_CREAT | 0600);
	CHECK(id >= 0);
	void *p = shmat(id, NULL, 0);
	CHECK(p != (void *)-1 && shmctl(id, IPC_RMID, NULL) == 0);
	transfer(p, SIZE);
	CHECK(shmdt(p) == 0);
}

static void posix(void)
{
	char name[64];
	snprintf(name, sizeof name, "/kinds-%d-%d", getpid(), first);
	int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	CHECK(fd >= 0 && shm_unlink(name) == 0 && ftruncate(fd, SIZE) == 0);
	transfer(map(SIZE, MAP_SHARED, fd), SIZE);
	close(fd);
}

static void memfd(void)
{
	int fd = memfd_create("kinds", 0);
	CHECK(fd >= 0 && ftruncate(fd, SIZE) == 0);
	transfer(map(SIZE, MAP_SHARED, fd), SIZE);
	close(fd);
}

/* hugetlb: the machine need not have huge pages; both sides have to. */
static void hugetlb(void)
{
	void *p = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	char mine = p != MAP_FAILED, other;
	swap(&mine, &other, 1);
	if (mine && other)
		transfer(p, HUGE);
	else
		kind = "hugetlb (none here)";
	if (mine)
		munmap(p, HUGE);
}

static void locked(void)
{
	void *p = map(LOCKED, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	CHECK(mlock(p, LOCKED) == 0); /* less than 64 KiB, which everybody may */
	transfer(p, LOCKED);
}

/* threads: others write all the time, to memory of the same pages even. */
static atomic_bool stop;

static void *scribble(void *arg)
{
	volatile uint8_t *p = arg;
	for (uint8_t i = 0; !atomic_load(&stop); i++, usleep(50)) {
		p[0] = i;
		CHECK(p[0] == i);
	}
	return NULL;
}

static void *on_stack(void *arg)
{
	stack();
	return arg;
}

static void threads(void)
{
	pthread_t t[3];
	uint8_t *p = malloc(SIZE + 2 * GUARD);
	atomic_store(&stop, false);
	CHECK(pthread_create(&t[0], NULL, scribble, p) == 0 && pthread_create(&t[1], NULL, scribble, p + SIZE + GUARD) == 0);
	transfer(p + GUARD, SIZE);
	CHECK(pthread_create(&t[2], NULL, on_stack, NULL) == 0 && pthread_join(t[2], NULL) == 0);
	atomic_store(&stop, true);
	CHECK(pthread_join(t[0], NULL) == 0 && pthread_join(t[1], NULL) == 0);
	free(p);
}

/* forked: a child goes on with the device, and with memory of its own at its parent's
 * addresses; then the parent again. */
static void forked(void)
{
	int status;
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		stack();
		heap();
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	stack();
	heap();
}

/* protected: what this process may not write, nobody may through us. */
static void protected(void)
{
	uint8_t *p = map(SIZE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	fill(p, SIZE, 7);
	CHECK(mprotect(p, SIZE, PROT_READ) == 0);
	errno = 0;
	CHECK(ibv_reg_mr(pd, p, SIZE, IBV_ACCESS_LOCAL_WRITE) == NULL && errno == EFAULT);
	struct ibv_mr *mr = ibv_reg_mr(pd, p, SIZE, IBV_ACCESS_REMOTE_READ);
	CHECK(mr != NULL);
	struct { uint64_t addr; uint32_t rkey; } mine = { (uintptr_t)p, mr->rkey }, other;
	swap(&mine, &other, sizeof mine);
	uint8_t *to = malloc(SIZE);
	struct ibv_mr *into = ibv_reg_mr(pd, to, SIZE, ALL);
	CHECK(into != NULL);
	post(IBV_WR_RDMA_READ, into, other.addr, other.rkey);
	check(to, SIZE, 7);
	wait_for_other();
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(into) == 0);
	free(to);
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*run)(void); } all[] = {
		{ "heap", heap }, { "stack", stack }, { ".bss", bss }, { "file", file }, { "SysV", sysv },
		{ "POSIX shm", posix }, { "memfd", memfd }, { "hugetlb", hugetlb }, { "locked", locked },
		{ "threads", threads }, { "fork", forked }, { "read-only", protected },
	};
	setbuf(stdout, NULL);
	alarm(60);
	if (argc < 4)
		return 2;
	first = !strcmp(argv[1], "listen");
	folder = argv[3];
	meet(argv[2]);
	open_device();
	join();
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		bool wanted = argc == 4;
		for (int k = 4; k < argc; k++)
			wanted |= !strcmp(argv[k], all[i].name);
		if (!wanted)
			continue;
		kind = all[i].name;
		all[i].run();
		wait_for_other();
		printf("%s\n", kind);
	}
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(ctx) == 0);
	return 0;
}
