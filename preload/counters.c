/* Counters of devices in sysfs: the daemon updates them before a program reads them. */
#include "interpose.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

enum { MAX_DEVICES = 256 };

/* counters_device copies the name of the device that owns a counter; false if path is not a
 * counter. */
static bool counters_device(const char *path, char *dev, size_t size)
{
	char root[PATH_MAX];
	int n = snprintf(root, sizeof root, "%s/class/infiniband/", sysfs_dir());
	if (n >= (int)sizeof root || strncmp(path, root, n) || !strstr(path + n, "counters/"))
		return false;
	size_t len = strcspn(path + n, "/");
	if (len >= size)
		return false;
	memcpy(dev, path + n, len);
	dev[len] = 0;
	return true;
}

/* verbs_socket finds the name of a device's socket. */
static bool verbs_socket(const char *dev, char *name, size_t size)
{
	char path[PATH_MAX], ibdev[NAME_MAX];
	for (int i = 0;; i++) {
		snprintf(name, size, "uverbs%d", i);
		snprintf(path, sizeof path, "%s/class/infiniband_verbs/%s/ibdev", sysfs_dir(), name);
		if (!read_file(path, ibdev, sizeof ibdev)) {
			if (i > MAX_DEVICES)
				return false;
			continue;
		}
		ibdev[strcspn(ibdev, "\n")] = 0;
		if (!strcmp(ibdev, dev))
			return true;
	}
}

void counters_refresh(const char *path)
{
	char dev[NAME_MAX], name[NAME_MAX];
	KEEP_ERRNO;
	if (!path || !preload_active() || !counters_device(path, dev, sizeof dev) || !verbs_socket(dev, name, sizeof name))
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
