/* Commands to the daemon. They travel as other commands of libibverbs do: by write() to the context's descriptor,
 * which the preload library has. A kernel refuses them. */
#include "objects.h"

#include <errno.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

int fail(int error)
{
	errno = error;
	return -1;
}

/* call runs a command of n bytes. All begin with the header and the address of the response. */
static int call(struct ibv_context *context, uint32_t number, void *command, size_t n, size_t room)
{
	struct ib_uverbs_cmd_hdr *h = command;
	h->command = number;
	h->in_words = n / 4;
	h->out_words = room / 4;
	ssize_t done = write(context->cmd_fd, command, n);
	return done < 0 ? errno : (size_t)done == n ? 0 : EIO;
}

int call_modify(struct ibv_qp *qp, const struct attr *attr, uint32_t mask)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		uint64_t response;
		uint32_t handle, mask;
		struct attr attr;
	} c = { .handle = qp->handle, .mask = mask, .attr = *attr };
	return call(qp->context, EXT_MODIFY_MRC, &c, sizeof c, 0);
}

int call_query(struct ibv_qp *qp, struct attr *attr)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		uint64_t response;
		uint32_t handle, reserved;
	} c = { .response = (uintptr_t)attr, .handle = qp->handle };
	return call(qp->context, EXT_QUERY_MRC, &c, sizeof c, sizeof *attr);
}

int call_device(struct ibv_context *context, struct device *d)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		uint64_t response;
	} c = { .response = (uintptr_t)d };
	return call(context, EXT_MRC_DEVICE, &c, sizeof c, sizeof *d);
}
