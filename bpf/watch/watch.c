//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Observes RoCEv2: a filter of a packet socket that copies the headers of RoCEv2
 * packets into a ring buffer and passes no packet to the socket itself. It sees the
 * same packets as tcpdump. A super-frame consists of datagrams with gso_size bytes;
 * the kernel segments it as late as possible. The program copies the headers of each
 * of its datagrams. It reads VLAN tags and extension headers of IPv6, and counts all
 * other packets by reason. It does not look into tunnels.
 *
 * The socket has type SOCK_DGRAM: packets start after the Ethernet header.
 */
#include "roce.h"
#include <linux/stddef.h>


#define GSI_QPN 1 /* queue pair of the connection manager */
#define MAX_SEGMENTS 128 /* UDP_MAX_SEGMENTS of the kernel */

#define IP_HEADER 60  /* longest IPv4 header */
#define MOST_TAGS 4	  /* VLAN tags, extension headers of IPv6 */
#define MOST_EXTENSIONS 8
#define TRANSPORT 96  /* longest BTH with extension headers */
#define MANAGEMENT 276 /* BTH, DETH and a management datagram of 256 bytes */

/* Prevents optimizations after which the verifier does not see the bounds of v. */
#define KEEP(v) asm volatile("" : "+r"(v))

/* Record of a packet in the ring buffer. */
struct event {
	__u64 time;	   /* ns, CLOCK_MONOTONIC */
	__u16 segment;	   /* index in its super-frame */
	__u16 payload;	   /* bytes of the UDP payload of a segment; 0: as in the headers */
	__u16 ip_len;	   /* IP header, without extension headers */
	__u16 kept;	   /* copied bytes of the UDP payload */
	__u8 ip[IP_HEADER];
	struct udphdr udp;
	__u8 transport[]; /* TRANSPORT bytes; MANAGEMENT to the connection manager */
};

/* The loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

/* Reasons for which a packet is not reported; event.go has their names. */
enum reason {
	OTHER_TYPE,
	ARP,
	ROCE_V1,
	MPLS,
	FRAGMENT,
	TCP,
	ICMP,
	GRE,
	IP_IN_IP,
	OTHER_PROTOCOL,
	VXLAN,
	GENEVE,
	OTHER_PORT,
	TOO_DEEP,
	MALFORMED,
	REASONS,
};

__u64 others[REASONS];	/* packets that are not reported */
__u64 lost;		/* packets for which the ring buffer had no room */
volatile const __u64 wakeup; /* fill level in bytes that wakes the reader */

/* A packet or super-frame, whose headers are found. */
struct super {
	struct __sk_buff *skb;
	__u32 l3;      /* offset and length of the IP header */
	__u32 l3_len;
	__u32 udp;     /* offset of the UDP header */
	__u32 len;     /* bytes of all */
	__u32 size;    /* bytes of a datagram of a super-frame; 0: single packet */
	__u32 payload; /* bytes of the UDP payload of a packet with extension headers; else 0 */
};

/* A single packet or a datagram of a super-frame: offset and length of its UDP payload. */
struct piece {
	__u32 from;
	__u32 len;
	__u32 segment;
	__u32 payload;
};

