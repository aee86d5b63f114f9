/* After registered memory is freed, the next memory of the same length reuses its part of the memfd.
 * argv: the daemon's PID. */
#define _GNU_SOURCE
#include "mr.h"

#include <stdlib.h>
#include <sys/syscall.h>

enum { PAGE = 4096, PART = 64 << 10, TURNS = 600, KEPT = 20, PLACES = 41, MOST = 16 << 20 };

static char *fresh(char *at)
{
	char *p = mmap(at, PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED_NOREPLACE : 0), -1, 0);
	CHECK(p != MAP_FAILED);
	return p;
}

static int zeros(const char *p, size_t n)
{
	return !p[0] && !memcmp(p, p + 1, n - 1);
}

/* remap calls mremap() like realloc() in the C library, past the preload library. */
static char *remap(char *p, size_t old, size_t new, char *to)
{
	long at = syscall(SYS_mremap, p, old, new, MREMAP_MAYMOVE | (to ? MREMAP_FIXED : 0), to);
	CHECK(at != -1);
	return (char *)at;
}

/* use registers memory in which every second page is zero, and reads and writes it by RDMA. */
static void use(struct lab *l, char *p, char *peer, struct ibv_mr *peer_mr, unsigned seed)
{
	for (int i = 0; i < PART; i += 2 * PAGE)
		fill(p + i, PAGE, seed + i);
	struct ibv_mr *mr = reg(l, p, PART);
	memset(peer, 1, PART);
	CHECK(rdma(l, IBV_WR_RDMA_WRITE, mr, p, PART, peer_mr, peer) == IBV_WC_SUCCESS);
	for (int i = 0; i < PART; i += 2 * PAGE) {
		CHECK(filled(p + i, PAGE, seed + i) && filled(peer + i, PAGE, seed + i));
		CHECK(zeros(p + i + PAGE, PAGE) && zeros(peer + i + PAGE, PAGE));
	}
	fill(peer, PART, seed);
	CHECK(rdma(l, IBV_WR_RDMA_READ, mr, p, PART, peer_mr, peer) == IBV_WC_SUCCESS);
	CHECK(filled(p, PART, seed));
	CHECK(ibv_dereg_mr(mr) == 0);
}

/* once: no two mappings of the daemon cover the same part of the memfd. */
static void once(const char *daemon)
{
	char path[64], line[512];
	unsigned long long offset[1024];
	int n = 0;
	snprintf(path, sizeof path, "/proc/%s/maps", daemon);
	FILE *f = fopen(path, "r");
	CHECK(f != NULL);
	while (fgets(line, sizeof line, f)) {
		if (!strstr(line, "memfd:roced ("))
			continue;
		CHECK(n < 1024 && sscanf(line, "%*s %*s %llx", &offset[n]) == 1);
		for (int i = 0; i < n; i++)
			CHECK(offset[i] != offset[n]);
		n++;
	}
	CHECK(n > 0);
	fclose(f);
}

int main(int argc, char **argv)
{
	struct lab l = lab_open();
	char *kept[KEPT], *peer = fresh(NULL);
	struct ibv_mr *peer_mr = reg(&l, peer, PART);
	CHECK(argc == 2);
	char *places = peer - (1 << 30); /* far below the addresses that the kernel chooses */
	for (int i = 0; i < TURNS; i++) {
		char *p = fresh(places + i % PLACES * 2 * PART);
		use(&l, p, peer, peer_mr, i);
		if (i < KEPT) { /* moves, so it is not spare */
			kept[i] = remap(p, PART, PART, fresh(NULL));
			continue;
		}
		p = remap(p, PART, 2 * PART, NULL);
		CHECK(filled(p, PART, i) && zeros(p + PART, PART)); /* no old content */
		memset(p + PART, 1, PART);
		CHECK(munmap(p, 2 * PART) == 0);
	}
	for (int i = 0; i < KEPT; i++)
		CHECK(filled(kept[i], PART, i));
	CHECK(backing() > 0 && backing() <= MOST); /* 75 MiB were in use in all */
	once(argv[1]);
	return 0;
}
