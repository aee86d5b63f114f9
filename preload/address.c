/*
 * Addresses of UD peers. When the rxe provider of old rdma-core (33, Debian 11) creates an
 * address handle, it asks libibverbs for the MAC address of a GID. libibverbs looks it up in
 * the kernel's routes and neighbours, which do not have the peers of this NIC. The NIC
 * resolves addresses itself, so the field for the MAC address is free. The work requests of
 * that provider carry neither the handle nor the LID of an address without a GRH, so the
 * field carries the LID.
 */
#include "interpose.h"

#include <errno.h>
#include <string.h>

int ibv_resolve_eth_l2_from_gid(void *context, void *attr, uint8_t mac[6], uint16_t *vid);
EXPORT int ibv_resolve_eth_l2_from_gid(void *context, void *attr, uint8_t mac[6], uint16_t *vid)
{
	if (context_of(((int *)context)[CMD_FD * sizeof(void *) / sizeof(int)])) {
		const uint8_t *a = attr;
		uint16_t lid = 0;

		if (!a[AH_IS_GLOBAL])
			memcpy(&lid, a + AH_DLID, sizeof(lid));
		memset(mac, 0, 6);
		mac[4] = lid >> 8;
		mac[5] = lid;
		if (vid)
			*vid = UINT16_MAX; /* none */
		return 0;
	}
	REAL(ibv_resolve_eth_l2_from_gid);
	return real_ibv_resolve_eth_l2_from_gid ? real_ibv_resolve_eth_l2_from_gid(context, attr, mac, vid) : ENOSYS;
}
