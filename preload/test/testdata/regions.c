/* All kinds of memory can be registered, and RDMA transfers every byte. */
#include "mr.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

enum { PAGE = 4096, BIG = 1 << 20, HUGE = 2 << 20, SCRATCH = 20 << 20 };

static struct lab lab;
static char *scratch; /* the registered memory of the other side */
static struct ibv_mr *scratch_mr;
static char data[100000] = { 1 }, bss[100000];

/* atomic adds to a number in the region. */
static void atomic_add(struct ibv_mr *mr, char *p)
{
	uint64_t *v = (uint64_t *)(((uintptr_t)p + 7) & ~7UL), before = 0xfffefdfcfbfaf9f8;
	*v = before;
	CHECK(rdma(&lab, IBV_WR_ATOMIC_FETCH_AND_ADD, scratch_mr, scratch, 8, mr, v) == IBV_WC_SUCCESS);
	CHECK(*v == before + 0x0102030405060708 && *(uint64_t *)scratch == before);
}

static void try(const char *what, void *p, size_t n)
{
	char *copy = malloc(n);
	fill(p, n, 99);
	fill(copy, n, 99);
	struct ibv_mr *mr = reg(&lab, p, n);
	CHECK(!memcmp(p, copy, n)); /* a registration keeps the content */
	free(copy);
	printf("%s, %zu bytes\n", what, n);
	exchange(&lab, mr, p, scratch_mr, scratch, n, 1);
	exchange(&lab, scratch_mr, scratch, mr, p, n, 5);
	if (n >= 16)
		atomic_add(mr, p);
	CHECK(ibv_dereg_mr(mr) == 0);
	fill(p, n, 7);
	CHECK(filled(p, n, 7));
}

static void *map(size_t n, int flags, int fd)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, flags, fd, 0);
	CHECK(p != MAP_FAILED);
	return p;
}

static void heap(void)
{
	static const size_t sizes[] = { 1, 16, 100, 4096, 20000, 65536, 100000, BIG };
	void *p[8];
	struct ibv_mr *mr[8];
	for (int i = 0; i < 8; i++)
		CHECK((p[i] = malloc(sizes[i])) != NULL);
	for (int i = 0; i < 8; i++)
		try("heap", p[i], sizes[i]);
	for (int i = 0; i < 8; i++) { /* all at the same time: neighbours share pages */
		mr[i] = reg(&lab, p[i], sizes[i]);
		fill(p[i], sizes[i], i);
	}
	for (int i = 0; i < 8; i++)
		exchange(&lab, mr[i], p[i], scratch_mr, scratch, sizes[i], i);
	for (int i = 0; i < 8; i++) {
		CHECK(filled(p[i], sizes[i], i + 2));
		CHECK(ibv_dereg_mr(mr[i]) == 0);
		free(p[i]);
	}
}

static void *on_stack(void *arg)
{
	char buf[50000];
	try(arg, buf, sizeof buf);
	return NULL;
}

static void files(void)
{
	char name[] = "/tmp/mrXXXXXX", back[PAGE];
	int fd = mkstemp(name);
	CHECK(fd >= 0 && ftruncate(fd, BIG) == 0 && unlink(name) == 0);
	char *p = map(BIG, MAP_SHARED, fd);
	try("file, shared", p, BIG);
	CHECK(pread(fd, back, PAGE, PAGE) == PAGE && !memcmp(back, p + PAGE, PAGE));
	try("file, private", map(BIG, MAP_PRIVATE, fd), BIG);
	CHECK(pread(fd, back, PAGE, PAGE) == PAGE && !memcmp(back, p + PAGE, PAGE));
}