static __always_inline void submit(void *e)
{
	__u64 waiting = bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA);

	bpf_ringbuf_submit(e, waiting >= wakeup ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

/*
 * Copies the IP header, without extension headers, and the UDP header. Each has a place of its own: the verifier permits
 * no offset that depends on a packet to users without CAP_PERFMON.
 */
static __always_inline int copy_headers(const struct super *s, struct event *e)
{
	__u64 len = s->l3_len;

	if (len < sizeof(struct iphdr))
		return -1;
	KEEP(len);
	if (len > IP_HEADER)
		return -1;
	e->ip_len = len;
	if (bpf_skb_load_bytes(s->skb, s->l3, e->ip, len))
		return -1;
	if (s->payload)
		e->ip[offsetof(struct ipv6hdr, nexthdr)] = IPPROTO_UDP;
	return bpf_skb_load_bytes(s->skb, s->udp, &e->udp, sizeof(e->udp));
}

/* Fills e with the packet of p and up to room bytes of its transport. */
static __always_inline int fill(const struct super *s, const struct piece *p, struct event *e, __u32 room)
{
	__u64 kept = p->len;

	if (kept < sizeof(struct roce_bth))
		return -1;
	if (s->payload) /* the ICRC covers the extension headers, which the copy lacks */
		kept -= ROCE_ICRC;
	KEEP(kept);
	if (kept > room)
		kept = room;
	KEEP(kept);
	if (kept < 1)
		return -1;
	e->time = bpf_ktime_get_ns();
	e->segment = p->segment;
	e->payload = p->payload;
	e->kept = kept;
	if (copy_headers(s, e))
		return -1;
	return bpf_skb_load_bytes(s->skb, p->from, e->transport, kept);
}

/* Copies the headers of the packet of p into the ring buffer, with up to room bytes of
 * transport. */
static __always_inline void copy(const struct super *s, const struct piece *p, __u32 room)
{
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e) + room, 0);

	if (!e) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	if (fill(s, p, e, room)) {
		bpf_ringbuf_discard(e, BPF_RB_NO_WAKEUP);
		__sync_fetch_and_add(&others[MALFORMED], 1);
	} else {
		submit(e);
	}
}

/* Reports the i-th datagram of a packet; returns 1 after the last one. */
static long show(__u32 i, struct super *s)
{
	struct piece p = {.segment = i};
	struct roce_bth bth;

	p.from = s->udp + sizeof(struct udphdr) + i * s->size;
	if (p.from >= s->len)
		return 1;
	p.len = s->len - p.from;
	if (s->size) {
		if (p.len > s->size)
			p.len = s->size;
		p.payload = p.len;
	} else if (s->payload) {
		if (p.len > s->payload)
			p.len = s->payload;
		p.payload = s->payload;
	}
	if (bpf_skb_load_bytes(s->skb, p.from, &bth, sizeof(bth))) {
		__sync_fetch_and_add(&others[MALFORMED], 1);
		return 1;
	}
	if ((bpf_ntohl(bth.qpn) & ROCE_24BITS) == GSI_QPN)
		copy(s, &p, MANAGEMENT);
	else
		copy(s, &p, TRANSPORT);
	return !s->size;
}

static __always_inline int is_vlan(__be16 type)
{
	return type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD) || type == bpf_htons(ETH_P_QINQ1);
}

/*
 * Skips VLAN tags at the start of a packet, and returns the EtherType after them. The
 * kernel removes the outermost tag of a received frame. A sent frame begins at its IP
 * header even if it has tags; then its start differs from what follows the Ethernet header.
 */
static __always_inline __be16 skip_tags(struct __sk_buff *skb, __u32 *l3)
{
	__be16 type = skb->protocol;
	struct roce_vlan tag, after;
	__u8 version;
	int i;

	if (!is_vlan(type))
		return type;
	if (bpf_skb_load_bytes(skb, 0, &tag, sizeof(tag)) ||
	    bpf_skb_load_bytes_relative(skb, ETH_HLEN, &after, sizeof(after), BPF_HDR_START_MAC))
		return 0;
	if (tag.tci != after.tci || tag.proto != after.proto) {
		version = (tag.tci & bpf_htons(0xf000)) == bpf_htons(0x4000);
		return version ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	}
	for (i = 0; i < MOST_TAGS && is_vlan(type); i++) {
		if (bpf_skb_load_bytes(skb, *l3, &tag, sizeof(tag)))
			return 0;
		type = tag.proto;
		*l3 += sizeof(tag);
	}
	return type;
}

/* Returns the reason for which a protocol of IP is not RoCEv2. */
static __always_inline enum reason protocol(__u8 next)
{
	switch (next) {
	case IPPROTO_TCP:
		return TCP;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		return ICMP;
	case IPPROTO_GRE:
		return GRE;
	case IPPROTO_IPIP:
	case IPPROTO_IPV6:
		return IP_IN_IP;
	}
	return OTHER_PROTOCOL;
}

