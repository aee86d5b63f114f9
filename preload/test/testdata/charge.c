/* Memory that the program has never touched counts as its own once it is registered, at the latest
 * when the NIC accesses it. A line on standard input starts each step. */
#define _GNU_SOURCE
#include "mr.h"

#include <stdio.h>
#include <string.h>

enum { SIZE = 32 << 20, PART = 1 << 16, PAGE = 4096 };

static void step(const char *name)
{
	char line[16];
	printf("%s\n", name);
	fflush(stdout);
	CHECK(fgets(line, sizeof line, stdin) != NULL);
}

static char *fresh(void)
{
	char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	return p;
}

static void write_all(struct lab *l, struct ibv_mr *from, char *p, struct ibv_mr *to, char *q)
{
	for (size_t i = 0; i < SIZE; i += PART)
		CHECK(rdma(l, IBV_WR_RDMA_WRITE, from, p + i, PART, to, q + i) == IBV_WC_SUCCESS);
}

static int zeros(const char *p, size_t n)
{
	return !p[0] && !memcmp(p, p + 1, n - 1);
}

int main(void)
{
	step("ready");
	struct lab l = lab_open();
	char *p = fresh(), *q = fresh();
	struct ibv_mr *from = reg(&l, p, SIZE), *to = reg(&l, q, SIZE);
	step("registered");
	write_all(&l, from, p, to, q);
	step("written");
	CHECK(zeros(p, SIZE) && zeros(q, SIZE));

	/* Pages that the program drops read as zeros. The NIC still reaches them, in a region and in one
	 * that is registered later. */
	fill(p, SIZE, 1);
	fill(q, SIZE, 2);
	CHECK(madvise(q + PAGE, SIZE / 2, MADV_DONTNEED) == 0);
	CHECK(zeros(q + PAGE, SIZE / 2) && filled(q, PAGE, 2));
	CHECK(madvise(q, SIZE, MADV_DONTNEED) == 0);
	write_all(&l, from, p, to, q);
	CHECK(filled(q, SIZE, 1));
	CHECK(ibv_dereg_mr(to) == 0 && ibv_dereg_mr(from) == 0);
	CHECK(madvise(p, SIZE, MADV_DONTNEED) == 0 && madvise(q, SIZE, MADV_DONTNEED) == 0);
	from = reg(&l, p, SIZE);
	to = reg(&l, q, SIZE);
	write_all(&l, from, p, to, q);
	CHECK(zeros(q, SIZE));
	step("dropped");
	return 0;
}
