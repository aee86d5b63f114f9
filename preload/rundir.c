/*
 * Which daemon the library trusts. Programs pass their memory to the daemon behind the
 * sockets of the run directory, so a directory that another user prepared would give that
 * user the memory. Package internal/base/rundir has the same rule in Go.
 *
 * ROCED_RUN_DIR names the directory, so it is trusted unless it is the default directory of
 * this user below /tmp (roced-UID), where any user can create it first. That one must belong
 * to this user or to root, must not be writable for others and must not be a link. In all
 * directories the daemon must belong to the owner of the directory or to root.
 */
#include "connection.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The UID of users that this user namespace does not map (user_namespaces(7)). */
enum { OVERFLOW_UID = 65534 };

/* is_default returns true if the last element of dir is roced-UID. */
static bool is_default(const char *dir)
{
	char name[32];
	size_t end = strlen(dir), n = snprintf(name, sizeof name, "/roced-%u", (unsigned)geteuid());
	while (end > 1 && dir[end - 1] == '/')
		end--;
	return end >= n && !memcmp(dir + end - n, name, n);
}

/* stat_dir fills st without opening the directory for reading; -1 with errno set. */
static int stat_dir(const char *dir, bool follow, struct stat *st)
{
	char path[PATH_MAX];
	size_t n = strlen(dir);
	while (n > 1 && dir[n - 1] == '/') /* behind a slash, O_NOFOLLOW follows links */
		n--;
	if (n >= sizeof path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(path, dir, n);
	path[n] = 0;
	int fd = syscall(SYS_openat, AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW));
	if (fd < 0)
		return -1;
	int r = fstat(fd, st);
	syscall(SYS_close, fd);
	return r;
}

static bool refuse(void)
{
	errno = EACCES;
	return false;
}

bool rundir_trusted(void)
{
	struct stat st;
	const char *dir = run_dir();
	if (!is_default(dir))
		return true;
	if (stat_dir(dir, false, &st) != 0) {
		if (errno != ENOTDIR && errno != ELOOP)
			return true; /* connect() fails, too */
		advise("roced: run directory %s: not a directory; "
		       "it must be a directory that belongs to you or root, not writable by others", dir);
		return refuse();
	}
	if ((st.st_uid != geteuid() && st.st_uid != 0) || st.st_mode & (S_IWGRP | S_IWOTH)) {
		advise("roced: run directory %s: owned by uid %u with mode %#o; "
		       "it must belong to you or root and not be writable by others",
		       dir, (unsigned)st.st_uid, (unsigned)st.st_mode & 07777);
		return refuse();
	}
	return true;
}

bool rundir_peer_trusted(int fd)
{
	struct ucred peer;
	struct stat st;
	socklen_t n = sizeof peer;
	const char *dir = run_dir();
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) != 0 || stat_dir(dir, !is_default(dir), &st) != 0)
		return refuse();
	/* User namespaces may hide the owner, the daemon's user, or both. */
	bool hidden = !is_default(dir) && (peer.uid == OVERFLOW_UID || st.st_uid == OVERFLOW_UID);
	if (peer.uid == st.st_uid || peer.uid == 0 || hidden)
		return true;
	advise("roced: run directory %s: owned by uid %u, its daemon by uid %u; "
	       "the daemon must belong to the owner of its run directory",
	       dir, (unsigned)st.st_uid, (unsigned)peer.uid);
	return refuse();
}
