/* Memory of files that programs share: the daemon maps it, whatever has become of the descriptor. argv[1] is the PID
 * of the daemon, 0 if this program may not look at its mappings. */
#define _GNU_SOURCE
#include "mr.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

enum { PAGE = 4096, SIZE = 64 * PAGE, HUGE = 2 << 20 };

static struct lab lab;
static char *scratch;
static struct ibv_mr *scratch_mr;
static int daemon_pid;

/* mapped returns true if the daemon maps a file so many times. */
static int mapped(const struct stat *st, int times)
{
	char path[64], line[4096], want[64];
	int n = 0;
	if (!daemon_pid || st->st_ino == 0) /* System V */
		return 1;
	snprintf(path, sizeof path, "/proc/%d/maps", daemon_pid);
	snprintf(want, sizeof want, " %02x:%02x %lu ", major(st->st_dev), minor(st->st_dev), (unsigned long)st->st_ino);
	FILE *f = fopen(path, "r");
	CHECK(f != NULL);
	while (fgets(line, sizeof line, f))
		n += strstr(line, want) != NULL;
	fclose(f);
	return n == times;
}

/* descriptors returns how many descriptors of a file this process has. */
static int descriptors(const struct stat *st)
{
	int n = 0;
	struct stat is;
	for (int fd = 0; fd < 1024; fd++)
		n += fstat(fd, &is) == 0 && is.st_ino == st->st_ino && is.st_dev == st->st_dev;
	return n;
}

/* A file and its memory. */
struct file {
	const char *what;
	int fd;
	char *p;
	size_t n;
	struct stat st;
};

static struct file made(const char *what, int fd, size_t n)
{
	struct file f = { .what = what, .fd = fd, .n = n };
	CHECK(fd >= 0 && ftruncate(fd, n) == 0 && fstat(fd, &f.st) == 0);
	return f;
}

static struct file memory(const char *what)
{
	return made(what, memfd_create("shared", MFD_CLOEXEC | MFD_ALLOW_SEALING), SIZE);
}

static const char *const name = "/dev/shm/roced-test-shared";

static struct file named(const char *what)
{
	unlink(name);
	return made(what, open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600), SIZE);
}

static void map(struct file *f, int prot)
{
	f->p = mmap(NULL, f->n, prot, MAP_SHARED, f->fd, 0);
	CHECK(f->p != MAP_FAILED);
}

/* gone ends the mapping, after which nobody holds the file. */
static void gone(struct file *f, int open)
{
	CHECK(munmap(f->p, f->n) == 0);
	CHECK(descriptors(&f->st) == open && mapped(&f->st, 0));
	if (open)
		CHECK(close(f->fd) == 0);
}

/* use registers a part of the file and moves data. The daemon maps it so many times. */
static void use(struct file *f, size_t at, size_t n, int times)
{
	printf("%s: %zu bytes at %zu\n", f->what, n, at);
	fill(f->p, f->n, 9);
	struct ibv_mr *mr = reg(&lab, f->p + at, n);
	CHECK(filled(f->p, f->n, 9));
	CHECK(mapped(&f->st, times));
	exchange(&lab, mr, f->p + at, scratch_mr, scratch, n, 1);
	exchange(&lab, scratch_mr, scratch, mr, f->p + at, n, 5);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(mapped(&f->st, 0));
}

static void kinds(void)
{
	struct file f = memory("memfd");
	map(&f, PROT_READ | PROT_WRITE);
	use(&f, 0, SIZE, 1);
	use(&f, 5000, 20001, 1);
	gone(&f, 1);

	f = memory("memfd, closed");
	map(&f, PROT_READ | PROT_WRITE);
	close(f.fd);
	use(&f, 100, PAGE, 1);
	use(&f, 0, SIZE, 1);
	CHECK(descriptors(&f.st) == 1); /* the library's */
	gone(&f, 0);

	f = memory("memfd, replaced by another file");
	map(&f, PROT_READ | PROT_WRITE);
	CHECK(dup2(0, f.fd) == f.fd);
	use(&f, 0, SIZE, 1);
	close(f.fd);
	gone(&f, 0);

	f = memory("memfd, closed with others");
	map(&f, PROT_READ | PROT_WRITE);
	CHECK(close_range(f.fd, f.fd + 1, 0) == 0);
	use(&f, 0, SIZE, 1);
	gone(&f, 0);

	f = named("tmpfs");
	map(&f, PROT_READ | PROT_WRITE);
	use(&f, 0, SIZE, 1);
	gone(&f, 1);

	f = named("tmpfs, closed and deleted");
	map(&f, PROT_READ | PROT_WRITE);
	close(f.fd);
	unlink(name);
	use(&f, 0, SIZE, 1);
	gone(&f, 0);
}

