/*
 * Shared memory: files of tmpfs and hugetlbfs, memfds and dma-bufs that the program has mapped
 * with MAP_SHARED. The daemon maps them, too, for each region. It gets a descriptor from the
 * program's mmap(), which the table below records, from /proc/self/fd, or from the file's path.
 * The kernel's device and inode numbers identify the file; the daemon compares them once more.
 *
 * A program may close a file after it has mapped it, or delete it. The library then keeps a
 * descriptor of its own until the memory is unmapped.
 */
#include "mr.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/falloc.h>

#ifndef F_GET_SEALS
#define F_GET_SEALS 1034
#endif
#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

enum { FILES = 64 };

/* Types of file systems (linux/magic.h). */
enum { TMPFS_MAGIC = 0x01021994, HUGETLBFS_MAGIC = 0x958458f6, DMA_BUF_MAGIC = 0x444d4142 };

/* A file that is mapped somewhere in [start, end), and a descriptor of it. */
static struct shared {
	_Atomic int fd; /* -1 marks a free entry */
	bool ours;      /* fd is private to the library */
	struct file_id id;
	uint64_t start, end;
} files[FILES] = { [0 ... FILES - 1] = { .fd = -1 } };

static atomic_bool used;  /* there was an entry */
static atomic_uint kept; /* entries that are ours */

static struct file_id id_of(const struct stat *st)
{
	return (struct file_id){ st->st_ino, major(st->st_dev), minor(st->st_dev) };
}

static bool same(const struct file_id *a, const struct file_id *b)
{
	return a->ino == b->ino && a->major == b->major && a->minor == b->minor;
}

/* is_file returns true if fd is a descriptor of a file with these rights. */
static bool is_file(int fd, const struct file_id *id, bool writable)
{
	struct stat st;
	int flags = syscall(SYS_fcntl, fd, F_GETFL);
	if (flags < 0 || flags & O_PATH || (flags & O_ACCMODE) == O_WRONLY || (writable && (flags & O_ACCMODE) != O_RDWR) ||
	    fstat(fd, &st) != 0)
		return false;
	struct file_id is = id_of(&st);
	return same(&is, id);
}

/* sharable returns true for a descriptor of a file whose memory the daemon maps. Only tmpfs and
 * hugetlbfs have seals. */
static bool sharable(int fd)
{
	struct statfs fs;
	return syscall(SYS_fcntl, fd, F_GET_SEALS) >= 0 || (fstatfs(fd, &fs) == 0 && fs.f_type == DMA_BUF_MAGIC);
}

/* ---- the table ---- */

static struct shared *entry_of(const struct file_id *id, bool writable)
{
	for (struct shared *s = files; s < files + FILES; s++)
		if (s->fd >= 0 && same(&s->id, id) && is_file(s->fd, id, writable))
			return s;
	return NULL;
}

/* drop frees an entry. The caller holds the lock. */
static void drop(struct shared *s)
{
	if (s->ours) {
		fd_private_close(s->fd);
		atomic_fetch_sub(&kept, 1);
	}
	s->ours = false;
	s->fd = -1;
}

/* remember adds a file to the table, unless it has no room. The caller holds the lock. */
static bool remember(int fd, bool ours, const struct file_id *id, uint64_t start, uint64_t end)
{
	static unsigned hand;
	struct shared *s = files;
	while (s < files + FILES && s->fd >= 0)
		s++;
	for (unsigned i = 0; i < FILES && s == files + FILES; i++) {
		struct shared *old = &files[hand++ % FILES];
		if (!old->ours) /* the program's descriptor is also in /proc/self/fd */
			s = old;
	}
	if (s == files + FILES)
		return false;
	s->ours = ours;
	s->id = *id;
	s->start = start;
	s->end = end;
	s->fd = fd;
	atomic_store(&used, true);
	if (ours)
		atomic_fetch_add(&kept, 1);
	return true;
}

void shared_mapped(int fd, uint64_t start, uint64_t length)
{
	KEEP_ERRNO;
	struct stat st;
	if (!preload_active() || !process_owns_memory() || fd_file(fd) || !sharable(fd) || fstat(fd, &st) != 0)
		return;
	struct file_id id = id_of(&st);
	mr_lock();
	if (!entry_of(&id, is_file(fd, &id, true)))
		remember(fd, false, &id, start, start + length);
	mr_unlock();
}

/* look_for stops at a part of a file. */
struct search {
	const struct file_id *id;
	struct vma found;
};

static bool look_for(const struct vma *v, void *arg)
{
	struct search *s = arg;
	if (v->kind == VMA_FILE && same(&v->file, s->id))
		s->found = *v;
	return s->found.end == 0;
}

/* still_mapped updates the place of a file; false if the program has unmapped all of it. */
static bool still_mapped(struct shared *s)
{
	struct search search = { .id = &s->id };
	if (!maps_walk(s->start, s->end, look_for, &search) ||
	    (search.found.end == 0 && !maps_walk(0, UINT64_MAX, look_for, &search)))
		return true;
	s->start = search.found.start;
	s->end = search.found.end;
	return s->end > 0;
}

/* keep replaces the descriptor in an entry by one of the library if the file is still mapped. */
static void keep(struct shared *s, int fd)
{
	KEEP_ERRNO;
	struct file_id id = s->id;
	int own = is_file(fd, &id, false) ? fd_private_dup(fd) : -1;
	mr_lock();
	if (s->fd == fd && !s->ours && same(&s->id, &id)) {
		s->ours = own >= 0 && still_mapped(s);
		s->fd = s->ours ? own : -1;
		if (s->ours) {
			atomic_fetch_add(&kept, 1);
			own = -1;
		}
	}
	mr_unlock();
	if (own >= 0)
		fd_private_close(own);
}

