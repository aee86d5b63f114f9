/*
 * ibv_reg_dmabuf_mr(), which the rxe provider lacks. The library registers memory by the ordinary
 * way with the offset as address, and passes the descriptor to the daemon, which maps it.
 */
#include "interpose.h"

#include <errno.h>
#include <fcntl.h>

/* IBV_ACCESS_ON_DEMAND makes libibverbs leave the pages at the address alone (ibv_fork_init()). */
enum { ON_DEMAND = 1 << 6 };

typedef void *reg_fn(void **pd, void *addr, size_t length, uint64_t iova, unsigned access);

void *ibv_reg_dmabuf_mr(void **pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access);
EXPORT void *ibv_reg_dmabuf_mr(void **pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	reg_fn *reg = (reg_fn *)verbs_symbol("ibv_reg_mr_iova2");
	if (!verbs_ours(*pd)) {
		static __typeof__(ibv_reg_dmabuf_mr) *real;
		if (real || (real = (__typeof__(real))verbs_symbol("ibv_reg_dmabuf_mr")))
			return real(pd, offset, length, iova, fd, access);
	}
	if (!verbs_ours(*pd) || !reg || access & ON_DEMAND) {
		errno = access & ON_DEMAND ? EINVAL : EOPNOTSUPP;
		return NULL;
	}
	if (fcntl(fd, F_GETFD) < 0) /* the error shows programs that the call is supported */
		return NULL;
	struct dmabuf d = { fd };
	uverbs_dmabuf = &d;
	void *mr = reg(pd, (void *)(uintptr_t)offset, length, iova, access | ON_DEMAND);
	uverbs_dmabuf = NULL;
	return mr;
}
