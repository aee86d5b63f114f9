/* Functions of libibverbs by their place, not by their name. */
#include "objects.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static struct libibverbs functions;

static void *find(void *library, const char *name)
{
	void *f = library ? dlsym(library, name) : NULL;
	if (!f) { /* this library is linked with libibverbs */
		fprintf(stderr, "libmrc: libibverbs.so.1 has no %s: %s\n", name, dlerror());
		abort();
	}
	return f;
}

static void find_all(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	functions.create_cq = find(library, "ibv_create_cq");
	functions.destroy_cq = find(library, "ibv_destroy_cq");
	functions.create_qp = find(library, "ibv_create_qp");
	functions.destroy_qp = find(library, "ibv_destroy_qp");
	functions.modify_qp = find(library, "ibv_modify_qp");
	functions.query_qp = find(library, "ibv_query_qp");
}

const struct libibverbs *libibverbs(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, find_all);
	return &functions;
}
