/* A machine has RDMA devices of its kernel: mlx5_0, mlx5_9. argv: the only device that this program is to find, or none
 * if it is to find those of the kernel in sysfs. */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <infiniband/verbs.h>

/* entries counts the entries of a folder, and those with a prefix. */
static int entries(const char *dir, const char *prefix, int *with)
{
	int n = 0;
	DIR *d = opendir(dir);
	CHECK(d != NULL);
	for (struct dirent *e; (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		n++;
		*with += !strncmp(e->d_name, prefix, strlen(prefix));
	}
	closedir(d);
	return n;
}

static void foreign(void)
{
	int n = 0;
	CHECK(entries("/sys/class/infiniband", "mlx5_", &n) == 2 && n == 2);
	n = 0;
	CHECK(entries("/dev/infiniband", "u", &n) == 3 && n == 3);
	CHECK(access("/sys/class/net/lo", F_OK) == 0 && access("/dev/null", F_OK) == 0);
}

static void only(const char *name)
{
	int n, with = 0;
	struct stat st;
	glob_t g = { 0 };
	struct ibv_device **list = ibv_get_device_list(&n);
	CHECK(list && n == 1 && !strcmp(ibv_get_device_name(list[0]), name));
	struct ibv_context *c = ibv_open_device(list[0]);
	CHECK(c && ibv_close_device(c) == 0);
	ibv_free_device_list(list);
	CHECK(entries("/sys/class/infiniband", name, &with) == 1 && with == 1);
	with = 0;
	CHECK(entries("/sys/class/infiniband_verbs", "uverbs0", &with) == 2 && with == 1); /* and abi_version */
	with = 0;
	CHECK(entries("/dev/infiniband", "uverbs0", &with) == 2 && with == 1); /* and rdma_cm */
	CHECK(glob("/sys/class/infiniband/*", 0, NULL, &g) == 0 && g.gl_pathc == 1);
	globfree(&g);
	FAILS(stat("/sys/class/infiniband/mlx5_9", &st), ENOENT);
	FAILS(access("/sys/class/infiniband_mad/umad0", F_OK), ENOENT);
	FAILS(open("/dev/infiniband/uverbs9", O_RDWR), ENOENT);
	FAILS(open("/dev/infiniband/umad0", O_RDWR), ENOENT);
	FAILS(access("/dev/infiniband/umad0", F_OK), ENOENT);
}

int main(int argc, char **argv)
{
	if (argc == 1)
		foreign();
	else
		only(argv[1]);
	return 0;
}
