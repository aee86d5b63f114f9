/* Mappings of the daemon stay after their last region, within limits. The library does not mistake new
 * memory at the same addresses for the old memory. */
#define _GNU_SOURCE
#include "mr.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PART = 64 << 10, MANY = 300, MOST = 64 };

static char *map_at(void *at)
{
	char *p = mmap(at, PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
	CHECK(p != MAP_FAILED);
	return p;
}

static void touch(struct lab *l, void *p) { CHECK(ibv_dereg_mr(reg(l, p, PART)) == 0); }

static void both(struct lab *l, char *a, char *b, unsigned seed)
{
	struct ibv_mr *am = reg(l, a, PART), *bm = reg(l, b, PART);
	exchange(l, am, a, bm, b, PART, seed);
	CHECK(ibv_dereg_mr(am) == 0 && ibv_dereg_mr(bm) == 0);
}

/* others: new memory at an old address, a part of it, and memory that mremap() moved there. */
static void others(struct lab *l)
{
	char *a = map_at(NULL), *b = map_at(NULL), *c = map_at(NULL);
	both(l, a, b, 1);
	both(l, a, b, 2);
	CHECK(munmap(a, PART) == 0);
	both(l, map_at(a), b, 3);
	map_at(a);
	both(l, a, b, 4);
	touch(l, c);
	CHECK(mremap(c, PART, PART, MREMAP_MAYMOVE | MREMAP_FIXED, a) == a);
	both(l, a, b, 5);
	both(l, b, a, 6);
}

/* child checks that a child's region is its own memory, although the parent last registered its
 * memory at the same address in the same context. */
static void child(struct lab *l)
{
	int go[2];
	char *a = map_at(NULL), *b = map_at(NULL);
	CHECK(pipe(go) == 0);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		char c;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		CHECK(read(go[0], &c, 1) == 1);
		both(l, a, b, 7);
		_exit(0);
	}
	both(l, a, b, 8);
	CHECK(write(go[1], "", 1) == 1);
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	both(l, a, b, 9);
}

/* mappings counts the daemon's mappings of the library's memfd. */
static int mappings(const char *daemon)
{
	char path[64], line[512];
	int n = 0;
	snprintf(path, sizeof path, "/proc/%s/maps", daemon);
	FILE *f = fopen(path, "r");
	CHECK(f != NULL);
	while (fgets(line, sizeof line, f))
		n += strstr(line, "memfd:roced (") != NULL;
	fclose(f);
	return n;
}

static void many(struct lab *l, const char *daemon)
{
	static struct ibv_mr *mr[MANY];
	for (int i = 0; i < MANY; i++)
		mr[i] = reg(l, map_at(NULL), PART);
	CHECK(mappings(daemon) > MOST);
	for (int i = 0; i < MANY; i++)
		CHECK(ibv_dereg_mr(mr[i]) == 0);
	/* At most a few of the remaining ones belong to regions. */
	for (int i = 0; mappings(daemon) > MOST + 8; i++) {
		CHECK(i < 1000);
		usleep(10000);
	}
}

int main(int argc, char **argv)
{
	struct lab l = lab_open();
	CHECK(argc == 2);
	others(&l);
	child(&l);
	many(&l, argv[1]);
	return 0;
}
