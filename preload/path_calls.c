/* Functions other than open() that take a path. */
#include "interpose.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Functions that only need another path. */
#define REDIRECTED(type, name, params, ...)                 \
	EXPORT type name params                             \
	{                                                   \
		REDIRECT(to, path);                         \
		counters_refresh(to);                                \
		REAL(name);                                 \
		return real_##name(__VA_ARGS__);            \
	}
REDIRECTED(FILE *, fopen, (const char *path, const char *mode), to, mode)
LARGE(REDIRECTED(FILE *, fopen64, (const char *path, const char *mode), to, mode))
REDIRECTED(int, scandir, (const char *path, struct dirent ***list, int (*keep)(const struct dirent *),
	   int (*order)(const struct dirent **, const struct dirent **)), to, list, keep, order)
LARGE(REDIRECTED(int, scandir64, (const char *path, struct dirent64 ***list, int (*keep)(const struct dirent64 *),
	   int (*order)(const struct dirent64 **, const struct dirent64 **)), to, list, keep, order))
REDIRECTED(ssize_t, readlink, (const char *path, char *out, size_t n), to, out, n)
REDIRECTED(ssize_t, readlinkat, (int dir, const char *path, char *out, size_t n), dir, to, out, n)
REDIRECTED(int, chdir, (const char *path), to)
/* ls calls these. */
REDIRECTED(ssize_t, getxattr, (const char *path, const char *name, void *value, size_t n), to, name, value, n)
REDIRECTED(ssize_t, lgetxattr, (const char *path, const char *name, void *value, size_t n), to, name, value, n)
REDIRECTED(ssize_t, listxattr, (const char *path, char *list, size_t n), to, list, n)
REDIRECTED(ssize_t, llistxattr, (const char *path, char *list, size_t n), to, list, n)

/* Functions that return a path. */
#define RESOLVING(name, params, ...)                            \
	EXPORT char *name params                                \
	{                                                       \
		REDIRECT(to, path);                             \
		REAL(name);                                     \
		char *got = real_##name(__VA_ARGS__);           \
		return to == path ? got : path_shown(got);      \
	}
RESOLVING(realpath, (const char *path, char *out), to, out)
char *__realpath_chk(const char *path, char *out, size_t room);
RESOLVING(__realpath_chk, (const char *path, char *out, size_t room), to, out, room)
RESOLVING(canonicalize_file_name, (const char *path), to)

/* explain_no_devices explains why libibverbs finds no devices. libibverbs opens the directory of
 * all verbs devices: the kernel's, unless SYSFS_PATH is set. */
static void explain_no_devices(const char *path, bool there)
{
	static const char folder[] = "/class/infiniband_verbs";
	size_t n = path ? strlen(path) : 0;
	bool ours = sysfs_dir() && path && path_below(path, sysfs_dir());
	if (n < sizeof folder - 1 || strcmp(path + n - (sizeof folder - 1), folder) || (there && (!ours || preload_active())))
		return;
	if (!preload_active())
		advise("roced: libroced.so is loaded, but %s: run the program with \"rocectl exec -- PROGRAM\", "
		       "or set the variables that \"rocectl env\" prints",
		       run_dir() ? "SYSFS_PATH is not set" : sysfs_dir() ? "ROCED_RUN_DIR is not set" :
						"neither ROCED_RUN_DIR nor SYSFS_PATH is set");
	else if (ours)
		advise("roced: there is no NIC in %s (SYSFS_PATH): is roced running with the run directory %s (ROCED_RUN_DIR)? "
		       "Start it with \"rocectl up\"; \"rocectl env\" prints the variables that programs need",
		       sysfs_dir(), run_dir());
}

EXPORT DIR *opendir(const char *path)
{
	REDIRECT(to, path);
	counters_refresh(to);
	REAL(opendir);
	DIR *d = real_opendir(to);
	explain_no_devices(to, d != NULL);
	return d;
}

/* ---- access, stat ---- */

/* node_access is access() of a device node, which exists as long as its class device. */
static int node_access(const char *name, int mode)
{
	if (!device_rdev(name) || mode & X_OK) {
		errno = mode & X_OK ? EACCES : ENOENT;
		return -1;
	}
	return 0;
}

#define ACCESS(name, params, ...)                          \
	EXPORT int name params                             \
	{                                                  \
		const char *node = path_device(path);           \
		if (node)                                  \
			return node_access(node, mode);    \
		REDIRECT(to, path);                        \
		REAL(name);                                \
		return real_##name(__VA_ARGS__);           \
	}
