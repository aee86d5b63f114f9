/* Memory that moves during a walk over the address space keeps its part of the memfd. */
#define _GNU_SOURCE
#include "check.h"

#include "../../backing.c"
#include "../../replace.c"
#include "../../spare.c"

enum { MOST_PIECES = 8 };

/* The simulated address space. Each walk misses some pieces. */
static struct piece {
	struct vma v;
	unsigned missed; /* a bit for each walk */
} pieces[MOST_PIECES];
static unsigned filled, walks;

bool maps_walk(uint64_t start, uint64_t end, bool (*f)(const struct vma *v, void *arg), void *arg)
{
	unsigned bit = 1U << walks++;
	(void)start, (void)end;
	for (unsigned i = 0; i < filled; i++)
		if (!(pieces[i].missed & bit) && !f(&pieces[i].v, arg))
			break;
	return true;
}

void maps_set_memfd(unsigned a, unsigned b, uint64_t ino) { (void)a, (void)b, (void)ino; }
int fd_private(int fd) { return fd; }
void fd_private_close(int fd) { close(fd); }
bool maps_locked(uint64_t start, uint64_t end) { return start == end; }
void mappings_each(void (*f)(uint64_t offset, uint64_t end, void *arg), void *arg) { (void)f, (void)arg; }
int guard_open(void) { return -1; }
void guard_close(int fd, bool replaced) { (void)fd, (void)replaced; }
bool guard_raise(int fd, uint64_t start, uint64_t end) { return fd < 0 && start < end; }
void guard_drop(int fd, uint64_t start, uint64_t end, bool replaced) { (void)fd, (void)start, (void)end, (void)replaced; }

/* used creates a page in its own stretch; the given walks miss it. */
static uint64_t used(unsigned missed)
{
	uint64_t offset, start = (filled + 1) * 0x10000;
	enum history history;
	CHECK(next_stretch(MR_PAGE, &offset, &history) && history == FRESH);
	CHECK(filled < MOST_PIECES && pwrite(file.fd, "x", 1, offset) == 1);
	pieces[filled++] = (struct piece){ { start, start + MR_PAGE, offset, VMA_OURS }, missed };
	return offset;
}

static bool there(uint64_t offset)
{
	char c;
	CHECK(pread(file.fd, &c, 1, offset) == 1);
	return c == 'x';
}

/* again restarts with an empty address space. */
static void again(void)
{
	spares_forget(); /* they are not freed */
	filled = walks = 0;
}

/* collection frees all unused parts. */
static void collection(void)
{
	spares_forget();
	count.replaced = IDLE + count.collected + 1;
	walks = 0;
	collect();
}

enum { NEVER = 0, ALWAYS = ~0U, FIRST = 1, SECOND = 2 };

int main(void)
{
	uint64_t still = used(NEVER), first = used(FIRST), second = used(SECOND), gone = used(ALWAYS);
	collection();
	CHECK(there(still) && there(first) && there(second) && !there(gone));

	/* If each walk finds something new, the next one might, too. */
	again();
	gone = used(ALWAYS);
	used(FIRST);
	used(FIRST | SECOND);
	used(FIRST | SECOND | 4);
	collection();
	CHECK(there(gone) && walks == WALKS);
	again();
	collection();
	CHECK(!there(gone));

	/* A part of a stretch is not reused either. */
	again();
	first = used(FIRST);
	walks = 0;
	CHECK(!unused(first, MR_PAGE, first) && unused(first + MR_PAGE, MR_PAGE, first));
	return 0;
}
