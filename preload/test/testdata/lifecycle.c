/* Operations on registered memory, and their effects. */
#define _GNU_SOURCE
#include "mr.h"

#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, SIZE = 1 << 20 };

static struct lab lab;
static char *peer;
static struct ibv_mr *peer_mr;

static char *fresh(void *at, size_t n)
{
	char *p = mmap(at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
	CHECK(p != MAP_FAILED && (!at || p == at));
	return p;
}

static void dereg(struct ibv_mr *mr) { CHECK(ibv_dereg_mr(mr) == 0); }

static int zeros(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return 0;
	return 1;
}

/* repeated registers one range many times and deregisters in another order. */
static void repeated(void)
{
	struct ibv_mr *mr[20];
	char *p = fresh(NULL, SIZE);
	for (int i = 0; i < 20; i++)
		mr[i] = reg(&lab, p, SIZE);
	for (int i = 0; i < 20; i++) {
		int k = i * 7 % 20;
		exchange(&lab, mr[k], p, peer_mr, peer, SIZE, i);
		dereg(mr[k]);
	}
	munmap(p, SIZE);
}

/* overlapping uses regions inside, around and across one another at the same time. */
static void overlapping(void)
{
	static const struct { size_t at, n; } part[] = {
		{ 300000, 100000 }, { 250000, 60001 }, { 390000, 100000 }, { 0, 260000 }, { 480001, SIZE - 480001 }, { 0, SIZE },
		{ 300000, 1 }, { 299999, 100002 },
	};
	enum { N = sizeof part / sizeof *part };
	struct ibv_mr *mr[N];
	char *p = fresh(NULL, SIZE);
	fill(p, SIZE, 50);
	for (int i = 0; i < N; i++) {
		mr[i] = reg(&lab, p + part[i].at, part[i].n);
		CHECK(filled(p, SIZE, 50));
	}
	for (int i = 0; i < N; i++) {
		fill(p, SIZE, i);
		CHECK(rdma(&lab, IBV_WR_RDMA_WRITE, mr[i], p + part[i].at, part[i].n, peer_mr, peer) == IBV_WC_SUCCESS);
		CHECK(!memcmp(peer, p + part[i].at, part[i].n));
		fill(peer, part[i].n, i + 9);
		CHECK(rdma(&lab, IBV_WR_RDMA_WRITE, peer_mr, peer, part[i].n, mr[i], p + part[i].at) == IBV_WC_SUCCESS);
		CHECK(filled(p + part[i].at, part[i].n, i + 9));
	}
	for (int i = 0; i < N; i++)
		dereg(mr[i]);
	munmap(p, SIZE);
}

/* stale reuses an address while the old region exists. Each region has its own memory, or the old one
 * has lost it. */
static void stale(void)
{
	char *p = fresh(NULL, SIZE);
	struct ibv_mr *old = reg(&lab, p, SIZE);
	exchange(&lab, old, p, peer_mr, peer, SIZE, 1);
	for (int i = 0; i < 4; i++) {
		if (i % 2)
			CHECK(munmap(p, SIZE) == 0);
		fresh(p, SIZE);
		CHECK(zeros(p, SIZE));
		struct ibv_mr *mr = reg(&lab, p, SIZE);
		exchange(&lab, mr, p, peer_mr, peer, SIZE, 10 * i);
		dereg(mr);
	}
	dereg(old);
	munmap(p, SIZE);
}

/* gone accesses unmapped memory: only the access fails. */
static void gone(void)
{
	char *p = fresh(NULL, SIZE), *other = fresh(NULL, SIZE);
	struct ibv_mr *mr = reg(&lab, p, SIZE);
	CHECK(munmap(p, SIZE) == 0);
	enum ibv_wc_status s = rdma(&lab, IBV_WR_RDMA_WRITE, peer_mr, peer, SIZE, mr, p);
	CHECK(s == IBV_WC_SUCCESS || denied(s));
	lab_renew(&lab);
	s = rdma(&lab, IBV_WR_RDMA_WRITE, mr, p, SIZE, peer_mr, peer);
	CHECK(s == IBV_WC_SUCCESS || s == IBV_WC_LOC_PROT_ERR);
	lab_renew(&lab);
	dereg(mr);
	mr = reg(&lab, other, SIZE);
	exchange(&lab, mr, other, peer_mr, peer, SIZE, 77);
	dereg(mr);
	munmap(other, SIZE);
}

static void advised(void)
{
	char *p = fresh(NULL, SIZE);
	struct ibv_mr *mr = reg(&lab, p, SIZE);
	fill(p, SIZE, 4);
	CHECK(madvise(p + 16 * PAGE, 16 * PAGE, MADV_DONTNEED) == 0);
	CHECK(zeros(p + 16 * PAGE, 16 * PAGE));
	CHECK(filled(p, 16 * PAGE, 4));
	CHECK(madvise(p, SIZE, MADV_FREE) == 0);
	exchange(&lab, mr, p, peer_mr, peer, SIZE, 4);
	CHECK(madvise(p, 3 * PAGE, MADV_WILLNEED) == 0);
	FAILS(madvise(p + 1, PAGE, MADV_DONTNEED), EINVAL);
	CHECK(madvise(p, SIZE, MADV_DONTNEED) == 0 && zeros(p, SIZE));
	dereg(mr);
	munmap(p, SIZE);
}

static void moved(void)
{
	char *p = fresh(NULL, SIZE);
	struct ibv_mr *mr = reg(&lab, p, SIZE);
	fill(p, SIZE, 8);
	char *q = mremap(p, SIZE, 4 * SIZE, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED && filled(q, SIZE, 8) && zeros(q + SIZE, 3 * SIZE));
	dereg(mr);
	mr = reg(&lab, q, 4 * SIZE);
	exchange(&lab, mr, q, peer_mr, peer, SIZE, 3);
	dereg(mr);
	CHECK(mremap(q, 4 * SIZE, SIZE / 2, 0) == q && filled(q, SIZE / 2, 5));
	munmap(q, SIZE / 2);
}

/* grown: realloc() keeps the content, and the new memory is usable. */
static void grown(void)
{
	size_t n = 10000;
	char *p = malloc(n), *next = malloc(200000);
	struct ibv_mr *keep = reg(&lab, next, 200000);
	fill(next, 200000, 60);
	fill(p, n, 61);
	for (; n < 3 * SIZE; n = n * 3 / 2) {
		struct ibv_mr *mr = reg(&lab, p, n);
		dereg(mr);
		CHECK((p = realloc(p, n * 3 / 2)) != NULL);
		CHECK(filled(p, n, 61));
		fill(p, n * 3 / 2, 61);
	}
	CHECK(filled(next, 200000, 60));
	struct ibv_mr *mr = reg(&lab, p, n);
	exchange(&lab, mr, p, peer_mr, peer, SIZE, 6);
	dereg(mr);
	dereg(keep);
	free(p);
	free(next);
}

/* forked: parent and child have separate memory after fork(). */
static void forked(void)
{
	char *p = fresh(NULL, SIZE), *small = malloc(1000);
	struct ibv_mr *mr = reg(&lab, p, SIZE), *small_mr = reg(&lab, small, 1000);
	int go[2], status;
	CHECK(pipe(go) == 0);
	fill(p, SIZE, 1);
	fill(small, 1000, 1);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		char c;
		CHECK(read(go[0], &c, 1) == 1); /* the parent has written */
		CHECK(filled(p, SIZE, 1) && filled(small, 1000, 1));
		fill(p, SIZE, 2);
		fill(small, 1000, 2);
		_exit(0);
	}
	fill(small, 1000, 3);
	exchange(&lab, mr, p, peer_mr, peer, SIZE, 3); /* ends with seed 5 */
	CHECK(write(go[1], "x", 1) == 1);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(filled(p, SIZE, 5) && filled(small, 1000, 3));
	exchange(&lab, mr, p, peer_mr, peer, SIZE, 8);
	CHECK(system("true") == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		execlp("true", "true", NULL);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	exchange(&lab, mr, p, peer_mr, peer, SIZE, 9);
	dereg(mr);
	dereg(small_mr);
	close(go[0]);
	close(go[1]);
	munmap(p, SIZE);
	free(small);
}

/* recycled registers new memory repeatedly. The library must not keep memory that the C library has
 * unmapped. */
static void recycled(void)
{
	enum { ROUNDS = 300, MOST = 160 << 20 };
	for (int i = 0; i < ROUNDS; i++) {
		char *p = malloc(SIZE);
		struct ibv_mr *mr = reg(&lab, p, SIZE);
		fill(p, SIZE, i);
		CHECK(rdma(&lab, IBV_WR_RDMA_WRITE, mr, p, SIZE, peer_mr, peer) == IBV_WC_SUCCESS);
		CHECK(filled(peer, SIZE, i));
		dereg(mr);
		free(p);
		CHECK(backing() <= MOST);
	}
}

int main(void)
{
	lab = lab_open();
	peer = fresh(NULL, 4 * SIZE);
	peer_mr = reg(&lab, peer, 4 * SIZE);
	static const struct { const char *name; void (*run)(void); } part[] = {
		{ "repeated", repeated }, { "overlapping", overlapping }, { "stale", stale }, { "gone", gone },
		{ "advised", advised }, { "moved", moved }, { "grown", grown }, { "forked", forked }, { "recycled", recycled },
	};
	for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
		fprintf(stderr, "%s\n", part[i].name);
		part[i].run();
	}
	return 0;
}