/* unseen maps files without the C library. */
static void unseen(void)
{
	struct file f = named("tmpfs, found by its descriptor");
	f.p = (char *)syscall(SYS_mmap, NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, f.fd, 0);
	use(&f, 0, SIZE, 1);
	gone(&f, 1);

	f = named("tmpfs, found by its path");
	f.p = (char *)syscall(SYS_mmap, NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, f.fd, 0);
	syscall(SYS_close, f.fd);
	use(&f, 0, SIZE, 1);
	gone(&f, 0);

	f = named("tmpfs, not to be found");
	f.p = (char *)syscall(SYS_mmap, NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, f.fd, 0);
	syscall(SYS_close, f.fd);
	struct file other = named("another file of this name");
	use(&f, 0, SIZE, 0);
	gone(&f, 0);
	close(other.fd);
	unlink(name);
}

/* distant has memory that the daemon does not map. */
static void distant(void)
{
	char path[] = "/tmp/sharedXXXXXX";
	struct file f = made("file on a disk", mkstemp(path), SIZE);
	unlink(path);
	map(&f, PROT_READ | PROT_WRITE);
	use(&f, 0, SIZE, 0);
	gone(&f, 1);

	f = memory("private mapping");
	CHECK((f.p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, f.fd, 0)) != MAP_FAILED);
	use(&f, 0, SIZE, 0);
	gone(&f, 1);

	f = memory("two files");
	struct file g = memory("");
	CHECK((f.p = mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, f.fd, 0)) != MAP_FAILED);
	CHECK(mmap(f.p + SIZE, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, g.fd, 0) == f.p + SIZE);
	f.n = 2 * SIZE;
	use(&f, 0, 2 * SIZE, 0);
	gone(&f, 1);
	close(g.fd);

	int id = shmget(IPC_PRIVATE, SIZE, 0600);
	struct file s = { .what = "System V", .n = SIZE };
	CHECK(id >= 0 && (s.p = shmat(id, NULL, 0)) != (void *)-1);
	use(&s, 0, SIZE, 0);
	CHECK(shmdt(s.p) == 0 && shmctl(id, IPC_RMID, NULL) == 0);
}

static void seals(void)
{
	static const int sets[] = { F_SEAL_SHRINK | F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK | F_SEAL_SEAL, F_SEAL_GROW };
	for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
		struct file f = memory("memfd with seals");
		CHECK(fcntl(f.fd, F_ADD_SEALS, sets[i]) == 0);
		map(&f, PROT_READ | PROT_WRITE);
		use(&f, 0, SIZE, 1);
		CHECK(fcntl(f.fd, F_GET_SEALS) == sets[i]);
		gone(&f, 1);
	}
	struct file f = memory("memfd, not to be written any more");
	map(&f, PROT_READ | PROT_WRITE);
	CHECK(fcntl(f.fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0);
	use(&f, 0, SIZE, 0);
	gone(&f, 1);
}

/* readonly has memory that the program can only read. */
static void readonly(void)
{
	struct file f = named("tmpfs, read-only descriptor");
	char text[SIZE];
	fill(text, SIZE, 3);
	CHECK(write(f.fd, text, SIZE) == SIZE && close(f.fd) == 0);
	CHECK((f.fd = open(name, O_RDONLY | O_CLOEXEC)) >= 0 && unlink(name) == 0);
	map(&f, PROT_READ);
	for (int closed = 0; closed < 2; closed++) {
		FAILS(ibv_reg_mr(lab.loop.pd, f.p, SIZE, ALL_ACCESS) ? 0 : -1, EFAULT);
		struct ibv_mr *mr = ibv_reg_mr(lab.loop.pd, f.p, SIZE, IBV_ACCESS_REMOTE_READ);
		CHECK(mr != NULL && mapped(&f.st, 1));
		CHECK(rdma(&lab, IBV_WR_RDMA_READ, scratch_mr, scratch, SIZE, mr, f.p) == IBV_WC_SUCCESS);
		CHECK(filled(scratch, SIZE, 3));
		CHECK(denied(rdma(&lab, IBV_WR_RDMA_WRITE, scratch_mr, scratch, 8, mr, f.p)));
		lab_renew(&lab);
		CHECK(ibv_dereg_mr(mr) == 0);
		if (!closed)
			close(f.fd);
	}
	gone(&f, 0);

	/* A descriptor may permit more than the mapping. */
	f = memory("memfd, read-only mapping");
	map(&f, PROT_READ);
	FAILS(ibv_reg_mr(lab.loop.pd, f.p, SIZE, ALL_ACCESS) ? 0 : -1, EFAULT);
	gone(&f, 1);
}

