/*
 * Registration of memory that shares pages with registered memory: the daemon maps it, the cost does
 * not depend on the number of mappings of the process, and few mappings remain. argv: the daemon's PID.
 */
#define _GNU_SOURCE
#include "mr.h"
#include "self.h"

#include <dlfcn.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

enum { PAGE = 4096, OTHERS = 3000, SMALL = 5000, BUFFERS = 300 };

/* ---- looks at the address space ---- */

static unsigned looks;

/* syscall counts those of the library at its address space: queries and reads. */
long syscall(long number, ...)
{
	static long (*real)(long, ...);
	long a[6];
	va_list v;
	va_start(v, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(v, long);
	va_end(v);
	if (!real)
		real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	looks += number == SYS_read || (number == SYS_ioctl && _IOC_TYPE(a[1]) == 'f' && _IOC_NR(a[1]) == 17);
	return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* many_mappings makes mappings that the kernel cannot merge. */
static void many_mappings(void)
{
	for (int i = 0; i < OTHERS; i++)
		CHECK(mmap(NULL, PAGE, i & 1 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
}

/* ---- the daemon's view ---- */

static const char *daemon_pid;
static struct lab l;
static struct ibv_mr *peer_mr;
static char *peer;

/* mapped returns the bytes of the memfd that the daemon has mapped, with any repetition. */
static size_t mapped(void)
{
	char path[64], line[512];
	size_t sum = 0, from, to;
	snprintf(path, sizeof path, "/proc/%s/maps", daemon_pid);
	FILE *f = fopen(path, "r");
	CHECK(f != NULL);
	while (fgets(line, sizeof line, f))
		if (strstr(line, "memfd:roced (") && sscanf(line, "%zx-%zx", &from, &to) == 2)
			sum += to - from;
	fclose(f);
	return sum;
}

/* reg_mapped registers memory, which the daemon then reaches without copies. */
static struct ibv_mr *reg_mapped(char *p, size_t n, unsigned seed)
{
	size_t before = mapped(), first = (uintptr_t)p / PAGE, last = ((uintptr_t)p + n - 1) / PAGE;
	struct ibv_mr *mr = reg(&l, p, n);
	size_t more = mapped() - before, want = (last - first + 1) * PAGE;
	if (more != want)
		fprintf(stderr, "the daemon mapped %zu bytes more, not %zu\n", more, want);
	CHECK(more == want);
	exchange(&l, mr, p, peer_mr, peer, n, seed);
	return mr;
}

static char *memory(size_t n)
{
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	return p;
}

/* ---- kinds ---- */

/* bridges: regions with own places in the memfd, and others over them and the gaps between. */
static void bridges(void)
{
	char *p = memory(32 * PAGE);
	memset(p, 7, 32 * PAGE);
	for (int i = 0; i < 4; i++)
		reg_mapped(p + 8 * i * PAGE, 2 * PAGE, i);
	reg_mapped(p, 10 * PAGE, 11);
	CHECK(p[10 * PAGE] == 7 && p[16 * PAGE + 4096 * 2] == 7);
	reg_mapped(p + 9 * PAGE + 100, 16 * PAGE, 12);
	reg_mapped(p, 32 * PAGE, 13);
	size_t before = mapped();
	struct ibv_mr *inside = reg(&l, p + PAGE, 30 * PAGE); /* uses that mapping, with all its parts */
	CHECK(mapped() == before);
	exchange(&l, inside, p + PAGE, peer_mr, peer, 30 * PAGE, 14);
}

/* reused: the parts of a region return to the system, and new memory comes to the addresses. */
static void reused(void)
{
	char *p = memory(16 * PAGE);
	reg_mapped(p, 4 * PAGE, 1);
	struct ibv_mr *old = reg_mapped(p + 2 * PAGE, 8 * PAGE, 2);
	CHECK(mmap(p + 6 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p + 6 * PAGE);
	memset(p + 6 * PAGE, 9, 4 * PAGE);
	reg_mapped(p + 3 * PAGE, 9 * PAGE, 3); /* not the memory that the region still has */
	memset(peer, 5, 8 * PAGE);
	fill(p + 6 * PAGE, 4 * PAGE, 4);
	CHECK(rdma(&l, IBV_WR_RDMA_READ, old, p + 2 * PAGE, 8 * PAGE, peer_mr, peer) == IBV_WC_SUCCESS);
	CHECK(filled(p + 6 * PAGE, 4 * PAGE, 4));
}

/* moved: realloc() moves memory without the library. It grows over no other memory. */
static void moved(void)
{
	char *p = memory(8 * PAGE), *to = memory(32 * PAGE);
	fill(p, 8 * PAGE, 1);
	reg_mapped(p, 4 * PAGE, 1);
	CHECK(syscall(SYS_mremap, p, 4 * PAGE, 16 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == (long)to);
	CHECK(mmap(p, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p);
	fill(to, 16 * PAGE, 2);
	reg_mapped(to, 16 * PAGE, 3);
	reg_mapped(p + 2 * PAGE, 6 * PAGE, 4);
	reg_mapped(p, 3 * PAGE, 5);
	fill(to, 16 * PAGE, 6);
	fill(p, 8 * PAGE, 7);
	CHECK(filled(to, 16 * PAGE, 6) && filled(p, 8 * PAGE, 7));
}

/* growing: a registration cache replaces a region by a longer one, upwards or downwards. */
static void growing(bool up)
{
	enum { TURNS = 100 };
	char *p = memory((TURNS + 1) * PAGE);
	int before = mappings("self");
	unsigned most = 0;
	for (int i = 1; i <= TURNS; i++) {
		unsigned was = looks;
		struct ibv_mr *mr = reg(&l, up ? p : p + (TURNS + 1 - i) * PAGE, i * PAGE);
		most = looks - was > most ? looks - was : most;
		exchange(&l, mr, mr->addr, peer_mr, peer, PAGE, i);
		CHECK(ibv_dereg_mr(mr) == 0);
	}
	CHECK(mappings("self") - before <= 2);
	CHECK(most <= 8);
}

/* shares: each region shares one page with an earlier one. */
static void shares(void)
{
	unsigned most = 0;
	char *p = memory(4 * BUFFERS * PAGE);
	for (int i = 0; i < BUFFERS; i++)
		reg(&l, p + 4 * i * PAGE, 2 * PAGE);
	int before = mappings("self");
	for (int i = 0; i < BUFFERS; i++) {
		unsigned was = looks;
		reg(&l, p + (4 * i + 1) * PAGE, 2 * PAGE);
		most = looks - was > most ? looks - was : most;
	}
	CHECK(mappings("self") == before);
	CHECK(most <= 8);
}

/* heap: small buffers of malloc() share pages. They are registered in any order. */
static void heap(void)
{
	static char *p[BUFFERS];
	for (int i = 0; i < BUFFERS; i++)
		CHECK((p[i] = malloc(SMALL)) != NULL);
	int before = mappings("self");
	for (int i = 0; i < BUFFERS; i++) {
		char *q = p[i * 7 % BUFFERS];
		struct ibv_mr *mr = reg(&l, q, SMALL);
		exchange(&l, mr, q, peer_mr, peer, SMALL, i);
		if (i % 3 == 0)
			CHECK(ibv_dereg_mr(mr) == 0);
	}
	CHECK(mappings("self") - before <= 2);
	for (int i = 0; i < BUFFERS; i++)
		free(p[i]);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	daemon_pid = argv[1];
	l = lab_open();
	peer = memory(64 * PAGE);
	peer_mr = reg(&l, peer, 64 * PAGE);
	bridges();
	reused();
	moved();
	heap();
	many_mappings();
	shares();
	growing(true);
	growing(false);
	return 0;
}
