/*
 * Commands in the memory of the doorbells (docs/reference/control-protocol.md). The daemon's thread of
 * the NIC reads them there. A command costs one context switch each way, or none while both
 * sides run.
 */
#include "context.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

#ifndef SYS_futex /* 32-bit processors with 64-bit time only */
#define SYS_futex SYS_futex_time64
#endif

enum { STATE = 8192, RET = 8196, LEN = 8200, ANSWER = 8204, COMMAND = 8256, BODY = 8512, ROOM = 256 };
enum { IDLE, ASKED, AWAITED, ANSWERED };

enum {
	SPINS = 50,                /* before sleeping: a running thread answers within microseconds */
	CHECK_NS = 100 * 1000000,  /* interval of the checks that the daemon is alive */
};

/* is_direct returns true for the commands that the daemon accepts here. */
static bool is_direct(uint32_t command)
{
	switch (command) {
	case IB_USER_VERBS_CMD_REG_MR:
	case IB_USER_VERBS_CMD_DEREG_MR:
	case IB_USER_VERBS_CMD_ALLOC_MW:
	case IB_USER_VERBS_CMD_DEALLOC_MW:
	case IB_USER_VERBS_CMD_CREATE_AH:
	case IB_USER_VERBS_CMD_DESTROY_AH:
	case EXT_MAP_MEMORY:
	case EXT_UNMAP_MEMORY:
		return true;
	}
	return false;
}

static inline void relax(void)
{
#if defined __x86_64__ || defined __i386__
	__builtin_ia32_pause();
#endif
}

/* await waits for the answer of the daemon; false if the daemon is gone. */
static bool await(struct context *c, _Atomic uint32_t *state)
{
	const struct timespec timeout = { .tv_nsec = CHECK_NS };
	for (int i = 0; i < SPINS; i++) {
		if (atomic_load(state) == ANSWERED)
			return true;
		relax();
	}
	uint32_t was = ASKED;
	atomic_compare_exchange_strong(state, &was, AWAITED);
	while (atomic_load(state) != ANSWERED) {
		syscall(SYS_futex, state, FUTEX_WAIT, AWAITED, &timeout, NULL, 0);
		if (atomic_load(state) != ANSWERED && (atomic_load(&c->dead) || conn_hung_up(c->fd)))
			return false;
	}
	return true;
}

bool direct_call(struct context *c, const void *cmd, size_t n)
{
	const struct ib_uverbs_cmd_hdr *h = cmd;
	struct answer *a = &c->answer;
	uint8_t *b = c->doorbell;
	if (!b || n > ROOM || !is_direct(h->command))
		return false;
	_Atomic uint32_t *state = (_Atomic uint32_t *)(b + STATE);
	uint32_t len = n;
	memcpy(b + COMMAND, cmd, n);
	memcpy(b + LEN, &len, sizeof len);
	atomic_store(state, ASKED);
	doorbell_wake(c);
	if (!await(c, state))
		return false;
	atomic_store(state, IDLE);
	memcpy(&a->ret, b + RET, sizeof a->ret);
	memcpy(&len, b + ANSWER, sizeof len);
	if (a->ret != 0 || len > ROOM)
		return false;
	memcpy(a->body, b + BODY, len);
	a->len = len;
	a->nfd = 0;
	return true;
}
