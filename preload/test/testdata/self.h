/* The descriptors and mappings of a process, from /proc. */
#include "check.h"

#include <dirent.h>

/* open_fds counts the descriptors of a process. */
static inline int open_fds(const char *pid)
{
	char path[64];
	int n = 0;
	snprintf(path, sizeof path, "/proc/%s/fd", pid);
	DIR *d = opendir(path);
	CHECK(d != NULL);
	while (readdir(d))
		n++;
	CHECK(closedir(d) == 0);
	return n - 2 - !strcmp(pid, "self"); /* ".", ".." and the descriptor of this directory */
}

/* mappings counts the mappings of a process. */
static inline int mappings(const char *pid)
{
	char path[64], line[8192];
	int n = 0;
	snprintf(path, sizeof path, "/proc/%s/maps", pid);
	FILE *f = fopen(path, "r");
	CHECK(f != NULL);
	while (fgets(line, sizeof line, f))
		n++;
	CHECK(fclose(f) == 0);
	return n;
}
