/* Wall-clock stamps of one queue never go back, whatever the readings of the two clocks take. The
 * program replaces clock_gettime(). */
#define _GNU_SOURCE
#include "check.h"

#include "../../stamp.c"

static int64_t monotonic = 1000000000, difference = INT64_C(1700000000000000000);
static unsigned seed = 1;

/* Each reading takes 10 to 100 ns, and sometimes a microsecond. */
int clock_gettime(clockid_t id, struct timespec *t)
{
	seed = seed * 1103515245 + 12345;
	monotonic += 10 + (seed >> 16) % 90 + ((seed >> 8) % 64 == 0 ? 1000 : 0);
	int64_t now = monotonic + (id == CLOCK_REALTIME ? difference : 0);
	*t = (struct timespec){ now / 1000000000, now % 1000000000 };
	return 0;
}

struct context *context_of(int fd) { (void)fd; return NULL; }
struct object *objects_get(struct objects *t, enum object_kind kind, uint32_t handle)
{
	(void)t, (void)kind, (void)handle;
	return NULL;
}
uint64_t monotonic_ns(void) { return monotonic; }

/* steady checks that the offset stays constant and is close to the difference of the clocks. */
static void steady(void)
{
	int64_t first = wallclock_offset();
	for (int i = 0; i < 100000; i++)
		CHECK(wallclock_offset() == first);
	CHECK(first <= difference && difference - first < 1000);
}

int main(void)
{
	steady();
	difference += 5000000; /* the clock was set */
	steady();
	difference -= 9000000;
	steady();
	(void)stamp_create, (void)stamp_query;
	return 0;
}
