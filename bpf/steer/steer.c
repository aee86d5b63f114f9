//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Steers RoCEv2 to AF_XDP sockets: UDP datagrams to port 4791 of one of the NIC's
 * addresses go to the socket of the queue that they came in by, everything else
 * goes on to the kernel. Multi-buffer aware: only headers are looked at, which are
 * in the first buffer.
 */
#include "roce.h"

#define MAX_QUEUES 256
#define MAX_ADDRS 256

/* What became of a frame; the indices of verdicts. Names are in steer.go. */
enum verdict {
	OTHER,	   /* not RoCEv2, or to another address: to the kernel */
	STEERED,   /* to the socket of its queue */
	UNSTEERED, /* RoCEv2 for the NIC by a queue without a socket: dropped, for the
		    * kernel would answer that nobody listens */
	VERDICTS,
};

/* The NIC's addresses; IPv4 ones as ::ffff:a.b.c.d. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ADDRS);
	__type(key, struct in6_addr);
	__type(value, __u8);
} addrs SEC(".maps");

/* The sockets, by queue. */
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

/* Whether a UDP header that may be there is of RoCEv2. Not roce_parse(): what comes to the
 * port is the NIC's, to be counted, also if it is no whole packet. */
static __always_inline int is_roce(const struct udphdr *udp, const void *end)
{
	return (const void *)(udp + 1) <= end && udp->dest == bpf_htons(ROCE_PORT);
}

/* Whether an IPv4 datagram is whole and RoCEv2; its destination is left in dst. */
static __always_inline int ipv4(const struct iphdr *ip, const void *end, struct in6_addr *dst)
{
	if ((const void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5)
		return 0;
	if (ip->protocol != IPPROTO_UDP || ip->frag_off & bpf_htons(ROCE_IP_FRAGMENT))
		return 0;
	dst->in6_u.u6_addr32[2] = bpf_htonl(0xffff);
	dst->in6_u.u6_addr32[3] = ip->daddr;
	return is_roce((const void *)ip + ip->ihl * 4, end);
}

/* The same of IPv6 without extension headers. */
static __always_inline int ipv6(const struct ipv6hdr *ip, const void *end, struct in6_addr *dst)
{
	if ((const void *)(ip + 1) > end || ip->version != 6 || ip->nexthdr != IPPROTO_UDP)
		return 0;
	*dst = ip->daddr;
	return is_roce((const void *)(ip + 1), end);
}

SEC("xdp.frags")
int steer(struct xdp_md *ctx)
{
	const void *end = (const void *)(long)ctx->data_end;
	const struct ethhdr *eth = (const void *)(long)ctx->data;
	struct in6_addr dst = {};
	__u32 queue = ctx->rx_queue_index;
	int ours = 0;

	if ((const void *)(eth + 1) > end)
		return decide(OTHER, XDP_PASS);
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		ours = ipv4((const void *)(eth + 1), end, &dst);
	else if (eth->h_proto == bpf_htons(ETH_P_IPV6))
		ours = ipv6((const void *)(eth + 1), end, &dst);
	if (!ours || !bpf_map_lookup_elem(&addrs, &dst))
		return decide(OTHER, XDP_PASS);
	if (!bpf_map_lookup_elem(&sockets, &queue))
		return decide(UNSTEERED, XDP_DROP);
	return decide(STEERED, bpf_redirect_map(&sockets, queue, XDP_DROP));
}

char _license[] SEC("license") = "Dual BSD/GPL"; /* so the kernel keeps no helper from it */