void shared_closing(unsigned first, unsigned last)
{
	if (!atomic_load_explicit(&used, memory_order_relaxed) || !process_owns_memory())
		return;
	for (struct shared *s = files; s < files + FILES; s++) {
		int fd = atomic_load_explicit(&s->fd, memory_order_relaxed);
		if (fd >= 0 && (unsigned)fd >= first && (unsigned)fd <= last && !s->ours)
			keep(s, fd);
	}
}

void shared_unmapped(uint64_t start, uint64_t length)
{
	if (atomic_load_explicit(&kept, memory_order_relaxed) == 0 || !process_owns_memory())
		return;
	KEEP_ERRNO;
	mr_lock();
	for (struct shared *s = files; s < files + FILES; s++)
		if (s->fd >= 0 && s->ours && s->start < start + length && start < s->end && !still_mapped(s))
			drop(s);
	mr_unlock();
}

/* ---- other descriptors ---- */

/* find_open returns a descriptor of the program, -1 if it has none. */
static int find_open(const struct file_id *id, bool writable)
{
	int found = -1;
	DIR *dir = opendir("/proc/self/fd");
	for (struct dirent *e; dir && found < 0 && (e = readdir(dir));) {
		int fd = atoi(e->d_name);
		if (e->d_name[0] != '.' && is_file(fd, id, writable))
			found = fd;
	}
	if (dir)
		closedir(dir);
	return found;
}

/* open_path opens the file by the path that it had when it was mapped. It returns a private
 * descriptor, or -1. The file may have been deleted, and another one have its name. */
static int open_path(const struct vma *v)
{
	char link[64], path[PATH_MAX];
	struct statfs fs;
	struct stat st;
	snprintf(link, sizeof link, "/proc/self/map_files/%llx-%llx", (unsigned long long)v->whole_start,
		 (unsigned long long)v->whole_end);
	ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
	if (n <= 0)
		return -1;
	path[n] = 0;
	if (statfs(path, &fs) != 0 || (fs.f_type != TMPFS_MAGIC && fs.f_type != HUGETLBFS_MAGIC) || stat(path, &st) != 0)
		return -1;
	struct file_id id = id_of(&st);
	if (!same(&id, &v->file))
		return -1;
	int mode = v->writable ? O_RDWR : O_RDONLY;
	return fd_private(syscall(SYS_openat, AT_FDCWD, path, mode | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

/* descriptor returns a descriptor of the file of v, -1 if there is none. The program may close it at any time. */
static int descriptor(const struct vma *v)
{
	mr_lock();
	struct shared *s = entry_of(&v->file, v->writable);
	int fd = s ? s->fd : -1;
	mr_unlock();
	if (fd >= 0)
		return fd;
	bool ours = false;
	fd = find_open(&v->file, v->writable);
	if (fd < 0) {
		fd = open_path(v);
		ours = fd >= 0;
	}
	if (fd < 0 || !sharable(fd)) {
		if (ours)
			fd_private_close(fd);
		return -1;
	}
	mr_lock();
	bool stored = remember(fd, ours, &v->file, v->whole_start, v->whole_end);
	mr_unlock();
	if (stored || !ours)
		return fd;
	fd_private_close(fd);
	return -1;
}

/* ---- registration ---- */

/* A range that must lie in one file. */
struct extent_of_file {
	uint64_t at, start;
	struct vma first;
	bool good;
};

static bool extend(const struct vma *v, void *arg)
{
	struct extent_of_file *x = arg;
	const struct vma *f = &x->first;
	if (x->at == x->start)
		x->first = *v;
	x->good = v->kind == VMA_FILE && v->start == x->at && same(&v->file, &f->file) && v->writable == f->writable &&
		  v->offset - f->offset == v->start - f->start;
	x->at = v->end;
	return x->good;
}

/* populate allocates the pages of a range, which then count as memory of this process. */
static void populate(const struct vma *v, uint64_t end, int fd)
{
	const uint64_t step = 16 << 20; /* a signal undoes the work of a call */
	int advice = v->writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
	if (syscall(SYS_madvise, v->start, end - v->start, advice) == 0 || errno != EINVAL)
		return;
	/* The kernel is older, or this is a dma-buf, which needs none. */
	for (uint64_t at = v->start, n; at < end; at += n) {
		n = end - at < step ? end - at : step;
		while (fallocate(fd, FALLOC_FL_KEEP_SIZE, v->offset + (at - v->start), n) != 0)
			if (errno != EINTR)
				return;
	}
}

bool shared_prepare(struct mr_source *s, uint64_t start, uint64_t length, bool write)
{
	uint64_t from = start & ~(MR_PAGE - 1), end = (start + length + MR_PAGE - 1) & ~(MR_PAGE - 1);
	struct extent_of_file x = { .at = from, .start = from };
	if (!maps_walk(from, end, extend, &x) || !x.good || x.at != end || (write && !x.first.writable))
		return false;
	int fd = descriptor(&x.first);
	if (fd < 0)
		return false;
	populate(&x.first, end, fd);
	s->kind = MR_FILE;
	s->fd = fd;
	s->place = (struct file_place){ x.first.offset + (start - from), x.first.file };
	return true;
}

bool shared_describe(struct mr_source *s, int fd, uint64_t offset)
{
	struct stat st;
	if (fstat(fd, &st) != 0)
		return false;
	*s = (struct mr_source){ .kind = MR_FILE, .fd = fd, .place = { offset, id_of(&st) } };
	return true;
}
