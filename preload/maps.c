/* The address space, as /proc/self shows it (proc(5)). */
#include "maps.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A line reader that does not use the heap, and little of a stack. */
struct lines {
	int fd;
	size_t at, n;
	char buf[2048];
};

static bool lines_open(struct lines *l, const char *path)
{
	l->fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	l->at = l->n = 0;
	return l->fd >= 0;
}

/* lines_next returns the next line, NULL at the end. It truncates a line that exceeds the
 * buffer, which only a long path can cause. */
static char *lines_next(struct lines *l)
{
	for (;;) {
		char *line = l->buf + l->at, *end = memchr(line, '\n', l->n - l->at);
		if (end) {
			*end = 0;
			l->at = end + 1 - l->buf;
			return line;
		}
		l->n -= l->at;
		memmove(l->buf, line, l->n);
		l->at = 0;
		if (l->n == sizeof l->buf)
			l->n = sizeof l->buf / 2;
		ssize_t k = syscall(SYS_read, l->fd, l->buf + l->n, sizeof l->buf - l->n);
		if (k <= 0)
			return NULL;
		l->n += k;
	}
}

static void lines_close(struct lines *l)
{
	syscall(SYS_close, l->fd);
}

/* take_number reads a number and the character after it. */
static bool take_number(char **p, int base, char behind, uint64_t *v)
{
	char *end;
	*v = strtoull(*p, &end, base);
	if (end == *p || *end != behind)
		return false;
	*p = end + 1;
	return true;
}

/* The memfd of VMA_OURS. */
static struct {
	_Atomic uint64_t ino;
	_Atomic uint32_t major, minor;
} memfd;

void maps_set_memfd(unsigned major, unsigned minor, uint64_t ino)
{
	memfd.ino = 0;
	memfd.major = major;
	memfd.minor = minor;
	memfd.ino = ino;
}

#define HEAP "[heap]"

/* classify sets the kind of memory. Anonymous memory may have a name: [heap], or one from
 * prctl(PR_SET_VMA_ANON_NAME). The main thread's stack grows, and replaced pages could not,
 * so it is VMA_OTHER. */
static void classify(struct vma *v, const char *rights, const char *name)
{
	const struct file_id *f = &v->file;
	v->kind = VMA_OTHER;
	v->writable = rights[1] == 'w';
	if (!strcmp(rights, "rw-s") && f->ino && f->ino == memfd.ino && f->major == memfd.major && f->minor == memfd.minor)
		v->kind = VMA_OURS;
	else if (rights[0] == 'r' && rights[3] == 's' && f->ino)
		v->kind = VMA_FILE;
	else if (!strcmp(rights, "rw-p") && !f->ino &&
		 (!*name || !strcmp(name, HEAP) || !strncmp(name, "[anon:", 6)))
		v->kind = VMA_PLAIN;
	v->heap = !strcmp(name, HEAP);
}

/* parse_range reads the address range of a line of maps. */
static bool parse_range(char **p, struct vma *v)
{
	return take_number(p, 16, '-', &v->start) && take_number(p, 16, ' ', &v->end);
}

/* parse_vma reads a line such as
 *	7f0000000000-7f0000001000 rw-p 00000000 00:00 0    [stack]
 */
static bool parse_vma(char *p, struct vma *v)
{
	uint64_t major, minor;
	if (!parse_range(&p, v) || strlen(p) < 5)
		return false;
	char *rights = p;
	p[4] = 0;
	p += 5;
	if (!take_number(&p, 16, ' ', &v->offset) || !take_number(&p, 16, ':', &major) ||
	    !take_number(&p, 16, ' ', &minor))
		return false;
	v->file = (struct file_id){ strtoull(p, &p, 10), major, minor };
	while (*p == ' ')
		p++;
	classify(v, rights, p);
	return true;
}

/* ---- queries of single addresses ---- */

#ifndef PROCMAP_QUERY
/* An ioctl() on /proc/PID/maps, since Linux 6.11 (linux/fs.h). */
struct procmap_query {
	uint64_t size, query_flags, query_addr;
	uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset;
	uint64_t inode;
	uint32_t dev_major, dev_minor;
	uint32_t vma_name_size, build_id_size;
	uint64_t vma_name_addr, build_id_addr;
};
#define PROCMAP_QUERY _IOWR('f', 17, struct procmap_query)
#define PROCMAP_QUERY_VMA_READABLE 0x01
#define PROCMAP_QUERY_VMA_WRITABLE 0x02
#define PROCMAP_QUERY_VMA_EXECUTABLE 0x04
#define PROCMAP_QUERY_VMA_SHARED 0x08
#define PROCMAP_QUERY_COVERING_OR_NEXT_VMA 0x10
#endif