static void huge(void)
{
	char *p = map(3 * HUGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	p = (char *)(((uintptr_t)p + HUGE - 1) & ~(HUGE - 1UL));
	CHECK(madvise(p, 2 * HUGE, MADV_HUGEPAGE) == 0);
	try("transparent huge pages", p, 2 * HUGE);
	p = map(2 * HUGE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);
	try("huge pages", p, 2 * HUGE);
	try("part of huge pages", p + 12345, HUGE);
}

static void locked(void)
{
	char *p = map(BIG, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	CHECK(mlock(p, BIG) == 0);
	try("locked memory", p, BIG);
	CHECK(munlock(p, BIG) == 0);
}

/* guarded uses memory between inaccessible pages, a part of it read-only. */
static void guarded(void)
{
	char *p = map(BIG, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	CHECK(mprotect(p, PAGE, PROT_NONE) == 0 && mprotect(p + BIG - PAGE, PAGE, PROT_NONE) == 0);
	try("between guard pages", p + PAGE, BIG - 2 * PAGE);
	fill(p + 8 * PAGE, PAGE, 3);
	CHECK(mprotect(p + 8 * PAGE, PAGE, PROT_READ) == 0);
	struct ibv_mr *mr = ibv_reg_mr(lab.loop.pd, p + PAGE, BIG - 2 * PAGE, IBV_ACCESS_REMOTE_READ);
	CHECK(mr != NULL);
	CHECK(rdma(&lab, IBV_WR_RDMA_READ, scratch_mr, scratch, PAGE, mr, p + 8 * PAGE) == IBV_WC_SUCCESS);
	CHECK(filled(scratch, PAGE, 3));
	CHECK(ibv_dereg_mr(mr) == 0);
}

/* refused tries unmapped and read-only memory. */
static void refused(void)
{
	char *p = map(4 * PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	CHECK(munmap(p + PAGE, PAGE) == 0 && mprotect(p + 3 * PAGE, PAGE, PROT_READ) == 0);
	static const struct { size_t at, n; int access, good; } cases[] = {
		{ 0, PAGE, ALL_ACCESS, 1 },
		{ 0, PAGE + 1, ALL_ACCESS, 0 },
		{ PAGE, 1, 0, 0 },
		{ 2 * PAGE, PAGE + 1, ALL_ACCESS, 0 },
		{ 2 * PAGE, 2 * PAGE, IBV_ACCESS_REMOTE_READ, 1 },
		{ 3 * PAGE, PAGE, IBV_ACCESS_LOCAL_WRITE, 0 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		errno = 0;
		struct ibv_mr *mr = ibv_reg_mr(lab.loop.pd, p + cases[i].at, cases[i].n, cases[i].access);
		if (!!mr != cases[i].good || (!mr && errno != EFAULT)) {
			fprintf(stderr, "refused: case %zu: %p, errno %d\n", i, (void *)mr, errno);
			exit(1);
		}
		if (mr)
			CHECK(ibv_dereg_mr(mr) == 0);
	}
}

/* abandoned: refused registrations leave no mapping in the daemon, whose number is limited. */
static void abandoned(void)
{
	enum { ROUNDS = SCRATCH / PAGE };
	char *p = map((size_t)ROUNDS * PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	try("memory for many regions", p, (size_t)ROUNDS * PAGE);
	for (int i = 0; i < ROUNDS; i++) /* remote write without local write */
		FAILS(ibv_reg_mr(lab.loop.pd, p + (size_t)i * PAGE, PAGE, IBV_ACCESS_REMOTE_WRITE) ? 0 : -1, EINVAL);
	try("memory that was refused before", p, PAGE);
}

/* enforced: the daemon checks rights, bounds and protection domain, whatever the mapping permits. */
static void enforced(char *p)
{
	struct ibv_pd *other = ibv_alloc_pd(lab.loop.ctx);
	struct ibv_mr *ro = ibv_reg_mr(lab.loop.pd, p, PAGE, IBV_ACCESS_REMOTE_READ);
	struct ibv_mr *foreign = ibv_reg_mr(other, p, PAGE, ALL_ACCESS);
	CHECK(other && ro && foreign);
	fill(p, BIG, 1);
	CHECK(denied(rdma(&lab, IBV_WR_RDMA_WRITE, scratch_mr, scratch, 8, ro, p)));
	lab_renew(&lab);
	CHECK(rdma(&lab, IBV_WR_RDMA_READ, ro, p, 8, scratch_mr, scratch) == IBV_WC_LOC_PROT_ERR);
	lab_renew(&lab);
	CHECK(denied(rdma(&lab, IBV_WR_RDMA_WRITE, scratch_mr, scratch, 8, foreign, p)));
	lab_renew(&lab);
	struct ibv_mr *mr = reg(&lab, p, PAGE);
	CHECK(denied(rdma(&lab, IBV_WR_RDMA_WRITE, scratch_mr, scratch, 8, mr, p + PAGE - 7)));
	lab_renew(&lab);
	CHECK(filled(p, BIG, 1));
	CHECK(!ibv_dereg_mr(ro) && !ibv_dereg_mr(foreign) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(other));
}

int main(void)
{
	pthread_t t;
	setbuf(stdout, NULL);
	lab = lab_open();
	scratch = map(SCRATCH, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	scratch_mr = reg(&lab, scratch, SCRATCH);
	heap();
	try("private memory", map(BIG, MAP_PRIVATE | MAP_ANONYMOUS, -1), BIG);
	try("shared memory", map(BIG, MAP_SHARED | MAP_ANONYMOUS, -1), BIG);
	try(".data", data + 3, sizeof data - 7);
	try(".bss", bss + 3, sizeof bss - 7);
	on_stack("stack");
	CHECK(pthread_create(&t, NULL, on_stack, "stack of a thread") == 0 && pthread_join(t, NULL) == 0);
	files();
	huge();
	locked();
	guarded();
	refused();
	abandoned();
	enforced(map(BIG, MAP_PRIVATE | MAP_ANONYMOUS, -1));
	return 0;
}
