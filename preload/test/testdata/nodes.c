/* /dev/infiniband can be listed. */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

int main(void)
{
	struct stat st;
	struct dirent *e;
	int uverbs = 0, cm = 0;
	CHECK(stat("/dev/infiniband", &st) == 0 && S_ISDIR(st.st_mode));
	CHECK(access("/dev/infiniband", F_OK) == 0 && access("/dev/infiniband/none", F_OK) != 0);
	DIR *d = opendir("/dev/infiniband");
	CHECK(d != NULL);
	while ((e = readdir(d))) {
		uverbs += !strcmp(e->d_name, "uverbs0");
		cm += !strcmp(e->d_name, "rdma_cm");
	}
	closedir(d);
	CHECK(uverbs == 1 && cm == 1);
	glob_t g = { 0 };
	CHECK(glob("/dev/infiniband/uverbs*", 0, NULL, &g) == 0 && g.gl_pathc >= 1);
	CHECK(!strcmp(g.gl_pathv[0], "/dev/infiniband/uverbs0"));
	CHECK(stat(g.gl_pathv[0], &st) == 0 && S_ISCHR(st.st_mode));
	globfree(&g);
	return 0;
}
