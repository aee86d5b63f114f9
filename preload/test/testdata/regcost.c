/*
 * The cost of registration and deregistration: regcost KIND LENGTH SPINNERS TURNS MAPPINGS prints the
 * time of both in microseconds, median and mean, with SPINNERS spinning processes and MAPPINGS more
 * mappings in this one.
 *
 *   inside   a part of a larger region
 *   again    the same memory each time, as with a registration cache
 *   new      memory that was never registered
 *   overlap  new memory, except for a page that was registered
 */
#include "verbs.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { LOCAL_REMOTE = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, LARGE = 64 << 20, MOST = 100000 };

static double clock_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static char *memory(size_t n)
{
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	memset(p, 1, n);
	return p;
}

/* mappings makes mappings that the kernel cannot merge. */
static void mappings(int n)
{
	for (int i = 0; i < n; i++)
		CHECK(mmap(NULL, 4096, i & 1 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
}

static double once(struct ibv_pd *pd, char *p, size_t n)
{
	double t = clock_us();
	struct ibv_mr *mr = ibv_reg_mr(pd, p, n, LOCAL_REMOTE);
	CHECK(mr != NULL);
	CHECK(ibv_dereg_mr(mr) == 0);
	return clock_us() - t;
}

static void spin(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (volatile int i = 0;; i++)
		;
}

static int ascending(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

int main(int argc, char **argv)
{
	static double took[MOST];
	double sum = 0;
	CHECK(argc == 6);
	size_t n = strtoul(argv[2], NULL, 0);
	int spinners = atoi(argv[3]), turns = atoi(argv[4]);
	CHECK(turns > 0 && turns <= MOST && n > 0 && n <= LARGE);
	for (int i = 0; i < spinners; i++)
		if (fork() == 0)
			spin();
	struct loop l = loop_open();
	char *p = memory(LARGE);
	struct ibv_mr *outer = NULL;
	if (!strcmp(argv[1], "inside"))
		CHECK((outer = ibv_reg_mr(l.pd, p, LARGE, LOCAL_REMOTE)) != NULL);
	bool overlap = !strcmp(argv[1], "overlap"), fresh = overlap || !strcmp(argv[1], "new");
	mappings(atoi(argv[5]));
	for (int i = 0; i < turns; i++) {
		if (fresh)
			p = memory(n);
		if (overlap)
			once(l.pd, p, 1);
		took[i] = once(l.pd, p, n);
		sum += took[i];
		if (fresh)
			CHECK(munmap(p, n) == 0);
	}
	qsort(took, turns, sizeof took[0], ascending);
	printf("%.1f %.1f\n", took[turns / 2], sum / turns);
	return 0;
}
