/*
 * Commands that are left in the memory of the doorbells instead of being sent
 * (docs/reference/control-protocol.md): the daemon's thread for the NIC finds them there, which
 * takes one change of processes there and one back, or none while both run.
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
	GLANCES = 50,            /* before sleeping: the answer of a thread that runs takes some microseconds */
	LOOK_NS = 100 * 1000000,  /* between looks whether the daemon lives */
};

/* suits reports whether a command is one that the daemon takes here. */
static bool suits(uint32_t command)
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

/* await waits until the daemon has answered; false if it is gone. */
static bool await(struct context *c, _Atomic uint32_t *state)
{
	const struct timespec look = { .tv_nsec = LOOK_NS };
	for (int i = 0; i < GLANCES; i++) {
		if (atomic_load(state) == ANSWERED)
			return true;
		relax();
	}
	uint32_t was = ASKED;
	atomic_compare_exchange_strong(state, &was, AWAITED);
	while (atomic_load(state) != ANSWERED) {
		syscall(SYS_futex, state, FUTEX_WAIT, AWAITED, &look, NULL, 0);
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
	if (!b || n > ROOM || !suits(h->command))
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