/* query fills v with the part at addr or the next one. It returns 1, 0 if there is none, or -1
 * if the kernel has no such query. */
static int query(int maps, uint64_t addr, struct vma *v)
{
	char name[64] = "";
	struct procmap_query q = {
		.size = sizeof q, .query_flags = PROCMAP_QUERY_COVERING_OR_NEXT_VMA, .query_addr = addr,
		.vma_name_size = sizeof name, .vma_name_addr = (uintptr_t)name,
	};
	if (syscall(SYS_ioctl, maps, PROCMAP_QUERY, &q) != 0) {
		/* Only the name of a file can be too long. */
		q.vma_name_size = q.vma_name_addr = 0;
		strcpy(name, "/");
		if (errno != ENAMETOOLONG || syscall(SYS_ioctl, maps, PROCMAP_QUERY, &q) != 0)
			return errno == ENOENT ? 0 : -1;
	}
	char rights[] = { q.vma_flags & PROCMAP_QUERY_VMA_READABLE ? 'r' : '-',
			  q.vma_flags & PROCMAP_QUERY_VMA_WRITABLE ? 'w' : '-',
			  q.vma_flags & PROCMAP_QUERY_VMA_EXECUTABLE ? 'x' : '-',
			  q.vma_flags & PROCMAP_QUERY_VMA_SHARED ? 's' : 'p', 0 };
	*v = (struct vma){ .start = q.vma_start, .end = q.vma_end, .offset = q.vma_offset,
			   .file = { q.inode, q.dev_major, q.dev_minor } };
	classify(v, rights, name);
	return 1;
}

/* cut reduces v to [start, end). */
static void cut(struct vma *v, uint64_t start, uint64_t end)
{
	v->whole_start = v->start;
	v->whole_end = v->end;
	if (v->start < start) {
		v->offset += start - v->start;
		v->start = start;
	}
	if (v->end > end)
		v->end = end;
}

typedef bool walk_fn(const struct vma *v, void *arg);

/* walk_by_query implements maps_walk with queries; false if the kernel has none. */
static bool walk_by_query(int maps, uint64_t start, uint64_t end, walk_fn *f, void *arg)
{
	struct vma v;
	int got;
	for (uint64_t at = start; (got = query(maps, at, &v)) > 0 && v.start < end; at = v.end) {
		struct vma part = v;
		cut(&part, start, end);
		if (!f(&part, arg))
			break;
	}
	return got >= 0;
}

/* walk_by_reading implements maps_walk by reading the file from its start. */
static void walk_by_reading(struct lines *l, uint64_t start, uint64_t end, walk_fn *f, void *arg)
{
	struct vma v;
	for (char *line; (line = lines_next(l));) {
		if (!parse_vma(line, &v) || v.end <= start)
			continue;
		if (v.start >= end)
			break;
		cut(&v, start, end);
		if (!f(&v, arg))
			break;
	}
}

/* A descriptor of maps for queries, and the process that it belongs to. */
static struct {
	_Atomic int fd;
	pid_t process;
} query_file = { .fd = -1 };

void maps_keep(void)
{
	pid_t self = syscall(SYS_getpid);
	if (query_file.fd >= 0 && query_file.process == self)
		return;
	int fd = fd_private(syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC));
	if (query_file.fd >= 0)
		fd_private_close(query_file.fd);
	query_file.process = self;
	query_file.fd = fd;
}

bool maps_walk(uint64_t start, uint64_t end, walk_fn *f, void *arg)
{
	struct lines l;
	int fd = query_file.fd;
	/* Queries fail on older kernels, and if the program closed the descriptor with a bare
	 * system call. */
	if (fd >= 0 && query_file.process == syscall(SYS_getpid) && walk_by_query(fd, start, end, f, arg))
		return true;
	if (!lines_open(&l, "/proc/self/maps"))
		return false;
	if (!walk_by_query(l.fd, start, end, f, arg))
		walk_by_reading(&l, start, end, f, arg);
	lines_close(&l);
	return true;
}

int maps_threads(void)
{
	struct stat st;
	/* The link count of a directory is the number of its subdirectories plus 2. */
	return fstatat(AT_FDCWD, "/proc/self/task", &st, 0) == 0 && st.st_nlink > 2 ? st.st_nlink - 2 : 0;
}

bool maps_locked(uint64_t start, uint64_t end)
{
	/* msync(2) fails with EBUSY for locked memory, and has no effect on anonymous memory. */
	return syscall(SYS_msync, start, end - start, MS_INVALIDATE) != 0;
}