/* sparse registers memory without pages, which the registration allocates. */
static void sparse(void)
{
	struct file f = memory("sparse memfd");
	map(&f, PROT_READ | PROT_WRITE);
	struct ibv_mr *mr = reg(&lab, f.p + 3 * PAGE, SIZE / 2);
	CHECK(fstat(f.fd, &f.st) == 0 && f.st.st_blocks * 512 == SIZE / 2);
	exchange(&lab, mr, f.p + 3 * PAGE, scratch_mr, scratch, SIZE / 2, 1);
	CHECK(ibv_dereg_mr(mr) == 0);
	gone(&f, 1);
}

/* lost frees pages of regions, which the NIC then cannot access. */
static void lost(void)
{
	for (int truncate = 0; truncate < 2; truncate++) {
		struct file f = memory("memfd with lost pages");
		map(&f, PROT_READ | PROT_WRITE);
		fill(f.p, SIZE, 1);
		struct ibv_mr *mr = reg(&lab, f.p, SIZE);
		size_t half = SIZE / 2;
		CHECK(truncate ? ftruncate(f.fd, half) == 0 :
				 fallocate(f.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, half, half) == 0);
		CHECK(denied(rdma(&lab, IBV_WR_RDMA_WRITE, scratch_mr, scratch, 2 * PAGE, mr, f.p + half - PAGE)));
		lab_renew(&lab);
		CHECK(denied(rdma(&lab, IBV_WR_RDMA_READ, scratch_mr, scratch, 2 * PAGE, mr, f.p + half - PAGE)));
		lab_renew(&lab);
		CHECK(rdma(&lab, IBV_WR_RDMA_WRITE, mr, f.p + half, PAGE, scratch_mr, scratch) == IBV_WC_LOC_PROT_ERR);
		lab_renew(&lab);
		CHECK(rdma(&lab, IBV_WR_RDMA_READ, mr, f.p, half, scratch_mr, scratch) == IBV_WC_SUCCESS);
		CHECK(ftruncate(f.fd, SIZE) == 0);
		memset(f.p + half, 4, half);
		CHECK(rdma(&lab, IBV_WR_RDMA_READ, mr, f.p, SIZE, scratch_mr, scratch) == IBV_WC_SUCCESS);
		CHECK(ibv_dereg_mr(mr) == 0);
		gone(&f, 1);
	}
}

static void huge(void)
{
	struct file f = made("2 MiB pages", memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB), 2 * HUGE);
	f.p = mmap(NULL, f.n, PROT_READ | PROT_WRITE, MAP_SHARED, f.fd, 0);
	CHECK(f.p != MAP_FAILED);
	use(&f, 0, 2 * HUGE, 1);
	use(&f, HUGE - 5000, 10000, 1);
	struct ibv_mr *mr = reg(&lab, f.p, 2 * HUGE);
	CHECK(fallocate(f.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, HUGE, HUGE) == 0);
	CHECK(denied(rdma(&lab, IBV_WR_RDMA_WRITE, scratch_mr, scratch, PAGE, mr, f.p + HUGE)));
	lab_renew(&lab);
	CHECK(ftruncate(f.fd, HUGE) == 0);
	CHECK(denied(rdma(&lab, IBV_WR_RDMA_WRITE, scratch_mr, scratch, PAGE, mr, f.p + HUGE)));
	lab_renew(&lab);
	CHECK(rdma(&lab, IBV_WR_RDMA_WRITE, scratch_mr, scratch, HUGE, mr, f.p) == IBV_WC_SUCCESS);
	CHECK(ibv_dereg_mr(mr) == 0);
	close(f.fd);
	gone(&f, 0);
}

/* processes share memory whose descriptor both have closed. */
static void processes(void)
{
	struct file f = memory("memfd of two processes");
	map(&f, PROT_READ | PROT_WRITE);
	close(f.fd);
	memset(f.p, 0, SIZE);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		lab = lab_open();
		char *local = malloc(SIZE);
		struct ibv_mr *from = reg(&lab, local, SIZE), *to = reg(&lab, f.p, SIZE);
		CHECK(mapped(&f.st, 1));
		fill(local, SIZE, 8);
		CHECK(rdma(&lab, IBV_WR_RDMA_WRITE, from, local, SIZE, to, f.p) == IBV_WC_SUCCESS);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(filled(f.p, SIZE, 8));
	use(&f, 0, SIZE, 1);
	gone(&f, 0);
}

