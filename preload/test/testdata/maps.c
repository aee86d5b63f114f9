/* The two ways to read the address space, query and file, agree. */
#define _GNU_SOURCE
#include "check.h"

#include "../../maps.c"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum { MOST = 4096, PAGE = 4096 };

int fd_private(int fd) { return fd; }
void fd_private_close(int fd) { close(fd); }

struct list {
	struct vma v[MOST];
	int n;
};

static bool add(const struct vma *v, void *arg)
{
	struct list *l = arg;
	CHECK(l->n < MOST);
	l->v[l->n++] = *v;
	return true;
}

static struct list asked, read_;

/* compare reads the parts of a range in both ways. */
static void compare(uint64_t start, uint64_t end)
{
	struct lines l;
	asked.n = read_.n = 0;
	CHECK(lines_open(&l, "/proc/self/maps"));
	CHECK(walk_by_query(l.fd, start, end, add, &asked));
	walk_by_reading(&l, start, end, add, &read_);
	lines_close(&l);
	CHECK(asked.n == read_.n);
	for (int i = 0; i < asked.n; i++) {
		struct vma *a = &asked.v[i], *r = &read_.v[i];
		CHECK(a->start == r->start && a->end == r->end && a->kind == r->kind);
		CHECK(a->kind != VMA_OURS || a->offset == r->offset);
	}
}

int main(void)
{
	struct stat ours;
	int fd = memfd_create("maps", 0);
	CHECK(fd >= 0 && ftruncate(fd, 64 * PAGE) == 0 && fstat(fd, &ours) == 0);
	maps_set_memfd(major(ours.st_dev), minor(ours.st_dev), ours.st_ino);
	char *p = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED && mprotect(p, PAGE, PROT_READ) == 0 && munmap(p + 20 * PAGE, PAGE) == 0);
	CHECK(mmap(p + 8 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 3 * PAGE) == p + 8 * PAGE);
	uint64_t at = (uintptr_t)p;
	compare(0, 1UL << 47); /* only the file has the part above: [vsyscall] */
	CHECK(asked.n > 10);
	compare(at + PAGE, at + 63 * PAGE);
	static const struct { int first, end; enum vma_kind kind; } want[] = {
		{ 1, 8, VMA_PLAIN }, { 8, 12, VMA_OURS }, { 12, 20, VMA_PLAIN }, { 21, 63, VMA_PLAIN },
	};
	CHECK(asked.n == sizeof want / sizeof *want);
	for (int i = 0; i < asked.n; i++)
		CHECK(asked.v[i].start == at + want[i].first * PAGE && asked.v[i].end == at + want[i].end * PAGE &&
		      asked.v[i].kind == want[i].kind);
	compare(at + 9 * PAGE, at + 10 * PAGE);
	CHECK(asked.n == 1 && asked.v[0].offset == 4 * PAGE);
	compare(at + 20 * PAGE, at + 21 * PAGE);
	CHECK(asked.n == 0);
	uint64_t stack = (uintptr_t)&fd;
	compare(stack & ~(PAGE - 1UL), stack + 1);
	CHECK(asked.n == 1 && asked.v[0].kind == VMA_OTHER);
	CHECK(maps_threads() == 1);
	CHECK(!maps_locked(at + 30 * PAGE, at + 32 * PAGE) && mlock(p + 31 * PAGE, PAGE) == 0);
	CHECK(maps_locked(at + 30 * PAGE, at + 32 * PAGE) && !maps_locked(at + 40 * PAGE, at + 41 * PAGE));
	return 0;
}
