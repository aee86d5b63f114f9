/*
 * Which paths are ours, and the functions that take paths: device nodes become
 * connections to the daemon, and what Linux says in sysfs about InfiniBand devices
 * comes from the tree that the daemon keeps (SYSFS_PATH).
 */
#include "preload.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/netlink.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

#include "rdmacm.h"

#define DEV "/dev/infiniband/"

enum { MAX_DEVICES = 256 };

static const char *sysfs(void) { return getenv("SYSFS_PATH"); }

const char *run_dir(void) { return getenv("ROCED_RUN_DIR"); }

bool rv_active(void) { return run_dir() && sysfs(); }

/* below reports whether path is prefix or lies below it. */
static bool below(const char *path, const char *prefix)
{
	size_t n = strlen(prefix);
	return !strncmp(path, prefix, n) && (path[n] == 0 || path[n] == '/');
}

/* device returns the name of a device node of ours, NULL if path is something else. */
static const char *device(const char *path)
{
	if (!path || strncmp(path, DEV, sizeof DEV - 1) || !rv_active())
		return NULL;
	const char *name = path + sizeof DEV - 1;
	return !strncmp(name, "uverbs", 6) || !strcmp(name, "rdma_cm") ? name : NULL;
}

const char *path_redirect(const char *path, char *buf)
{
	static const char *const ours[] = { "/sys/class/infiniband", "/sys/class/infiniband_verbs",
					    "/sys/class/infiniband_cm", "/sys/class/infiniband_mad",
					    "/sys/class/misc/rdma_cm" };
	if (!path || strncmp(path, "/sys/class/", 11) || !rv_active())
		return path;
	for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
		if (below(path, ours[i]) && snprintf(buf, PATH_MAX, "%s%s", sysfs(), path + 4) < PATH_MAX)
			return buf;
	return path;
}

/* slurp reads a small file of the tree; false if it is not there. */
static bool slurp(const char *path, char *buf, size_t size)
{
	KEEP_ERRNO;
	int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t n = syscall(SYS_read, fd, buf, size - 1);
	syscall(SYS_close, fd);
	buf[n < 0 ? 0 : n] = 0;
	return n > 0;
}

uint64_t path_rdev(const char *class_device)
{
	char path[PATH_MAX], text[32];
	unsigned major, minor;
	snprintf(path, sizeof path, "%s/class/%s/dev", sysfs(), class_device);
	return slurp(path, text, sizeof text) && sscanf(text, "%u:%u", &major, &minor) == 2 ? makedev(major, minor) : 0;
}

/* device_rdev is the device number of a device node of ours, 0 if it is not there. */
static uint64_t device_rdev(const char *name)
{
	char class_device[NAME_MAX];
	bool cm = !strcmp(name, "rdma_cm");
	snprintf(class_device, sizeof class_device, "%s/%s", cm ? "misc" : "infiniband_verbs", name);
	return path_rdev(class_device);
}

/* ---- no daemon ---- */

/* looked_for tells why libibverbs, which looks into the folder of all verbs devices, finds none.
 * Without our variables it is the kernel's. */
static void looked_for(const char *path, bool there)
{
	static const char folder[] = "/class/infiniband_verbs";
	size_t n = path ? strlen(path) : 0;
	bool ours = sysfs() && path && below(path, sysfs());
	if (n < sizeof folder - 1 || strcmp(path + n - (sizeof folder - 1), folder) || (there && (!ours || rv_active())))
		return;
	if (!rv_active())
		advise("roced: this program runs with libroced.so, but %s: \"rocectl exec -- PROGRAM\" runs "
		       "programs with all that they need, \"rocectl env\" prints it",
		       run_dir() ? "SYSFS_PATH is not set" : sysfs() ? "ROCED_RUN_DIR is not set" :
						"neither ROCED_RUN_DIR nor SYSFS_PATH is set");
	else if (ours)
		advise("roced: there is no NIC in %s (SYSFS_PATH): does roced run with the run directory %s (ROCED_RUN_DIR)? "
		       "\"rocectl up\" starts it, \"rocectl env\" prints what programs need",
		       sysfs(), run_dir());
}

/* no_answer tells why a device that the tree shows could not be opened. */
static void no_answer(const char *name)
{
	if (errno == ENODEV)
		advise("roced: nobody answers at %s/%s: does roced run with this run directory (ROCED_RUN_DIR)? "
		       "\"rocectl up\" starts it, \"rocectl env\" prints what programs need",
		       run_dir(), name);
}

