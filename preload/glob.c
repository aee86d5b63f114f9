/* glob() of device nodes and of sysfs. The C library's glob() calls its own opendir() and stat(). */
#include "interpose.h"

#ifdef __GLIBC__
#include <dirent.h>
#include <glob.h>
#include <string.h>
#include <sys/stat.h>

/* has_devices returns true for patterns that may lead to the daemon's tree. */
static bool has_devices(const char *pattern)
{
	return pattern && preload_active() &&
	       (!strncmp(pattern, "/dev/infiniband", 15) || !strncmp(pattern, "/sys/", 5));
}

static void *open_dir(const char *path) { return opendir(path); }
static void close_dir(void *d) { closedir(d); }

/* GLOB defines a function that passes this library's functions to the C library's. */
#define GLOB(name, type, entry, status, read, status_fn, lstatus_fn)                                          \
	static entry *read_##name(void *d) { return read(d); }                                                \
	static int stat_##name(const char *restrict path, status *restrict st) { return status_fn(path, st); } \
	static int lstat_##name(const char *restrict path, status *restrict st) { return lstatus_fn(path, st); } \
	EXPORT int name(const char *restrict pattern, int flags, int (*failed)(const char *path, int err),     \
			type *restrict result)                                                                 \
	{                                                                                                     \
		REAL(name);                                                                                   \
		if (flags & GLOB_ALTDIRFUNC || !has_devices(pattern))                                         \
			return real_##name(pattern, flags, failed, result);                                   \
		result->gl_opendir = open_dir;                                                                \
		result->gl_closedir = close_dir;                                                              \
		result->gl_readdir = read_##name;                                                             \
		result->gl_stat = stat_##name;                                                                \
		result->gl_lstat = lstat_##name;                                                              \
		int r = real_##name(pattern, flags | GLOB_ALTDIRFUNC, failed, result);                        \
		result->gl_flags &= ~GLOB_ALTDIRFUNC;                                                         \
		return r;                                                                                     \
	}
GLOB(glob, glob_t, struct dirent, struct stat, readdir, stat, lstat)
GLOB(glob64, glob64_t, struct dirent64, struct stat64, readdir64, stat64, lstat64)
#endif
