/*
 * Addresses of UD peers: corrections of what libibverbs and providers derive them from.
 */
#include "interpose.h"

#include <errno.h>
#include <string.h>

/* When the rxe provider of old rdma-core (33, Debian 11) creates an address handle, it asks
 * libibverbs for the MAC address of a GID. libibverbs looks it up in the kernel's routes and
 * neighbours, which do not have the peers of this NIC. The NIC resolves addresses itself, so the
 * field for the MAC address is free. The work requests of that provider carry neither the handle
 * nor the LID of an address without a GRH, so the field carries the LID. */
int ibv_resolve_eth_l2_from_gid(void *context, void *attr, uint8_t mac[6], uint16_t *vid);
EXPORT int ibv_resolve_eth_l2_from_gid(void *context, void *attr, uint8_t mac[6], uint16_t *vid)
{
	if (verbs_ours(context)) {
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

/* RoCEv2 has no service level. Its field in a completion carries the type of the packet instead
 * (qp/unreliable.go), which libibverbs would copy to the address of a reply: VLAN priority 7.
 * The two functions below pass a completion without it. */
struct completion {
	uint8_t bytes[WC_SIZE];
};

static struct completion without_sl(const void *wc)
{
	struct completion plain;
	memcpy(&plain, wc, sizeof plain);
	plain.bytes[WC_SL] = 0;
	return plain;
}

int ibv_init_ah_from_wc(void *context, uint8_t port, void *wc, void *grh, void *attr);
EXPORT int ibv_init_ah_from_wc(void *context, uint8_t port, void *wc, void *grh, void *attr)
{
	static __typeof__(ibv_init_ah_from_wc) *real;
	if (!real && !(real = (__typeof__(real))verbs_symbol("ibv_init_ah_from_wc")))
		return ENOSYS;
	if (!verbs_ours(context))
		return real(context, port, wc, grh, attr);
	struct completion plain = without_sl(wc);
	return real(context, port, &plain, grh, attr);
}

/* pd is a struct ibv_pd, which begins with its context. */
void *ibv_create_ah_from_wc(void **pd, void *wc, void *grh, uint8_t port);
EXPORT void *ibv_create_ah_from_wc(void **pd, void *wc, void *grh, uint8_t port)
{
	static __typeof__(ibv_create_ah_from_wc) *real;
	if (!real && !(real = (__typeof__(real))verbs_symbol("ibv_create_ah_from_wc"))) {
		errno = ENOSYS;
		return NULL;
	}
	if (!verbs_ours(*pd))
		return real(pd, wc, grh, port);
	struct completion plain = without_sl(wc);
	return real(pd, &plain, grh, port);
}
