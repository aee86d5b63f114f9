/* dma-bufs of the kernel: registered by their descriptor, or by an address where the program has mapped them. */
#define _GNU_SOURCE
#include "mr.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>

enum { PAGE = 4096, SIZE = 16 * PAGE };

typedef struct ibv_mr *reg_fn(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int);

static struct lab lab;
static reg_fn *reg_dmabuf;
static char *scratch;
static struct ibv_mr *scratch_mr;

static char *map(int fd)
{
	char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	return p;
}

/* moved moves data between a region of the dma-buf, which begins at offset PAGE, and other memory. */
static void moved(char *p, struct ibv_mr *mr, uint64_t remote)
{
	const size_t n = SIZE - PAGE;
	fill(p, SIZE, 3);
	CHECK(rdma(&lab, IBV_WR_RDMA_READ, scratch_mr, scratch, n, mr, (void *)(uintptr_t)remote) == IBV_WC_SUCCESS);
	CHECK(!memcmp(scratch, p + PAGE, n));
	fill(scratch, n, 4);
	CHECK(rdma(&lab, IBV_WR_RDMA_WRITE, scratch_mr, scratch, n, mr, (void *)(uintptr_t)remote) == IBV_WC_SUCCESS);
	CHECK(filled(p + PAGE, n, 4));
	CHECK(rdma(&lab, IBV_WR_RDMA_WRITE, mr, (void *)(uintptr_t)remote, n, scratch_mr, scratch) == IBV_WC_SUCCESS);
	CHECK(denied(rdma(&lab, IBV_WR_RDMA_READ, scratch_mr, scratch, 8, mr, (void *)(uintptr_t)(remote + n - 7))));
	lab_renew(&lab);
}

/* use registers a dma-buf in all ways and closes it. The region outlives the descriptor. */
static void use(const char *what, int fd)
{
	const uint64_t iova = 1ULL << 44;
	char *p = map(fd);
	printf("%s\n", what);
	FAILS(reg_dmabuf(lab.loop.pd, PAGE, SIZE, iova, fd, ALL_ACCESS) ? 0 : -1, EINVAL);
	struct ibv_mr *mr = ibv_reg_mr(lab.loop.pd, p + PAGE, SIZE - PAGE, ALL_ACCESS);
	CHECK(mr != NULL);
	moved(p, mr, (uintptr_t)p + PAGE);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK((mr = reg_dmabuf(lab.loop.pd, PAGE, SIZE - PAGE, iova, fd, ALL_ACCESS)) != NULL);
	CHECK(close(fd) == 0);
	moved(p, mr, iova);
	CHECK(ibv_dereg_mr(mr) == 0 && munmap(p, SIZE) == 0);
}

/* from_memfd makes a dma-buf of the pages of a memfd. */
static int from_memfd(void)
{
	int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), memfd = memfd_create("pages", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	CHECK(device >= 0 && memfd >= 0 && ftruncate(memfd, SIZE) == 0 && fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	struct udmabuf_create c = { .memfd = memfd, .flags = UDMABUF_FLAGS_CLOEXEC, .size = SIZE };
	int fd = ioctl(device, UDMABUF_CREATE, &c);
	CHECK(fd >= 0 && close(device) == 0 && close(memfd) == 0);
	return fd;
}

static int from_heap(void)
{
	int heap = open("/dev/dma_heap/system", O_RDONLY | O_CLOEXEC);
	struct dma_heap_allocation_data a = { .len = SIZE, .fd_flags = O_RDWR | O_CLOEXEC };
	CHECK(heap >= 0 && ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &a) == 0 && close(heap) == 0);
	return a.fd;
}

int main(int argc, char **argv)
{
	setbuf(stdout, NULL);
	int pages = from_memfd(), heap = from_heap();
	CHECK((reg_dmabuf = (reg_fn *)dlsym(RTLD_DEFAULT, "ibv_reg_dmabuf_mr")) != NULL);
	if (argc > 1) /* the daemon belongs to root */
		CHECK(setgid(atoi(argv[1])) == 0 && setuid(atoi(argv[1])) == 0);
	lab = lab_open();
	CHECK((scratch = malloc(SIZE)) != NULL);
	scratch_mr = reg(&lab, scratch, SIZE);
	use("udmabuf", pages);
	use("dma_heap", heap);
	return 0;
}