/* many has more files than the library remembers. */
static void many(void)
{
	enum { MANY = 100 };
	static struct file f[MANY];
	for (int i = 0; i < MANY; i++) {
		f[i] = memory("one of many");
		map(&f[i], PROT_READ | PROT_WRITE);
	}
	for (int i = 0; i < MANY; i += 33)
		use(&f[i], 0, SIZE, 1);
	for (int i = 0; i < MANY; i++)
		gone(&f[i], 1);
}

/* dmabuf registers files by their descriptors. The program need not map them. */
static void dmabuf(void)
{
	struct ibv_mr *(*reg_dmabuf)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int) = dlsym(RTLD_DEFAULT, "ibv_reg_dmabuf_mr");
	CHECK(reg_dmabuf != NULL);
	struct file f = memory("descriptor");
	map(&f, PROT_READ | PROT_WRITE);
	fill(f.p, SIZE, 1);
	const uint64_t iova = 1ULL << 40, at = 3 * PAGE + 8;
	struct ibv_mr *mr = reg_dmabuf(lab.loop.pd, at, PAGE, iova + 8, f.fd, ALL_ACCESS);
	CHECK(mr != NULL && mr->length == PAGE && (uintptr_t)mr->addr == at && mapped(&f.st, 1));
	CHECK(rdma(&lab, IBV_WR_RDMA_READ, scratch_mr, scratch, PAGE, mr, (void *)(uintptr_t)(iova + 8)) == IBV_WC_SUCCESS);
	CHECK(!memcmp(scratch, f.p + at, PAGE));
	fill(scratch, PAGE, 2);
	CHECK(rdma(&lab, IBV_WR_RDMA_WRITE, scratch_mr, scratch, PAGE, mr, (void *)(uintptr_t)(iova + 8)) == IBV_WC_SUCCESS);
	CHECK(filled(f.p + at, PAGE, 2));
	CHECK(denied(rdma(&lab, IBV_WR_RDMA_WRITE, scratch_mr, scratch, PAGE, mr, (void *)(uintptr_t)(iova + 9))));
	lab_renew(&lab);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK((mr = reg_dmabuf(lab.loop.pd, 0, SIZE, 0, f.fd, ALL_ACCESS)) != NULL && ibv_dereg_mr(mr) == 0);

	int ends[2], null = open("/dev/null", O_RDWR | O_CLOEXEC), path = open("/tmp", O_PATH | O_CLOEXEC);
	CHECK(pipe(ends) == 0 && null >= 0 && path >= 0);
	const struct { uint64_t offset; size_t n; uint64_t iova; int fd, access, err; } bad[] = {
		{ 0, 0, 0, -1, 0, EBADF }, /* as programs ask whether the call is supported */
		{ 0, PAGE, 0, 9999, ALL_ACCESS, EBADF },
		{ 0, PAGE, 0, ends[0], ALL_ACCESS, EOPNOTSUPP },
		{ 0, PAGE, 0, null, ALL_ACCESS, EOPNOTSUPP },
		{ 0, PAGE, 0, path, ALL_ACCESS, EBADF },
		{ 0, PAGE, 0, 0, ALL_ACCESS, EOPNOTSUPP },
		{ 0, 0, 0, f.fd, ALL_ACCESS, EINVAL },
		{ 0, SIZE + 1, 0, f.fd, ALL_ACCESS, EINVAL },
		{ SIZE, PAGE, 0, f.fd, ALL_ACCESS, EINVAL },
		{ -PAGE, 2 * PAGE, 0, f.fd, ALL_ACCESS, EINVAL },
		{ 0, PAGE, 8, f.fd, ALL_ACCESS, EINVAL },
		{ 0, PAGE, 0, f.fd, IBV_ACCESS_REMOTE_WRITE, EINVAL },
		{ 0, PAGE, 0, f.fd, IBV_ACCESS_ON_DEMAND, EINVAL },
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		errno = 0;
		mr = reg_dmabuf(lab.loop.pd, bad[i].offset, bad[i].n, bad[i].iova, bad[i].fd, bad[i].access);
		if (mr || errno != bad[i].err) {
			fprintf(stderr, "bad descriptor %zu: %p, errno %d\n", i, (void *)mr, errno);
			exit(1);
		}
	}
	gone(&f, 1);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	daemon_pid = atoi(argv[1]);
	setbuf(stdout, NULL);
	lab = lab_open();
	CHECK((scratch = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED);
	scratch_mr = reg(&lab, scratch, 8 << 20);
	kinds();
	unseen();
	distant();
	seals();
	readonly();
	sparse();
	lost();
	huge();
	processes();
	many();
	dmabuf();
	return 0;
}
