/* Without a daemon, the library changes nothing for a program except the redirected paths. argv: a
 * scratch directory. */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/netlink.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

static void files(void)
{
	char text[16];
	struct stat st;
	umask(0);
	int fd = open("file", O_CREAT | O_EXCL | O_RDWR, 0640);
	CHECK(fd >= 0 && write(fd, "hello", 5) == 5);
	CHECK(fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0777) == 0640 && st.st_size == 5);
	int d = dup(fd), d2 = dup2(fd, 100), d3 = fcntl(fd, F_DUPFD_CLOEXEC, 200);
	CHECK(d >= 0 && d2 == 100 && d3 == 200 && fcntl(d3, F_GETFD) == FD_CLOEXEC);
	CHECK(dup2(fd, fd) == fd);
	FAILS(dup2(300, 300), EBADF);
	CHECK(lseek(d, 0, SEEK_SET) == 0 && read(d2, text, sizeof text) == 5 && !memcmp(text, "hello", 5));
	char *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED && !memcmp(p, "hello", 5) && munmap(p, 4096) == 0);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, 300, 0) == MAP_FAILED && errno == EBADF);
	CHECK(close(d) == 0 && close(d2) == 0 && close(d3) == 0 && close(fd) == 0);
	FAILS(close(fd), EBADF);
	FAILS(open("file", O_CREAT | O_EXCL | O_RDWR, 0640), EEXIST);
	FAILS(open("missing", O_RDONLY), ENOENT);
	int n = 0, pipes[2];
	CHECK(pipe(pipes) == 0 && write(pipes[1], "abc", 3) == 3 && ioctl(pipes[0], FIONREAD, &n) == 0 && n == 3);
}

/* Many descriptors: the library's table must grow. */
static void many(void)
{
	struct rlimit l = { 4000, 4000 };
	if (setrlimit(RLIMIT_NOFILE, &l) < 0)
		return;
	int fd = open("file", O_RDONLY);
	CHECK(fcntl(fd, F_DUPFD, 3900) == 3900 && close(3900) == 0 && close(fd) == 0);
}

static void device(void)
{
	struct stat st;
	FAILS(open("/dev/infiniband/uverbs7", O_RDWR), ENOENT);
	FAILS(open("/dev/infiniband/rdma_cm", O_RDWR), ENOENT);
	FAILS(access("/dev/infiniband/uverbs7", R_OK), ENOENT);
	FAILS(stat("/dev/infiniband/uverbs7", &st), ENOENT);
	/* The tree has a uverbs0, but no daemon serves it. */
	CHECK(stat("/dev/infiniband/uverbs0", &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(231, 192));
	CHECK(access("/dev/infiniband/uverbs0", R_OK | W_OK) == 0);
	FAILS(open("/dev/infiniband/uverbs0", O_RDWR), ENODEV);
}

static void sysfs(void)
{
	char text[32] = "", path[PATH_MAX];
	struct stat st;
	FILE *f = fopen("/sys/class/infiniband_verbs/uverbs0/ibdev", "r");
	CHECK(f && fgets(text, sizeof text, f) && !strcmp(text, "rxe_t\n") && fclose(f) == 0);
	int fd = open("/sys/class/infiniband_verbs/abi_version", O_RDONLY);
	CHECK(fd >= 0 && read(fd, text, sizeof text) == 2 && text[0] == '6' && close(fd) == 0);
	CHECK(stat("/sys/class/infiniband_verbs/uverbs0", &st) == 0 && S_ISDIR(st.st_mode));
	CHECK(lstat("/sys/class/infiniband_verbs/abi_version", &st) == 0 && S_ISREG(st.st_mode));
	CHECK(access("/sys/class/infiniband_verbs/uverbs0/dev", R_OK) == 0);
	CHECK(realpath("/sys/class/infiniband_verbs", path) && !strncmp(path, getenv("SYSFS_PATH"), 4));
	DIR *d = opendir("/sys/class/infiniband_verbs");
	CHECK(d != NULL);
	int found = 0;
	for (struct dirent *e; (e = readdir(d));)
		found += !strcmp(e->d_name, "uverbs0");
	CHECK(found == 1 && closedir(d) == 0);
	/* A path that only shares the prefix is not redirected. */
	FAILS(stat("/sys/class/infiniband_verbs_not", &st), ENOENT);
	CHECK(stat("/sys/class/net", &st) == 0);
}

static void sockets(void)
{
	FAILS(socket(AF_NETLINK, SOCK_RAW, NETLINK_RDMA), EPROTONOSUPPORT);
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	CHECK(fd >= 0 && close(fd) == 0);
}

static void children(void)
{
	int status;
	pid_t pid = fork();
	if (pid == 0)
		_exit(open("file", O_RDONLY) >= 0 ? 7 : 1);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2 && chdir(argv[1]) == 0);
	files();
	many();
	device();
	sysfs();
	sockets();
	children();
	return 0;
}
