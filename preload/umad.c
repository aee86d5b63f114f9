/*
 * Port GUIDs. libibumad (ibstat) takes the port GUID from the lower half of GID 0. That is a GUID
 * only if the GID is a link-local address; here it usually is an IPv4 address. The library replaces
 * it with the GUID of the node, as of a NIC with one port.
 */
#include "interpose.h"

#include <endian.h>
#include <errno.h>

/* The ABI of libibumad: umad_port_t and umad_ca_t. */
struct umad_port {
	char ca_name[20];
	int number;
	unsigned int lids[4], state, phys_state, rate;
	uint32_t capmask;
	uint64_t gid_prefix, guid; /* in network byte order */
};

enum { UMAD_PORTS = 10 };

struct umad_ca {
	char name[20];
	unsigned int node_type;
	int ports;
	char firmware[20], type[40], hardware[20];
	uint64_t node_guid, system_guid;
	struct umad_port *port[UMAD_PORTS];
};

#define LINK_LOCAL UINT64_C(0xfe80000000000000)

int umad_get_ca(const char *name, struct umad_ca *ca);
EXPORT int umad_get_ca(const char *name, struct umad_ca *ca)
{
	REAL(umad_get_ca);
	int err = real_umad_get_ca ? real_umad_get_ca(name, ca) : -ENOSYS;
	for (int i = 0; err == 0 && preload_active() && i < UMAD_PORTS; i++)
		if (ca->port[i] && ca->port[i]->gid_prefix != htobe64(LINK_LOCAL)) {
			ca->port[i]->gid_prefix = htobe64(LINK_LOCAL);
			ca->port[i]->guid = ca->node_guid;
		}
	return err;
}
