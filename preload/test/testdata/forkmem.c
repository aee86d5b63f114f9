/*
 * Children of a program with regions in all sorts of memory: they live, read the content at the time of
 * fork(), and write to copies. argv: "init" to call ibv_fork_init().
 */
#define _GNU_SOURCE
#include "mr.h"

#include <pthread.h>
#include <spawn.h>
#include <stdbool.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/wait.h>

extern char **environ;

enum { PAGE = 4096, AREA = 8 * PAGE, LENGTH = 3 * PAGE + 500, AT = PAGE + 300, HUGE_PAGE = 2 << 20, EDGE = 64 };
enum { BEFORE = 1, BY_CHILD, BY_GRANDCHILD, BY_NIC }; /* seeds of patterns */

static struct lab l;
static struct ibv_mr *peer_mr;
static char *peer;

/* ---- sorts of memory ---- */

static char *map(size_t n, int flags, int fd)
{
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, flags, fd, 0);
	return p == MAP_FAILED ? NULL : p;
}

static char *anonymous(void) { return map(AREA, MAP_PRIVATE | MAP_ANONYMOUS, -1); }

static char *heap(void) { return malloc(AREA); }

static char *shared(void) { return map(AREA, MAP_SHARED | MAP_ANONYMOUS, -1); }

static char *locked(void)
{
	char *p = anonymous();
	CHECK(p && mlock(p, AREA) == 0);
	return p;
}

static char *file(int flags)
{
	char name[] = "/tmp/forkmem.XXXXXX";
	int fd = mkstemp(name);
	CHECK(fd >= 0 && unlink(name) == 0 && ftruncate(fd, AREA) == 0);
	char *p = map(AREA, flags, fd);
	CHECK(close(fd) == 0);
	return p;
}

static char *private_file(void) { return file(MAP_PRIVATE); }

static char *shared_file(void) { return file(MAP_SHARED); }

static char *system_v(void)
{
	int id = shmget(IPC_PRIVATE, AREA, IPC_CREAT | 0600);
	char *p = shmat(id, NULL, 0);
	CHECK(id >= 0 && shmctl(id, IPC_RMID, NULL) == 0);
	return p == (char *)-1 ? NULL : p;
}

static char *bss(void)
{
	static char area[AREA];
	return area;
}

static char *data(void)
{
	static char area[AREA] = "x";
	return area;
}

static char *thread_local(void)
{
	static __thread char area[AREA];
	return area;
}

/* mixed has pages with several places in the memfd. */
static char *mixed(void)
{
	char *p = anonymous();
	CHECK(p != NULL);
	for (int i = 1; i < 6; i += 2)
		reg(&l, p + i * PAGE, PAGE);
	return p;
}

/* half is registered memory behind which more of the same mapping follows. */
static char *half(void)
{
	char *p = anonymous();
	CHECK(p && mprotect(p, PAGE, PROT_READ) == 0 && mprotect(p, PAGE, PROT_READ | PROT_WRITE) == 0);
	reg(&l, p + 4 * PAGE, 2 * PAGE);
	return p;
}

static const struct sort {
	const char *name;
	char *(*make)(void);
	bool shared;
} sorts[] = {
	{ "anonymous", anonymous, false },	{ "heap", heap, false },
	{ "bss", bss, false },			{ "data", data, false },
	{ "thread-local", thread_local, false }, { "locked", locked, false },
	{ "private file", private_file, false }, { "mixed", mixed, false },
	{ "half", half, false },
	{ "shared", shared, true },		{ "shared file", shared_file, true },
	{ "System V", system_v, true },
};

/* ---- a child and its parent ---- */

/* step tells the other side to continue, wait_step waits for it. */
struct steps {
	int to[2], from[2];
};

static void step(int fd) { CHECK(write(fd, "s", 1) == 1); }

static void wait_step(int fd)
{
	char c;
	CHECK(read(fd, &c, 1) == 1);
}

static void finish(pid_t pid)
{
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	if (WIFSIGNALED(status))
		fprintf(stderr, "child: %s\n", strsignal(WTERMSIG(status)));
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Only EDGE bytes on either side of the region are the test's: in the heap other things follow. */
static void write_all(char *p, unsigned seed) { fill(p + AT - EDGE, LENGTH + 2 * EDGE, seed); }

static bool all(const char *p, unsigned seed) { return filled(p + AT - EDGE, LENGTH + 2 * EDGE, seed); }

/* by_nic returns true if the NIC reads a pattern in the region. */
static bool by_nic(struct ibv_mr *mr, char *p, unsigned seed)
{
	CHECK(rdma(&l, IBV_WR_RDMA_WRITE, mr, p + AT, LENGTH, peer_mr, peer) == IBV_WC_SUCCESS);
	/* The region is a part of the pattern. */
	static char want[AREA];
	fill(want, LENGTH + 2 * EDGE, seed);
	for (int i = 0; i < LENGTH; i++)
		if (peer[i] != want[EDGE + i]) {
			fprintf(stderr, "the NIC reads %#x at byte %d\n", peer[i] & 0xff, i);
			return false;
		}
	return true;
}

/* grandchild finds what the child has written, and writes for itself. */
static void grandchild(char *p, bool shared)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(all(p, BY_CHILD));
		write_all(p, BY_GRANDCHILD);
		CHECK(all(p, BY_GRANDCHILD));
		exit(0);
	}
	finish(pid);
	CHECK(all(p, shared ? BY_GRANDCHILD : BY_CHILD));
	write_all(p, BY_CHILD);
}

