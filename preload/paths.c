/*
 * Paths of devices: opening a device node connects to the daemon. Paths below
 * /sys/class/infiniband and its kin lead to the daemon's tree (SYSFS_PATH), as do those of the
 * NICs' PCI devices, which have a domain of their own, and the list of all PCI devices. So does
 * /dev/infiniband, which has a placeholder for each device node there.
 */
#include "interpose.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

#define DEV "/dev/infiniband"

/* The PCI devices of NICs (pci.go in internal/daemon/sysfs), in the tree and on the bus. */
#define PCI "/devices/pci0ced:00"
#define ON_BUS "/sys/bus/pci/devices/0ced:"

const char *path_device(const char *path)
{
	if (!path || !strstr(path, DEV "/") || !preload_active())
		return NULL;
	size_t n = strlen(sysfs_dir());
	if (!strncmp(path, sysfs_dir(), n)) /* the placeholder */
		path += n;
	if (!path_below(path, DEV))
		return NULL;
	const char *name = path + sizeof DEV;
	return !strncmp(name, "uverbs", 6) || !strcmp(name, "rdma_cm") ? name : NULL;
}

static bool is_sysfs(const char *path)
{
	static const char *const redirected[] = { "/sys/class/infiniband", "/sys/class/infiniband_verbs",
					    "/sys/class/infiniband_cm", "/sys/class/infiniband_mad",
					    "/sys/class/misc/rdma_cm", "/sys" PCI };
	if (!strncmp(path, ON_BUS, sizeof ON_BUS - 1) || path_lists_pci(path, "/sys"))
		return true;
	for (size_t i = 0; i < sizeof redirected / sizeof *redirected; i++)
		if (path_below(path, redirected[i]))
			return true;
	return false;
}

/* in_tree returns the part of path behind sysfs_dir() in the daemon's tree, NULL if the tree does not have it. */
static const char *in_tree(const char *path)
{
	return path_below(path, DEV) ? path : is_sysfs(path) ? path + 4 : NULL;
}

size_t path_room(const char *path)
{
	if (!path || (strncmp(path, "/sys/", 5) && strncmp(path, DEV, sizeof DEV - 1)) || !preload_active() || !in_tree(path))
		return 0;
	size_t room = strlen(sysfs_dir()) + strlen(in_tree(path)) + 1;
	return room <= PATH_MAX ? room : 0;
}

const char *path_redirect(const char *path, char *buf, size_t room)
{
	snprintf(buf, room, "%s%s", sysfs_dir(), in_tree(path));
	return buf;
}

char *path_shown(char *resolved)
{
	char *pci = resolved ? strstr(resolved, PCI) : NULL;
	if (pci && pci - resolved >= 4) {
		memcpy(resolved, "/sys", 4);
		memmove(resolved + 4, pci, strlen(pci) + 1);
	}
	return resolved;
}

uint64_t device_rdev(const char *name)
{
	char class_device[NAME_MAX];
	bool cm = !strcmp(name, "rdma_cm");
	snprintf(class_device, sizeof class_device, "%s/%s", cm ? "misc" : "infiniband_verbs", name);
	return class_rdev(class_device);
}

/* ---- no daemon ---- */

/* no_answer explains why a device of the tree cannot be opened. */
static void no_answer(const char *name)
{
	if (errno == ENODEV)
		advise("roced: no daemon answers at %s/%s: is roced running with this run directory (ROCED_RUN_DIR)? "
		       "Start it with \"rocectl up\"; \"rocectl env\" prints the variables that programs need",
		       run_dir(), name);
}

/* open_device connects to the daemon. A device that the tree lacks does not exist. */
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

/* ---- opening ---- */

static int do_open(int dir, const char *path, int flags, mode_t mode)
{
	const char *name = path_device(path);
	int was = errno;
	if (name)
		return keep_errno(was, open_device(name, flags));
	REDIRECT(to, path);
	bool counter = counters_refresh(to);
	REAL(openat);
	int fd = real_openat(dir, to, flags, mode);
	if (counter)
		counters_opened(fd, to);
	return fd;
}

static mode_t mode_of(int flags, va_list v)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(v, mode_t) : 0;
}

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

/* Programs compiled with _FORTIFY_SOURCE call these. */
EXPORT int __open_2(const char *path, int flags) { return do_open(AT_FDCWD, path, flags, 0); }
EXPORT int __open64_2(const char *path, int flags) { return do_open(AT_FDCWD, path, flags, 0); }
EXPORT int __openat_2(int dir, const char *path, int flags) { return do_open(dir, path, flags, 0); }
EXPORT int __openat64_2(int dir, const char *path, int flags) { return do_open(dir, path, flags, 0); }
