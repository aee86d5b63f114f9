/* Threads write to memory during its registration, directly and through system calls. No write is
 * lost. */
#define _GNU_SOURCE
#include "mr.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 256, SIZE = PAGE * PAGES, ROUNDS = 60, WRITERS = 2 };

static char *memory;
static atomic_bool stop;
static unsigned start;

/* A writer increments its own counter in each page. */
struct writer {
	int id, zero;
	uint64_t count[PAGES];
};

static uint64_t *number(int id, int page)
{
	return (uint64_t *)(memory + page * PAGE) + id;
}

static void *write_numbers(void *arg)
{
	struct writer *w = arg;
	for (unsigned i = start * (w->id + 1); !atomic_load(&stop); i += 7) {
		int page = i % PAGES;
		*(volatile uint64_t *)number(w->id, page) = ++w->count[page];
		if (i % 16 == 0) /* the kernel clears a page of the second half */
			CHECK(read(w->zero, memory + page * PAGE + PAGE / 2, 100) == 100);
	}
	return NULL;
}

static void check_round(struct writer *w)
{
	for (int id = 0; id < WRITERS; id++)
		for (int page = 0; page < PAGES; page++)
			if (*number(id, page) != w[id].count[page]) {
				fprintf(stderr, "page %d: %lu of writer %d, which has written %lu\n", page,
					*number(id, page), id, w[id].count[page]);
				exit(1);
			}
}

static void race(struct lab *l, struct ibv_mr *peer_mr, char *peer)
{
	static struct writer w[WRITERS];
	pthread_t t[WRITERS];
	memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	atomic_store(&stop, false);
	memset(w, 0, sizeof w);
	for (int i = 0; i < WRITERS; i++) {
		w[i].id = i;
		CHECK((w[i].zero = open("/dev/zero", O_RDONLY)) >= 0);
		CHECK(pthread_create(&t[i], NULL, write_numbers, &w[i]) == 0);
	}
	for (unsigned spin = start % 100000; spin > 0; spin--)
		__asm__ volatile("");
	struct ibv_mr *mr = reg(l, memory, SIZE);
	/* The daemon sees later writes. */
	atomic_store(&stop, true);
	for (int i = 0; i < WRITERS; i++)
		CHECK(pthread_join(t[i], NULL) == 0 && close(w[i].zero) == 0);
	check_round(w);
	CHECK(rdma(l, IBV_WR_RDMA_WRITE, mr, memory, SIZE, peer_mr, peer) == IBV_WC_SUCCESS);
	CHECK(!memcmp(peer, memory, SIZE));
	CHECK(ibv_dereg_mr(mr) == 0 && munmap(memory, SIZE) == 0);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	unsigned seed = strtoul(argv[1], NULL, 10);
	struct lab l = lab_open();
	char *peer = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *peer_mr = reg(&l, peer, SIZE);
	for (int i = 0; i < ROUNDS; i++) {
		start = rand_r(&seed);
		race(&l, peer_mr, peer);
	}
	return 0;
}