/* open_device connects to the daemon; a device that its tree does not show is not there. */
static int open_device(const char *name, int flags)
{
	int cancel;
	if (!device_rdev(name)) {
		errno = ENOENT;
		return -1;
	}
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	int fd = !strcmp(name, "rdma_cm") ? rcm_open(flags) : uverbs_open(name, flags);
	if (fd < 0)
		no_answer(name);
	pthread_setcancelstate(cancel, NULL);
	return fd;
}

/* ---- counters ---- */

/* counters_device copies the name of the device whose counter path is; false if it is
 * something else. */
static bool counters_device(const char *path, char *dev, size_t size)
{
	char root[PATH_MAX];
	int n = snprintf(root, sizeof root, "%s/class/infiniband/", sysfs());
	if (n >= (int)sizeof root || strncmp(path, root, n) || !strstr(path + n, "counters/"))
		return false;
	size_t len = strcspn(path + n, "/");
	if (len >= size)
		return false;
	memcpy(dev, path + n, len);
	dev[len] = 0;
	return true;
}

/* verbs_socket finds the socket of a device. */
static bool verbs_socket(const char *dev, char *name, size_t size)
{
	char path[PATH_MAX], ibdev[NAME_MAX];
	for (int i = 0;; i++) {
		snprintf(name, size, "uverbs%d", i);
		snprintf(path, sizeof path, "%s/class/infiniband_verbs/%s/ibdev", sysfs(), name);
		if (!slurp(path, ibdev, sizeof ibdev)) {
			if (i > MAX_DEVICES)
				return false;
			continue;
		}
		ibdev[strcspn(ibdev, "\n")] = 0;
		if (!strcmp(ibdev, dev))
			return true;
	}
}

/* refresh makes the daemon bring the counters in its tree up to date before one of
 * them is read. What goes wrong leaves the file as it is. */
static void refresh(const char *path)
{
	char dev[NAME_MAX], name[NAME_MAX];
	KEEP_ERRNO;
	if (!path || !rv_active() || !counters_device(path, dev, sizeof dev) || !verbs_socket(dev, name, sizeof name))
		return;
	struct ib_uverbs_cmd_hdr cmd = { .command = EXT_REFRESH_SYSFS, .in_words = sizeof cmd / 4 };
	int cancel;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	struct answer *a = malloc(sizeof *a);
	int fd = conn_dial(name);
	if (a && fd >= 0 && conn_call(fd, &cmd, sizeof cmd, NULL, 0, a) == 0)
		answer_close(a, 0);
	if (fd >= 0)
		syscall(SYS_close, fd);
	free(a);
	pthread_setcancelstate(cancel, NULL);
}

/* ---- opening ---- */

static int do_open(int dir, const char *path, int flags, mode_t mode)
{
	char buf[PATH_MAX];
	const char *name = device(path);
	int was = errno;
	if (name)
		return kept(was, open_device(name, flags));
	path = path_redirect(path, buf);
	refresh(path);
	REAL(openat);
	return real_openat(dir, path, flags, mode);
}

static mode_t mode_of(int flags, va_list v)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(v, mode_t) : 0;
}

/* LARGE is for functions that are others than those without 64 in their names with glibc only:
 * with musl these are the same, and the names macros. */
#ifdef __GLIBC__
#define LARGE(definition) definition
#else
#define LARGE(definition)
#endif

#define OPEN(name)                                           \
	EXPORT int name(const char *path, int flags, ...)    \
	{                                                    \
		va_list v;                                   \
		va_start(v, flags);                          \
		mode_t mode = mode_of(flags, v);             \
		va_end(v);                                   \
		return do_open(AT_FDCWD, path, flags, mode); \
	}
OPEN(open)
LARGE(OPEN(open64))

#define OPENAT(name)                                               \
	EXPORT int name(int dir, const char *path, int flags, ...) \
	{                                                          \
		va_list v;                                         \
		va_start(v, flags);                                \
		mode_t mode = mode_of(flags, v);                   \
		va_end(v);                                         \
		return do_open(dir, path, flags, mode);            \
	}
OPENAT(openat)
LARGE(OPENAT(openat64))

/* What programs compiled with _FORTIFY_SOURCE call. */
EXPORT int __open_2(const char *path, int flags) { return do_open(AT_FDCWD, path, flags, 0); }
EXPORT int __open64_2(const char *path, int flags) { return do_open(AT_FDCWD, path, flags, 0); }
EXPORT int __openat_2(int dir, const char *path, int flags) { return do_open(dir, path, flags, 0); }
EXPORT int __openat64_2(int dir, const char *path, int flags) { return do_open(dir, path, flags, 0); }

