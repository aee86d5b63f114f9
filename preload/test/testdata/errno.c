/* Successful calls do not change errno: some programs depend on that, although POSIX does not
 * promise it. The program calls all functions that the library interposes. */
#define _GNU_SOURCE
#include "verbs.h"
#include "old.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MARK = 4711, PAGE = 4096 };

/* KEEPS checks that a call succeeds, and errno with it. */
#define KEEPS(cond)                                                                                      \
	do {                                                                                             \
		errno = MARK;                                                                            \
		if (!(cond) || errno != MARK) {                                                          \
			fprintf(stderr, "%s:%d: %s: errno %d\n", __FILE__, __LINE__, #cond, errno);      \
			failed = 1;                                                                      \
		}                                                                                        \
	} while (0)

static int failed;

static void paths(void)
{
	char text[4096], sys[] = "/sys/class/infiniband";
	struct stat st;
	struct statx sx;
	struct dirent **list;
	FILE *f;
	DIR *d;
	int fd;
	KEEPS(access("/dev/infiniband/uverbs0", R_OK) == 0);
	KEEPS(faccessat(AT_FDCWD, "/dev/infiniband/rdma_cm", R_OK, 0) == 0);
	KEEPS(stat("/dev/infiniband/uverbs0", &st) == 0 && S_ISCHR(st.st_mode));
	KEEPS(lstat("/dev/infiniband/rdma_cm", &st) == 0 && S_ISCHR(st.st_mode));
	KEEPS(fstatat(AT_FDCWD, sys, &st, 0) == 0);
	KEEPS(statx(AT_FDCWD, "/dev/infiniband/uverbs0", 0, STATX_TYPE, &sx) == 0);
	KEEPS((fd = open("/sys/class/infiniband_verbs/abi_version", O_RDONLY)) >= 0);
	KEEPS(read(fd, text, sizeof text) > 0);
	KEEPS(close(fd) == 0);
	/* The daemon updates counters first. */
	KEEPS((fd = openat(AT_FDCWD, "/sys/class/infiniband/rxe0/ports/1/counters/port_xmit_data", O_RDONLY)) >= 0);
	KEEPS(close(fd) == 0);
	KEEPS((f = fopen("/sys/class/infiniband/rxe0/node_guid", "r")) != NULL);
	KEEPS(fclose(f) == 0);
	KEEPS((d = opendir(sys)) != NULL);
	KEEPS(closedir(d) == 0);
	KEEPS(scandir(sys, &list, NULL, alphasort) > 0);
	KEEPS(chdir(sys) == 0 && chdir("/") == 0);
}

/* descriptors of a device. */
static void descriptors(int fd)
{
	struct stat st;
	int copy, other;
	KEEPS(fstat(fd, &st) == 0 && S_ISCHR(st.st_mode));
	KEEPS((copy = dup(fd)) >= 0);
	KEEPS((other = fcntl(fd, F_DUPFD_CLOEXEC, 50)) >= 50);
	KEEPS(dup2(fd, copy) == copy && dup3(fd, copy, O_CLOEXEC) == copy);
	KEEPS(close(copy) == 0);
	KEEPS(close_range(other, other, 0) == 0);
}

static void events(struct loop *l)
{
	struct ib_uverbs_comp_event_desc e;
	struct ibv_comp_channel *ch = ibv_create_comp_channel(l->ctx);
	struct ibv_cq *cq = ibv_create_cq(l->ctx, 16, NULL, ch, 0);
	CHECK(ch && cq);
	struct ibv_qp *qp = loop_qp(l, cq, cq);
	KEEPS(ibv_req_notify_cq(cq, 0) == 0);
	post_recv(l, qp, 1);
	KEEPS(post_send(l, qp, 2) == 0);
	KEEPS(reap(cq).status == IBV_WC_SUCCESS && reap(cq).status == IBV_WC_SUCCESS);
	KEEPS(read(ch->fd, &e, sizeof e) == sizeof e);
	ibv_ack_cq_events(cq, 1);
	KEEPS(ibv_destroy_qp(qp) == 0);
	KEEPS(ibv_destroy_cq(cq) == 0);
	KEEPS(ibv_destroy_comp_channel(ch) == 0);
}

static void memory(struct loop *l)
{
	char *p = mmap(NULL, 32 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *q;
	struct ibv_mr *mr;
	CHECK(p != MAP_FAILED);
	KEEPS((mr = ibv_reg_mr(l->pd, p, 32 * PAGE, IBV_ACCESS_LOCAL_WRITE)) != NULL);
	KEEPS(madvise(p, PAGE, MADV_DONTNEED) == 0);
	KEEPS(madvise(p, PAGE, MADV_FREE) == 0);
	KEEPS(ibv_dereg_mr(mr) == 0);
	KEEPS((q = mremap(p, 32 * PAGE, 64 * PAGE, MREMAP_MAYMOVE)) != MAP_FAILED);
	int status;
	pid_t pid;
	KEEPS((pid = fork()) >= 0);
	if (pid == 0)
		_exit(errno != MARK);
	KEEPS(waitpid(pid, &status, 0) == pid && status == 0);
	KEEPS(munmap(q, 64 * PAGE) == 0);
}

static void cm(void)
{
	struct rdma_ucm_create_id_resp made = { 0 };
	struct rdma_ucm_destroy_id_resp gone;
	struct { struct rdma_ucm_cmd_hdr h; struct rdma_ucm_create_id c; } create = {
		{ RDMA_USER_CM_CMD_CREATE_ID, sizeof create.c, sizeof made },
		{ .response = (uintptr_t)&made, .ps = RDMA_PS_TCP, .qp_type = IBV_QPT_RC }
	};
	struct { struct rdma_ucm_cmd_hdr h; struct rdma_ucm_destroy_id c; } destroy = {
		{ RDMA_USER_CM_CMD_DESTROY_ID, sizeof destroy.c, sizeof gone }, { .response = (uintptr_t)&gone }
	};
	int fd;
	KEEPS((fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC)) >= 0);
	descriptors(fd);
	KEEPS(write(fd, &create, sizeof create) == sizeof create);
	destroy.c.id = made.id;
	KEEPS(write(fd, &destroy, sizeof destroy) == sizeof destroy);
	KEEPS(close(fd) == 0);
}

/* address: the NIC resolves addresses, so libibverbs must not use the kernel's tables. */
static void address(struct loop *l)
{
	struct ibv_ah_attr a = { .is_global = 1, .port_num = 1, .grh = { .dgid = l->gid } };
	uint8_t mac[6];
	uint16_t vlan;
	a.grh.dgid.raw[15] ^= 8; /* unused address */
	KEEPS(ibv_resolve_eth_l2_from_gid(l->ctx, &a, mac, &vlan) == 0);
	CHECK(vlan > 0xfff);
}

int main(void)
{
	struct loop l = loop_open();
	int fd;
	paths();
	KEEPS((fd = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC)) >= 0);
	descriptors(fd);
	KEEPS(close(fd) == 0);
	events(&l);
	memory(&l);
	address(&l);
	cm();
	return failed;
}
