/* Doorbells in shared memory (docs/reference/control-protocol.md). */
#define _GNU_SOURCE /* sched_getcpu */
#include "context.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Doorbell memory (docs/reference/control-protocol.md). */
enum { BELL_SLEEPING = 0, BELL_CORE = 4, BELL_SUMMARY = 64, BELL_CQ_SUMMARY = 96, BELL_MAP = 4096, BELL_CQ_MAP = 6144, BELL_SIZE = 12288 };

void doorbell_map(struct context *c, const struct answer *a)
{
	struct doorbell d;
	answer_copy(a, &d, sizeof d);
	if (a->nfd != 1 || a->fd[0].kind != ANSWER_EVENTFD || d.size < BELL_SIZE)
		return;
	struct ring r = ring_map(c->rings, d.offset, BELL_SIZE);
	c->doorbell_fd = r.mem ? fd_private_dup(a->fd[0].fd) : -1;
	if (c->doorbell_fd < 0)
		ring_unmap(&r);
	c->doorbell = r.mem;
}

void doorbell_free(struct context *c)
{
	if (!c->doorbell)
		return;
	syscall(SYS_munmap, c->doorbell, BELL_SIZE);
	fd_private_close(c->doorbell_fd);
}

void doorbell_wake(struct context *c)
{
	_Atomic uint32_t *sleeping = (_Atomic uint32_t *)(c->doorbell + BELL_SLEEPING);
	if (atomic_load(sleeping) && atomic_exchange(sleeping, 0)) {
		uint64_t one = 1;
		syscall(SYS_write, c->doorbell_fd, &one, sizeof one);
	}
}

/* tell_core stores the number of this thread's core plus 1 if the daemon asks for it. */
static void tell_core(struct context *c)
{
	_Atomic uint32_t *core = (_Atomic uint32_t *)(c->doorbell + BELL_CORE);
	if (atomic_load_explicit(core, memory_order_relaxed) == UINT32_MAX)
		atomic_store(core, (uint32_t)sched_getcpu() + 1);
}

/* ring_bell sets the bit of a queue in one map and its summary, then wakes the daemon. */
static void ring_bell(struct context *c, size_t summary, size_t map, uint32_t handle)
{
	uint8_t *b = c->doorbell;
	uint32_t word = handle / 64;
	atomic_fetch_or((_Atomic uint64_t *)(b + map) + word, (uint64_t)1 << handle % 64);
	atomic_fetch_or((_Atomic uint64_t *)(b + summary) + word / 64, (uint64_t)1 << word % 64);
	tell_core(c);
	doorbell_wake(c);
}

void doorbell_send(struct context *c, uint32_t qp) { ring_bell(c, BELL_SUMMARY, BELL_MAP, qp); }
void doorbell_armed(struct context *c, uint32_t cq) { ring_bell(c, BELL_CQ_SUMMARY, BELL_CQ_MAP, cq); }
