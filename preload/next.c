/* The next definition of a function after this library's. */
#include "interpose.h"

#include <dlfcn.h>
#include <string.h>

#ifdef __GLIBC__
/* Functions with several versions, and the current version. Before glibc 2.36 dlsym() finds
 * another version (sourceware.org/bugzilla 14932); that of libibverbs would call this
 * library again. */
static const struct {
	const char *name, *version;
} versioned[] = {
	{ "ibv_open_device", "IBVERBS_1.1" },
	{ "realpath", "GLIBC_2.3" },
	{ "fopen", "GLIBC_2.1" },     /* i386 */
	{ "scandir64", "GLIBC_2.2" }, /* i386 */
	{ "glob", "GLIBC_2.27" },
	{ "glob64", "GLIBC_2.27" },
};
#endif

void *next_symbol(const char *name)
{
#ifdef __GLIBC__
	for (size_t i = 0; i < sizeof versioned / sizeof *versioned; i++) {
		void *f = strcmp(name, versioned[i].name) ? NULL : dlvsym(RTLD_NEXT, name, versioned[i].version);
		if (f)
			return f;
	}
#endif
	return dlsym(RTLD_NEXT, name);
}

bool verbs_ours(void *const *ibv_context)
{
	return context_of(*(const int *)&ibv_context[CMD_FD]) != NULL;
}

/* RTLD_NEXT does not find a libibverbs that a Python module loaded. */
void *verbs_symbol(const char *name)
{
	void *f = next_symbol(name);
	if (f)
		return f;
	void *lib = dlopen("libibverbs.so.1", RTLD_LAZY);
	return lib ? dlsym(lib, name) : NULL;
}
