/* Lists devices and tries to open each, twice. */
#include <infiniband/verbs.h>
#include <unistd.h>

int main(void)
{
	for (int i = 0; i < 2; i++) {
		struct ibv_device **list = ibv_get_device_list(NULL);
		for (int k = 0; list && list[k]; k++) {
			struct ibv_context *c = ibv_open_device(list[k]);
			if (c)
				ibv_close_device(c);
		}
		if (list)
			ibv_free_device_list(list);
	}
	/* A program that only looks for device files gets no advice. */
	return access("/dev/infiniband/rdma_cm", F_OK) != 0 && access("/dev/infiniband/none", F_OK) == 0;
}