static void child(char *p, bool shared, struct steps *s)
{
	CHECK(close(s->to[1]) == 0); /* so that it ends with the parent */
	CHECK(all(p, BEFORE));
	for (int i = 1; i < 100; i++)
		free(malloc(i * 100));
	write_all(p, BY_CHILD);
	grandchild(p, shared);
	step(s->from[1]);
	wait_step(s->to[0]); /* the NIC has written */
	if (!shared)
		CHECK(all(p, BY_CHILD));
	exit(0);
}

static void forked(struct ibv_mr *mr, char *p, bool shared)
{
	struct steps s;
	CHECK(pipe(s.to) == 0 && pipe(s.from) == 0);
	write_all(p, BEFORE);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		child(p, shared, &s);
	CHECK(close(s.from[1]) == 0);
	wait_step(s.from[0]);
	CHECK(all(p, shared ? BY_CHILD : BEFORE) && by_nic(mr, p, shared ? BY_CHILD : BEFORE));
	fill(peer, LENGTH, BY_NIC);
	CHECK(rdma(&l, IBV_WR_RDMA_READ, mr, p + AT, LENGTH, peer_mr, peer) == IBV_WC_SUCCESS);
	CHECK(filled(p + AT, LENGTH, BY_NIC));
	step(s.to[1]);
	finish(pid);
	CHECK(filled(p + AT, LENGTH, BY_NIC));
	CHECK(close(s.from[0]) == 0 && close(s.to[0]) == 0 && close(s.to[1]) == 0);
}

struct work {
	struct ibv_mr *mr;
	char *p;
	bool shared;
};

static void *forked_by_thread(void *arg)
{
	struct work *w = arg;
	forked(w->mr, w->p, w->shared);
	return NULL;
}

/* spawned: children that execute another program use the parent's memory until then. */
static void spawned(struct ibv_mr *mr, char *p)
{
	char *argv[] = { "true", NULL };
	pid_t pid;
	write_all(p, BEFORE);
	pid = vfork();
	if (pid == 0) {
		if (p[AT] != p[AT + 1])
			execvp(argv[0], argv);
		_exit(127);
	}
	finish(pid);
	CHECK(posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) == 0);
	finish(pid);
	CHECK(system("true") == 0);
	CHECK(all(p, BEFORE) && by_nic(mr, p, BEFORE));
}

static void try(const char *name, char *p, bool shared)
{
	fprintf(stderr, "%s\n", name);
	struct ibv_mr *first = reg(&l, p + AT, LENGTH), *mr = reg(&l, p + AT, LENGTH);
	CHECK(ibv_dereg_mr(first) == 0);
	struct work w = { mr, p, shared };
	pthread_t t;
	forked(mr, p, shared);
	spawned(mr, p);
	CHECK(pthread_create(&t, NULL, forked_by_thread, &w) == 0 && pthread_join(t, NULL) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	mr = reg(&l, p + AT, LENGTH);
	forked(mr, p, shared);
}

static void on_stack(void)
{
	char area[AREA];
	try("stack", area, false);
}

/* on_huge_page: a write by either side would need another huge page. */
static void on_huge_page(void)
{
	char *p = map(HUGE_PAGE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);
	if (!p)
		return; /* there is none */
	p[AT] = 7;
	struct ibv_mr *mr = reg(&l, p + AT, LENGTH);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		_exit(p[AT] != 7);
	finish(pid);
	CHECK(ibv_dereg_mr(mr) == 0 && munmap(p, HUGE_PAGE) == 0);
}

struct rest {
	struct ibv_mr *mr;
	pthread_barrier_t before, behind; /* fork() */
};

/* registers has memory beside the head of its thread's heap, and ends after fork(). */
static void *registers(void *arg)
{
	struct rest *r = arg;
	char *p = malloc(64);
	CHECK(p != NULL);
	r->mr = reg(&l, p, 64);
	pthread_barrier_wait(&r->before);
	pthread_barrier_wait(&r->behind);
	CHECK(ibv_dereg_mr(r->mr) == 0);
	free(p);
	return NULL;
}

/* beside_arena: the C library of the child writes to the heads of heaps before the child copies its memory. */
static void beside_arena(void)
{
	struct rest r;
	pthread_t t;
	CHECK(pthread_barrier_init(&r.before, NULL, 2) == 0 && pthread_barrier_init(&r.behind, NULL, 2) == 0);
	CHECK(pthread_create(&t, NULL, registers, &r) == 0);
	pthread_barrier_wait(&r.before);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		_exit(0);
	finish(pid);
	pthread_barrier_wait(&r.behind);
	CHECK(pthread_join(t, NULL) == 0);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "init"))
		CHECK(ibv_fork_init() == 0);
	l = lab_open();
	beside_arena();
	peer = map(AREA, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	peer_mr = reg(&l, peer, AREA);
	for (size_t i = 0; i < sizeof sorts / sizeof *sorts; i++) {
		char *p = sorts[i].make();
		if (p) /* there may be no huge page */
			try(sorts[i].name, p, sorts[i].shared);
	}
	on_stack();
	on_huge_page();
	return 0;
}
