/*
 * Sharing the processor while polling: a program that spins in ibv_poll_cq() on a
 * machine with few cores keeps the daemon from the work that it waits for. After some
 * polls in vain a thread yields.
 */
#include "interpose.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>

/* Polls in vain before each yield. */
enum { PATIENCE = 16 };

typedef int poll_fn(void *cq, int n, void *wc);
typedef int start_fn(void *cq, void *attr);
typedef void *open_fn(void *device);

/* The functions of the provider; all devices of ours have one. */
static _Atomic(poll_fn *) stock_poll;
static _Atomic(start_fn *) stock_start;
static _Atomic(create_cq_fn *) stock_create;

static __thread unsigned in_vain;

/* polled is told of each poll, and whether it has found something. */
static void polled(bool found)
{
	if (found)
		in_vain = 0;
	else if (++in_vain >= PATIENCE)
		sched_yield();
}

static int sharing_poll(void *cq, int n, void *wc)
{
	int k = atomic_load_explicit(&stock_poll, memory_order_relaxed)(cq, n, wc);
	polled(k != 0);
	return k;
}

/* sharing_start begins to poll an extended completion queue: ENOENT if it is empty. */
static int sharing_start(void *cq, void *attr)
{
	int err = atomic_load_explicit(&stock_start, memory_order_relaxed)(cq, attr);
	polled(err != ENOENT);
	return err;
}

/* sharing_create creates an extended completion queue, whose functions are its own. */
static void *sharing_create(void *context, void *attr)
{
	void **cq = stamp_create(atomic_load(&stock_create), context, attr);
	if (cq) {
		provider_mend_cq(cq);
		HOOK(cq[START_POLL], stock_start, sharing_start);
	}
	return cq;
}

void poll_share(void *ibv_context)
{
	void **word = ibv_context;
	if (context_of(*(int *)&word[CMD_FD]) == NULL)
		return;
	HOOK(word[OPS_POLL_CQ], stock_poll, sharing_poll);
	if ((uintptr_t)word[ABI_COMPAT] == UINTPTR_MAX &&
	    (size_t)word[VERBS_SIZE] >= (CONTEXT_WORDS - QUERY_RT_VALUES) * sizeof *word) {
		HOOK(word[CREATE_CQ_EX], stock_create, sharing_create);
		stamp_query(word);
		provider_mend(word);
	}
}

/* stock_open finds the function of libibverbs, which may have been loaded where
 * RTLD_NEXT does not look (a module of Python). */
static open_fn *stock_open(void)
{
	open_fn *f = (open_fn *)next_symbol("ibv_open_device");
	if (f)
		return f;
	void *lib = dlopen("libibverbs.so.1", RTLD_LAZY);
	return lib ? (open_fn *)dlsym(lib, "ibv_open_device") : NULL;
}

void *ibv_open_device(void *device);
EXPORT void *ibv_open_device(void *device)
{
	open_fn *f = stock_open();
	void *ctx = f ? f(device) : NULL;
	if (ctx && preload_active())
		poll_share(ctx);
	return ctx;
}
