/* Memory that moves during a walk over the address space keeps its part of the memfd. */
#define _GNU_SOURCE
#include "check.h"

#include "../../backing.c"
#include "../../spare.c"
#include "../../stretch.c"

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
void mappings_each(void (*f)(uint64_t offset, uint64_t end, void *arg), void *arg) { (void)f, (void)arg; }

/* used creates a page in its own stretch; the given walks miss it. */
static uint64_t used(unsigned missed)
{
	uint64_t start = (filled + 1) * 0x10000;
	struct vma v = { .start = start, .end = start + MR_PAGE, .kind = VMA_OURS };
	enum history history;
	CHECK(stretch_fd(true) >= 0 && stretch_new(&v, &history) && history == FRESH);
	CHECK(filled < MOST_PIECES && pwrite(file.fd, "x", 1, v.offset) == 1);
	stretch_filled(&v, history);
	pieces[filled++] = (struct piece){ v, missed };
	return v.offset;
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

/* beside: memory continues the stretch of its neighbour only if all memory of the stretch is in
 * place. What has moved may have grown. */
static void beside(void)
{
	again();
	used(NEVER);
	struct vma ours = pieces[0].v, next = { .start = ours.end, .end = ours.end + 2 * MR_PAGE, .kind = VMA_OURS };
	struct vma before = { .start = ours.start - MR_PAGE, .end = ours.start };
	CHECK(stretch_beside(&ours, &next) && next.offset == ours.offset + MR_PAGE);
	CHECK(stretch_beside(&ours, &before) && before.offset == ours.offset - MR_PAGE);
	stretch_filled(&next, USED);
	stretch_seen(&next);
	struct vma more = { .start = next.end, .end = next.end + MR_PAGE };
	CHECK(stretch_beside(&next, &more) && !stretch_beside(&ours, &before)); /* the second page is gone */
	ours.whole_end = next.end; /* there it is */
	CHECK(stretch_beside(&ours, &before));
	struct vma far = { .start = ours.end, .end = ours.end + STRETCH / 2 };
	CHECK(!stretch_beside(&ours, &far));
	ours.start += 1 << 20, ours.end += 1 << 20; /* moved */
	ours.whole_start = ours.start, ours.whole_end = ours.end;
	CHECK(!stretch_beside(&ours, &more));
}

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

	beside();
	return 0;
}
