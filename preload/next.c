/* Which function is behind one of ours. */
#include "interpose.h"

#include <dlfcn.h>
#include <string.h>

#ifdef __GLIBC__
/* Functions of which there are versions, and the present one: what dlsym() finds behind
 * us is another one before glibc 2.36 (sourceware.org/bugzilla 14932). That of libibverbs
 * would call us again. */
static const struct {
	const char *name, *version;
} present[] = {
	{ "ibv_open_device", "IBVERBS_1.1" },
	{ "realpath", "GLIBC_2.3" },
	{ "fopen", "GLIBC_2.1" },     /* i386 */
	{ "scandir64", "GLIBC_2.2" }, /* i386 */
};
#endif

void *next_symbol(const char *name)
{
#ifdef __GLIBC__
	for (size_t i = 0; i < sizeof present / sizeof *present; i++) {
		void *f = strcmp(name, present[i].name) ? NULL : dlvsym(RTLD_NEXT, name, present[i].version);
		if (f)
			return f;
	}
#endif
	return dlsym(RTLD_NEXT, name);
}