/* Functions that take a path and reach it inside the C library. */
#define REDIRECTED(type, name, params, ...)                 \
	EXPORT type name params                             \
	{                                                   \
		char buf[PATH_MAX];                         \
		const char *to = path_redirect(path, buf);  \
		refresh(to);                                \
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
REDIRECTED(char *, realpath, (const char *path, char *out), to, out)
char *__realpath_chk(const char *path, char *out, size_t room);
REDIRECTED(char *, __realpath_chk, (const char *path, char *out, size_t room), to, out, room)
REDIRECTED(char *, canonicalize_file_name, (const char *path), to)
REDIRECTED(int, chdir, (const char *path), to)
/* ls asks for attributes of all that it lists. */
REDIRECTED(ssize_t, getxattr, (const char *path, const char *name, void *value, size_t n), to, name, value, n)
REDIRECTED(ssize_t, lgetxattr, (const char *path, const char *name, void *value, size_t n), to, name, value, n)
REDIRECTED(ssize_t, listxattr, (const char *path, char *list, size_t n), to, list, n)
REDIRECTED(ssize_t, llistxattr, (const char *path, char *list, size_t n), to, list, n)

EXPORT DIR *opendir(const char *path)
{
	char buf[PATH_MAX];
	const char *to = path_redirect(path, buf);
	REAL(opendir);
	DIR *d = real_opendir(to);
	looked_for(to, d != NULL);
	return d;
}

/* ---- what is there ---- */

/* node_access answers for a device node: it is there while its class device is. */
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
		char buf[PATH_MAX];                        \
		const char *node = device(path);           \
		if (node)                                  \
			return node_access(node, mode);    \
		const char *to = path_redirect(path, buf); \
		REAL(name);                                \
		return real_##name(__VA_ARGS__);           \
	}
ACCESS(access, (const char *path, int mode), to, mode)
ACCESS(euidaccess, (const char *path, int mode), to, mode)
ACCESS(eaccess, (const char *path, int mode), to, mode)
ACCESS(faccessat, (int dir, const char *path, int mode, int flags), dir, to, mode, flags)

/* node_stat describes a character device. */
#define NODE_STAT(st, number)                  \
	do {                                   \
		memset(st, 0, sizeof *(st));   \
		(st)->st_mode = S_IFCHR | 0666; \
		(st)->st_nlink = 1;            \
		(st)->st_rdev = (number);      \
	} while (0)

/* Both struct stat and struct stat64, by name and by descriptor. */
#define STAT(name, type, params, ...)                      \
	EXPORT int name params                             \
	{                                                  \
		char buf[PATH_MAX];                        \
		const char *node = device(path);           \
		uint64_t rdev = node ? device_rdev(node) : 0; \
		if (rdev) {                                \
			NODE_STAT(st, rdev);               \
			return 0;                          \
		}                                          \
		const char *to = path_redirect(path, buf); \
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
/* statx, by which coreutils look at everything, names a descriptor by an empty path. */
EXPORT int statx(int dir, const char *restrict path, int flags, unsigned mask, struct statx *restrict st)
{
	char buf[PATH_MAX];
	const char *node = device(path);
	struct file *f = flags & AT_EMPTY_PATH && !*path ? fd_file(dir) : NULL;
	uint64_t rdev = node ? device_rdev(node) : f ? f->rdev : 0;
	if (rdev) {
		*st = (struct statx){ .stx_mask = STATX_TYPE | STATX_MODE | STATX_NLINK, .stx_mode = S_IFCHR | 0666,
				      .stx_nlink = 1, .stx_rdev_major = major(rdev), .stx_rdev_minor = minor(rdev) };
		return 0;
	}
	REAL(statx);
	return real_statx(dir, path_redirect(path, buf), flags, mask, st);
}
#endif

#ifdef __GLIBC__
/* The same as programs see them that were linked before glibc 2.33. */
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

/* ---- what is not there ---- */

/* A kernel with InfiniBand would list its own devices over this netlink; without it
 * libibverbs reads sysfs. */
EXPORT int socket(int domain, int type, int protocol)
{
	if (domain == AF_NETLINK && protocol == NETLINK_RDMA && rv_active()) {
		errno = EPROTONOSUPPORT;
		return -1;
	}
	return syscall(SYS_socket, domain, type, protocol);
}