/* Finds the UDP header of an IPv4 packet; returns REASONS or the reason for which there is none. */
static __always_inline enum reason find_ipv4(struct super *s)
{
	struct iphdr ip;

	if (bpf_skb_load_bytes(s->skb, s->l3, &ip, sizeof(ip)) || ip.version != 4 || ip.ihl < 5)
		return MALFORMED;
	if (ip.frag_off & bpf_htons(ROCE_IP_FRAGMENT))
		return FRAGMENT;
	if (ip.protocol != IPPROTO_UDP)
		return protocol(ip.protocol);
	s->l3_len = ip.ihl * 4;
	s->udp = s->l3 + s->l3_len;
	return REASONS;
}

/* An extension header of IPv6, or its first bytes. */
struct extension {
	__u8 next;
	__u8 len; /* of all but routing and fragment headers, in 8 bytes less 1 */
	__be16 offset; /* of a fragment header: offset and more-fragments flag */
};

/* Finds the UDP header of an IPv6 packet, like find_ipv4. */
static __always_inline enum reason find_ipv6(struct super *s)
{
	struct extension x;
	struct ipv6hdr ip;
	__u8 next;
	int i;

	if (bpf_skb_load_bytes(s->skb, s->l3, &ip, sizeof(ip)) || ip.version != 6)
		return MALFORMED;
	next = ip.nexthdr;
	s->l3_len = sizeof(ip);
	s->udp = s->l3 + sizeof(ip);
	for (i = 0; i < MOST_EXTENSIONS; i++) {
		if (next == IPPROTO_UDP)
			return REASONS;
		if (next != IPPROTO_HOPOPTS && next != IPPROTO_DSTOPTS && next != IPPROTO_ROUTING && next != IPPROTO_FRAGMENT)
			return protocol(next);
		if (bpf_skb_load_bytes(s->skb, s->udp, &x, sizeof(x)))
			return MALFORMED;
		if (next != IPPROTO_FRAGMENT)
			s->udp += (x.len + 1) * 8;
		else if (x.offset & bpf_htons(0xfff9))
			return FRAGMENT;
		else
			s->udp += 8;
		next = x.next;
		s->payload = 1;
	}
	return TOO_DEEP;
}

/* Finds the headers of a packet; returns REASONS or the reason for which it is not reported. */
static __always_inline enum reason find(struct super *s)
{
	__be16 type = skip_tags(s->skb, &s->l3);
	enum reason why;
	struct udphdr udp;

	switch (bpf_ntohs(type)) {
	case ETH_P_IP:
		why = find_ipv4(s);
		break;
	case ETH_P_IPV6:
		why = find_ipv6(s);
		break;
	case ETH_P_ARP:
		return ARP;
	case ETH_P_IBOE:
		return ROCE_V1;
	case ETH_P_MPLS_UC:
	case ETH_P_MPLS_MC:
		return MPLS;
	default:
		return OTHER_TYPE;
	}
	if (why != REASONS)
		return why;
	if (bpf_skb_load_bytes(s->skb, s->udp, &udp, sizeof(udp)))
		return MALFORMED;
	if (s->payload)
		s->payload = bpf_ntohs(udp.len) - sizeof(udp);
	switch (bpf_ntohs(udp.dest)) {
	case ROCE_PORT:
	case MRC_PORT:
		return REASONS;
	case 4789:
	case 8472:
		return VXLAN;
	case 6081:
		return GENEVE;
	}
	return OTHER_PORT;
}

/* Counts a packet that is not reported; each reason has an instruction of its own, for the same verifier. */
static __always_inline void count(enum reason why)
{
	unsigned int i;

#pragma unroll
	for (i = 0; i < REASONS; i++) {
		if (why != i)
			continue;
		__sync_fetch_and_add(&others[i], 1);
		asm volatile("");
	}
}

SEC("socket")
int watch(struct __sk_buff *skb)
{
	struct super s = {.skb = skb, .len = skb->len, .size = skb->gso_size};
	enum reason why = find(&s);

	if (why < REASONS)
		count(why);
	else
		bpf_loop(MAX_SEGMENTS, show, &s, 0);
	return 0; /* nothing for the socket */
}

char _license[] SEC("license") = "Dual BSD/GPL"; /* gives access to all helpers */
