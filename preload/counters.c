/* Counters of devices in sysfs, and the list of PCI devices: the daemon updates them before a
 * program reads them. */
#include "interpose.h"

#include <fcntl.h>
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
	static const char folder[] = "/infiniband/";
	const char *name = path_below(path, sysfs_dir()) ? strstr(path + strlen(sysfs_dir()), folder) : NULL;
	if (!name || !strstr(name, "counters/"))
		return false;
	name += sizeof folder - 1;
	size_t len = strcspn(name, "/");
	if (len >= size)
		return false;
	memcpy(dev, name, len);
	dev[len] = 0;
	return true;
}

/* verbs_socket finds the name of a device's socket; any device's if dev is empty. */
static bool verbs_socket(const char *dev, char *name, size_t size)
{
	char path[strlen(sysfs_dir()) + NAME_MAX], ibdev[NAME_MAX];
	for (int i = 0;; i++) {
		snprintf(name, size, "uverbs%d", i);
		snprintf(path, sizeof path, "%s/class/infiniband_verbs/%s/ibdev", sysfs_dir(), name);
		if (!read_file(path, ibdev, sizeof ibdev)) {
			if (i > MAX_DEVICES)
				return false;
			continue;
		}
		ibdev[strcspn(ibdev, "\n")] = 0;
		if (!*dev || !strcmp(ibdev, dev))
			return true;
	}
}

bool counters_refresh(const char *path)
{
	char dev[NAME_MAX] = "", name[NAME_MAX];
	KEEP_ERRNO;
	if (!path || !preload_active())
		return false;
	bool counter = counters_device(path, dev, sizeof dev);
	if ((!counter && !path_lists_pci(path, sysfs_dir())) || !verbs_socket(dev, name, sizeof name))
		return false;
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
	return counter;
}

/* An open counter. */
struct counter {
	struct file file;
	char path[];
};

static void counter_closed(struct file *f) { free(f); }

void counters_opened(int fd, const char *path)
{
	KEEP_ERRNO;
	if (fd < 0 || !process_owns_memory())
		return;
	size_t n = strlen(path) + 1;
	struct counter *c = malloc(sizeof *c + n);
	if (!c)
		return;
	c->file = (struct file){ .kind = FD_COUNTER, .release = counter_closed };
	memcpy(c->path, path, n);
	if (fd_set_file(fd, &c->file) < 0)
		free(c);
}

void counters_reread(struct file *f, int fd)
{
	KEEP_ERRNO;
	if (syscall(SYS_lseek, fd, 0L, SEEK_CUR) != 0)
		return; /* in the middle of the text */
	file_hold(f); /* the program may close it meanwhile */
	counters_refresh(((struct counter *)f)->path);
	int fresh = syscall(SYS_openat, AT_FDCWD, ((struct counter *)f)->path, O_RDONLY | O_CLOEXEC);
	if (fresh >= 0) {
		int flags = syscall(SYS_fcntl, fd, F_GETFD);
		if (flags >= 0 && fd_file(fd) == f)
			syscall(SYS_dup3, fresh, fd, flags & FD_CLOEXEC ? O_CLOEXEC : 0);
		syscall(SYS_close, fresh);
	}
	file_put(f);
}
