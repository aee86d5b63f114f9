//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Steers RoCEv2 to AF_XDP sockets. UDP datagrams to the port of the NIC at its addresses
 * go to the socket of the queue on which they were received. All other frames go to
 * the kernel, also those in VLANs, which have interfaces of their own. The program supports multi-buffer frames: it reads only headers, which
 * are in the first buffer.
 */
#include "roce.h"

#define MAX_QUEUES 256
#define MAX_ADDRS 256
#define VLAN_ID 0xfff /* of a tag; 0 carries only a priority */

/* Decision on a frame: index of verdicts. steer.go has the names. */
enum verdict {
	OTHER,	   /* not RoCEv2, or another address: to the kernel */
	STEERED,   /* to the socket of its queue */
	UNSTEERED, /* RoCEv2 for the NIC on a queue without a socket: dropped, because the
		    * kernel would reply with "port unreachable" */
	VERDICTS,
};

/* Addresses of the NIC and the UDP port there; IPv4 addresses as ::ffff:a.b.c.d. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ADDRS);
	__type(key, struct in6_addr);
	__type(value, __u16);
} addrs SEC(".maps");

/* Sockets by queue. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, MAX_QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

/* Frames by verdict. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, VERDICTS);
	__type(key, __u32);
	__type(value, __u64);
} verdicts SEC(".maps");

static __always_inline int decide(enum verdict v, int action)
{
	__u32 key = v;
	__u64 *n = bpf_map_lookup_elem(&verdicts, &key);

	if (n)
		(*n)++;
	return action;
}

/* Returns whether there is a UDP header to the port of the NIC at an address. It does not use
 * roce_parse(), because the NIC also counts truncated packets to the port. */
static __always_inline int is_roce(const struct udphdr *udp, const void *end, const struct in6_addr *dst)
{
	const __u16 *port = bpf_map_lookup_elem(&addrs, dst);

	return port && (const void *)(udp + 1) <= end && udp->dest == bpf_htons(*port);
}

/* Returns whether an IPv4 datagram is RoCEv2 for the NIC and no fragment. */
static __always_inline int ipv4(const struct iphdr *ip, const void *end)
{
	struct in6_addr dst = {};

	if ((const void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5)
		return 0;
	if (ip->protocol != IPPROTO_UDP || ip->frag_off & bpf_htons(ROCE_IP_FRAGMENT))
		return 0;
	dst.in6_u.u6_addr32[2] = bpf_htonl(0xffff);
	dst.in6_u.u6_addr32[3] = ip->daddr;
	return is_roce((const void *)ip + ip->ihl * 4, end, &dst);
}

/* The same for IPv6 without extension headers. */
static __always_inline int ipv6(const struct ipv6hdr *ip, const void *end)
{
	struct in6_addr dst;

	if ((const void *)(ip + 1) > end || ip->version != 6 || ip->nexthdr != IPPROTO_UDP)
		return 0;
	dst = ip->daddr;
	return is_roce((const void *)(ip + 1), end, &dst);
}

/* Returns the start of the packet and sets its EtherType. It skips a tag that carries only a priority. */
static __always_inline const void *packet(const struct ethhdr *eth, const void *end, __be16 *type)
{
	const struct roce_vlan *tag = (const void *)(eth + 1);

	*type = eth->h_proto;
	if (*type != bpf_htons(ETH_P_8021Q) || (const void *)(tag + 1) > end || tag->tci & bpf_htons(VLAN_ID))
		return eth + 1;
	*type = tag->proto;
	return tag + 1;
}

SEC("xdp.frags")
int steer(struct xdp_md *ctx)
{
	const void *end = (const void *)(long)ctx->data_end;
	const struct ethhdr *eth = (const void *)(long)ctx->data;
	const void *l3;
	__be16 type;
	__u32 queue = ctx->rx_queue_index;
	int ours = 0;

	if ((const void *)(eth + 1) > end)
		return decide(OTHER, XDP_PASS);
	l3 = packet(eth, end, &type);
	if (type == bpf_htons(ETH_P_IP))
		ours = ipv4(l3, end);
	else if (type == bpf_htons(ETH_P_IPV6))
		ours = ipv6(l3, end);
	if (!ours)
		return decide(OTHER, XDP_PASS);
	if (!bpf_map_lookup_elem(&sockets, &queue))
		return decide(UNSTEERED, XDP_DROP);
	return decide(STEERED, bpf_redirect_map(&sockets, queue, XDP_DROP));
}

char _license[] SEC("license") = "Dual BSD/GPL"; /* gives access to all helpers */
