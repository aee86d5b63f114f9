/*
 * Addresses of UD's peers. The rxe provider of old rdma-core (33, Debian 11) asks libibverbs for the
 * MAC address behind a GID when it makes an address handle, and that the kernel's
 * routes and neighbours, where those of a NIC of ours are not. The NIC finds them itself.
 */
#include "preload.h"
#include "layout.h"

#include <errno.h>
#include <string.h>

int ibv_resolve_eth_l2_from_gid(void *context, void *attr, uint8_t mac[6], uint16_t *vid);
EXPORT int ibv_resolve_eth_l2_from_gid(void *context, void *attr, uint8_t mac[6], uint16_t *vid)
{
	if (context_of(((int *)context)[CMD_FD * sizeof(void *) / sizeof(int)])) {
		memset(mac, 0, 6);
		if (vid)
			*vid = UINT16_MAX; /* none */
		return 0;
	}
	REAL(ibv_resolve_eth_l2_from_gid);
	return real_ibv_resolve_eth_l2_from_gid ? real_ibv_resolve_eth_l2_from_gid(context, attr, mac, vid) : ENOSYS;
}
