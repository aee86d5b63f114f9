/*
 * Sharing the processor while polling. On a machine with few cores, a program that spins in
 * ibv_poll_cq() starves the daemon, whose work it waits for. So a thread yields after some
 * empty polls.
 */
#include "interpose.h"

#include <errno.h>
#include <sched.h>

/* Empty polls before each yield. */
enum { MAX_EMPTY_POLLS = 16 };

typedef int poll_fn(void *cq, int n, void *wc);
typedef int start_fn(void *cq, void *attr);
typedef void *open_fn(void *device);

/* The functions of the provider. All devices have the same one. */
static _Atomic(poll_fn *) stock_poll;
static _Atomic(start_fn *) stock_start;
static _Atomic(create_cq_fn *) stock_create;

static __thread unsigned empty_polls;

/* count_poll counts empty polls in a row and yields. */
static void count_poll(bool found)
{
	if (found)
		empty_polls = 0;
	else if (++empty_polls >= MAX_EMPTY_POLLS)
		sched_yield();
}

static int sharing_poll(void *cq, int n, void *wc)
{
	int k = atomic_load_explicit(&stock_poll, memory_order_relaxed)(cq, n, wc);
	count_poll(k != 0);
	return k;
}

/* sharing_start is ibv_start_poll(). It returns ENOENT if the queue is empty. */
static int sharing_start(void *cq, void *attr)
{
	int err = atomic_load_explicit(&stock_start, memory_order_relaxed)(cq, attr);
	count_poll(err != ENOENT);
	return err;
}

static void *create_cq(void *context, void *attr)
{
	return provider_create_cq(atomic_load(&stock_create), context, attr);
}

/* sharing_create is ibv_create_cq_ex(). Each such queue has its own table of functions. */
static void *sharing_create(void *context, void *attr)
{
	void **cq = stamp_create(create_cq, context, attr);
	if (cq) {
		provider_mend_cq(cq);
		HOOK(cq[START_POLL], stock_start, sharing_start);
	}
	return cq;
}

/* poll_share hooks the functions of a context. */
static void poll_share(void *ibv_context)
{
	void **word = ibv_context;
	if (context_of(*(int *)&word[CMD_FD]) == NULL)
		return;
	HOOK(word[OPS_POLL_CQ], stock_poll, sharing_poll);
	if ((uintptr_t)word[ABI_COMPAT] == UINTPTR_MAX &&
	    (size_t)word[VERBS_SIZE] >= (CONTEXT_WORDS - MODIFY_CQ) * sizeof *word) {
		HOOK(word[CREATE_CQ_EX], stock_create, sharing_create);
		stamp_query(word);
		provider_mend(word);
	}
}

void *ibv_open_device(void *device);
EXPORT void *ibv_open_device(void *device)
{
	open_fn *f = (open_fn *)verbs_symbol("ibv_open_device");
	void *ctx = f ? f(device) : NULL;
	if (ctx && preload_active())
		poll_share(ctx);
	return ctx;
}
