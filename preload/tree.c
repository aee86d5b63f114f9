/* The directories of the daemon, which the environment names. */
#include "connection.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

const char *sysfs_dir(void) { return getenv("SYSFS_PATH"); }

const char *run_dir(void) { return getenv("ROCED_RUN_DIR"); }

bool preload_active(void) { return run_dir() && sysfs_dir(); }

bool path_below(const char *path, const char *prefix)
{
	size_t n = strlen(prefix);
	return !strncmp(path, prefix, n) && (path[n] == 0 || path[n] == '/');
}

bool path_lists_pci(const char *path, const char *sys)
{
	static const char bus[] = "/bus/pci/devices";
	if (!path_below(path, sys))
		return false;
	path += strlen(sys);
	size_t n = sizeof bus - 1;
	return !strncmp(path, bus, n) && !path[n + strspn(path + n, "/")];
}

bool read_file(const char *path, char *buf, size_t size)
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

uint64_t class_rdev(const char *class_device)
{
	char path[strlen(sysfs_dir()) + NAME_MAX], text[32];
	unsigned major, minor;
	snprintf(path, sizeof path, "%s/class/%s/dev", sysfs_dir(), class_device);
	return read_file(path, text, sizeof text) && sscanf(text, "%u:%u", &major, &minor) == 2 ? makedev(major, minor) : 0;
}

