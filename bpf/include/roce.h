/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Parses the RoCEv2 headers of a frame: Ethernet, one VLAN tag, IPv4 (with options, no
 * fragments) or IPv6 without extension headers, UDP to port 4791 or 4971, BTH, and the first
 * byte of an AETH (IBTA vol. 1 chapter 9.2, annex A17). It only reads, checks every
 * bound, and needs only the UAPI headers of the kernel. Both XDP and tc programs can
 * use it. A tc program first pulls ROCE_HEADERS bytes, because the linear part of a
 * frame may be shorter than its headers.
 */
#ifndef ROCE_H
#define ROCE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ROCE_PORT 4791	      /* UDP destination port of RoCEv2, IBTA annex A17 */
#define MRC_PORT 4971	      /* another one of MRC */
#define ROCE_IP_FRAGMENT 0x3fff /* more-fragments flag, offset */
#define ROCE_24BITS 0xffffff  /* mask of QPN and PSN */
#define ROCE_ICRC 4	      /* length of the ICRC */

/* Maximum length of the headers: Ethernet, VLAN, IPv4 with options, UDP, BTH, AETH. */
#define ROCE_HEADERS (14 + 4 + 60 + 8 + 12 + 4)

struct roce_vlan {
	__be16 tci;
	__be16 proto;
};

/* Base transport header (IBTA vol. 1 chapter 9.2). */
struct roce_bth {
	__u8 opcode;
	__u8 flags;  /* solicited event, migration, pad count, version */
	__be16 pkey;
	__be32 qpn;  /* FECN, BECN, reserved; destination QPN in the low 24 bits */
	__be32 psn;  /* AckReq in the top bit; PSN in the low 24 bits */
};

/* A RoCEv2 frame. Offsets are relative to the Ethernet header. */
struct roce {
	struct in6_addr src, dst; /* IPv4 addresses as ::ffff:a.b.c.d */
	__u32 qpn, psn;
	__u32 end; /* offset after the ICRC: end of the UDP datagram */
	__u16 l3, udp, bth;
	__be16 sport;	 /* UDP source port */
	__u8 v6;	 /* IPv6, not IPv4 */
	__u8 tos;	 /* type of service or traffic class; ECN in the low bits */
	__u8 opcode;
	__u8 ack_req;
	__u8 becn;
	__u8 syndrome;	 /* of the AETH, if the opcode is an acknowledgement */
	__be16 pad;
};

/* Opcode of acknowledgements with an extension header (docs/reference/wire.md). */
#define ROCE_EXT_ACK 0xf1

/*
 * Returns the syndrome of an acknowledgement. aeth is the byte after the BTH, body the
 * length of the datagram's content. It is that of an ACK if the packet ends before the AETH.
 */
static __always_inline __u8 roce_syndrome(__u8 opcode, const __u8 *aeth, const void *end, __u32 body)
{
	__u32 skip = opcode == ROCE_EXT_ACK ? (*aeth & 15) * 4 : 0;

	aeth += skip;
	if ((const void *)(aeth + 1) > end || sizeof(struct roce_bth) + skip >= body)
		return 0;
	return *aeth;
}

/* Fills r from the BTH at b. */
static __always_inline int roce_parse_bth(const void *b, const void *end, struct roce *r)
{
	const struct roce_bth *bth = b;
	const __u8 *aeth = (const __u8 *)(bth + 1);

	if ((const void *)(aeth + 1) > end)
		return 0;
	r->opcode = bth->opcode;
	r->qpn = bpf_ntohl(bth->qpn) & ROCE_24BITS;
	r->becn = bpf_ntohl(bth->qpn) >> 30 & 1;
	r->psn = bpf_ntohl(bth->psn) & ROCE_24BITS;
	r->ack_req = bpf_ntohl(bth->psn) >> 31;
	r->syndrome = roce_syndrome(r->opcode, aeth, end, r->end - r->bth);
	return 1;
}

/* Fills r from the UDP header at u. len is the length of the frame from u on. */
static __always_inline int roce_parse_udp(const void *u, const void *end, __u32 len, struct roce *r)
{
	const struct udphdr *udp = u;
	__u32 n;

	if ((const void *)(udp + 1) > end || (udp->dest != bpf_htons(ROCE_PORT) && udp->dest != bpf_htons(MRC_PORT)))
		return 0;
	n = bpf_ntohs(udp->len);
	if (n < sizeof(*udp) + sizeof(struct roce_bth) + ROCE_ICRC || n > len)
		return 0;
	r->sport = udp->source;
	r->bth = r->udp + sizeof(*udp);
	r->end = r->udp + n;
	return roce_parse_bth(udp + 1, end, r);
}

static __always_inline int roce_parse_ipv4(const void *l3, const void *end, __u32 len, struct roce *r)
{
	const struct iphdr *ip = l3;
	__u32 n;

	if ((const void *)(ip + 1) > end || ip->version != 4)
		return 0;
	n = ip->ihl * 4;
	if (n < sizeof(*ip) || n > len || ip->protocol != IPPROTO_UDP || ip->frag_off & bpf_htons(ROCE_IP_FRAGMENT))
		return 0;
	r->src.in6_u.u6_addr32[0] = r->src.in6_u.u6_addr32[1] = 0;
	r->dst.in6_u.u6_addr32[0] = r->dst.in6_u.u6_addr32[1] = 0;
	r->src.in6_u.u6_addr32[2] = r->dst.in6_u.u6_addr32[2] = bpf_htonl(0xffff);
	r->src.in6_u.u6_addr32[3] = ip->saddr;
	r->dst.in6_u.u6_addr32[3] = ip->daddr;
	r->tos = ip->tos;
	r->udp = r->l3 + n;
	return roce_parse_udp(l3 + n, end, len - n, r);
}

static __always_inline int roce_parse_ipv6(const void *l3, const void *end, __u32 len, struct roce *r)
{
	const struct ipv6hdr *ip = l3;

	if ((const void *)(ip + 1) > end || len < sizeof(*ip) || ip->version != 6 || ip->nexthdr != IPPROTO_UDP)
		return 0;
	r->src = ip->saddr;
	r->dst = ip->daddr;
	r->tos = ip->priority << 4 | ip->flow_lbl[0] >> 4;
	r->v6 = 1;
	r->udp = r->l3 + sizeof(*ip);
	return roce_parse_udp(ip + 1, end, len - sizeof(*ip), r);
}

/*
 * Parses the frame at data. Bytes up to end can be read; the whole frame has len
 * bytes. Returns 1 and fills r if the frame is RoCEv2, else 0.
 */
static __always_inline int roce_parse(const void *data, const void *end, __u32 len, struct roce *r)
{
	const struct ethhdr *eth = data;
	const struct roce_vlan *vlan;
	const void *l3 = eth + 1;
	__be16 proto;

	if (l3 > end)
		return 0;
	proto = eth->h_proto;
	r->l3 = sizeof(*eth);
	r->v6 = 0;
	r->pad = 0;
	if (proto == bpf_htons(ETH_P_8021Q) || proto == bpf_htons(ETH_P_8021AD)) {
		vlan = l3;
		if ((const void *)(vlan + 1) > end)
			return 0;
		proto = vlan->proto;
		l3 = vlan + 1;
		r->l3 += sizeof(*vlan);
	}
	if (len < r->l3)
		return 0;
	if (proto == bpf_htons(ETH_P_IP))
		return roce_parse_ipv4(l3, end, len - r->l3, r);
	if (proto == bpf_htons(ETH_P_IPV6))
		return roce_parse_ipv6(l3, end, len - r->l3, r);
	return 0;
}

#endif
