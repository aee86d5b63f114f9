/*
 * Sharing the processor while polling: a program that spins in ibv_poll_cq() on a
 * machine with few cores keeps the daemon from the work that it waits for. After some
 * polls in vain a thread yields.
 */
#include "preload.h"
#include "layout.h"

#include <dlfcn.h>
#include <sched.h>

/* Polls in vain before each yield. */
enum { PATIENCE = 16 };

typedef int poll_fn(void *cq, int n, void *wc);
typedef void *open_fn(void *device);

static _Atomic(poll_fn *) stock_poll;
static __thread unsigned in_vain;

static int sharing_poll(void *cq, int n, void *wc)
{
	int k = atomic_load_explicit(&stock_poll, memory_order_relaxed)(cq, n, wc);
	if (k != 0)
		in_vain = 0;
	else if (++in_vain >= PATIENCE)
		sched_yield();
	return k;
}

void poll_share(void *ibv_context)
{
	void **word = ibv_context;
	if (context_of(*(int *)&word[CMD_FD]) == NULL)
		return;
	poll_fn *p = (poll_fn *)word[OPS_POLL_CQ], *none = NULL;
	/* All devices of ours have one provider, and so one function. */
	if (p == sharing_poll || (!atomic_compare_exchange_strong(&stock_poll, &none, p) && none != p))
		return;
	word[OPS_POLL_CQ] = (void *)sharing_poll;
}

/* stock_open finds the function of libibverbs, which may have been loaded where
 * RTLD_NEXT does not look (a module of Python). */
static open_fn *stock_open(void)
{
	open_fn *f = (open_fn *)rv_next("ibv_open_device");
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
	if (ctx && rv_active())
		poll_share(ctx);
	return ctx;
}