ACCESS(access, (const char *path, int mode), to, mode)
ACCESS(euidaccess, (const char *path, int mode), to, mode)
ACCESS(eaccess, (const char *path, int mode), to, mode)
ACCESS(faccessat, (int dir, const char *path, int mode, int flags), dir, to, mode, flags)

/* NODE_STAT describes a character device. */
#define NODE_STAT(st, number)                  \
	do {                                   \
		memset(st, 0, sizeof *(st));   \
		(st)->st_mode = S_IFCHR | 0666; \
		(st)->st_nlink = 1;            \
		(st)->st_rdev = (number);      \
	} while (0)

/* STAT defines a function that takes a path, FSTAT one that takes a descriptor. */
#define STAT(name, type, params, ...)                      \
	EXPORT int name params                             \
	{                                                  \
		const char *node = path_device(path);           \
		uint64_t rdev = node ? device_rdev(node) : 0; \
		if (rdev) {                                \
			NODE_STAT(st, rdev);               \
			return 0;                          \
		}                                          \
		REDIRECT(to, path);                        \
		REAL(name);                                \
		return real_##name(__VA_ARGS__);           \
	}
#define FSTAT(name, params, ...)                 \
	EXPORT int name params                   \
	{                                        \
		struct file *f = fd_file(fd);    \
		if (f && f->rdev) {              \
			NODE_STAT(st, f->rdev);  \
			return 0;                \
		}                                \
		REAL(name);                      \
		return real_##name(__VA_ARGS__); \
	}
STAT(stat, stat, (const char *restrict path, struct stat *restrict st), to, st)
LARGE(STAT(stat64, stat64, (const char *restrict path, struct stat64 *restrict st), to, st))
STAT(lstat, stat, (const char *restrict path, struct stat *restrict st), to, st)
LARGE(STAT(lstat64, stat64, (const char *restrict path, struct stat64 *restrict st), to, st))
STAT(fstatat, stat, (int dir, const char *restrict path, struct stat *restrict st, int flags), dir, to, st, flags)
LARGE(STAT(fstatat64, stat64, (int dir, const char *restrict path, struct stat64 *restrict st, int flags), dir, to, st, flags))
FSTAT(fstat, (int fd, struct stat *st), fd, st)
LARGE(FSTAT(fstat64, (int fd, struct stat64 *st), fd, st))

#ifdef STATX_TYPE /* musl has it since 1.2.5 */
/* coreutils call statx(). An empty path selects the descriptor. */
EXPORT int statx(int dir, const char *restrict path, int flags, unsigned mask, struct statx *restrict st)
{
	const char *node = path_device(path);
	struct file *f = flags & AT_EMPTY_PATH && !*path ? fd_file(dir) : NULL;
	uint64_t rdev = node ? device_rdev(node) : f ? f->rdev : 0;
	if (rdev) {
		*st = (struct statx){ .stx_mask = STATX_TYPE | STATX_MODE | STATX_NLINK, .stx_mode = S_IFCHR | 0666,
				      .stx_nlink = 1, .stx_rdev_major = major(rdev), .stx_rdev_minor = minor(rdev) };
		return 0;
	}
	REDIRECT(to, path);
	REAL(statx);
	return real_statx(dir, to, flags, mask, st);
}
#endif

#ifdef __GLIBC__
/* Programs linked before glibc 2.33 call these. */
int __xstat(int version, const char *path, struct stat *st);
int __lxstat(int version, const char *path, struct stat *st);
int __fxstat(int version, int fd, struct stat *st);
int __fxstatat(int version, int dir, const char *path, struct stat *st, int flags);
STAT(__xstat, stat, (int version, const char *path, struct stat *st), version, to, st)
STAT(__lxstat, stat, (int version, const char *path, struct stat *st), version, to, st)
STAT(__fxstatat, stat, (int version, int dir, const char *path, struct stat *st, int flags), version, dir, to, st, flags)
FSTAT(__fxstat, (int version, int fd, struct stat *st), version, fd, st)
int __xstat64(int version, const char *path, struct stat64 *st);
int __lxstat64(int version, const char *path, struct stat64 *st);
int __fxstat64(int version, int fd, struct stat64 *st);
int __fxstatat64(int version, int dir, const char *path, struct stat64 *st, int flags);
STAT(__xstat64, stat64, (int version, const char *path, struct stat64 *st), version, to, st)
STAT(__lxstat64, stat64, (int version, const char *path, struct stat64 *st), version, to, st)
STAT(__fxstatat64, stat64, (int version, int dir, const char *path, struct stat64 *st, int flags), version, dir, to, st,
     flags)
FSTAT(__fxstat64, (int version, int fd, struct stat64 *st), version, fd, st)
#endif
