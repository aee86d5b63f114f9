//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Observes RoCEv2: a filter of a packet socket that copies the headers of RoCEv2
 * packets into a ring buffer and passes no packet to the socket itself. It sees the
 * same packets as tcpdump. A super-frame consists of datagrams with gso_size bytes;
 * the kernel segments it as late as possible. The program copies the headers of each
 * of its datagrams.
 *
 * The socket has type SOCK_DGRAM: packets start at the IP header.
 */
#include "roce.h"

#define GSI_QPN 1 /* queue pair of the connection manager */
#define MAX_SEGMENTS 128 /* UDP_MAX_SEGMENTS of the kernel */

#define HEADERS 68    /* longest IPv4 header, and UDP */
#define TRANSPORT 96  /* longest BTH with extension headers */
#define MANAGEMENT 276 /* BTH, DETH and a management datagram of 256 bytes */

/* Prevents optimizations after which the verifier does not see the bounds of v. */
#define KEEP(v) asm volatile("" : "+r"(v))

/* Record of a packet in the ring buffer. */
struct event {
	__u64 time;	   /* ns, CLOCK_MONOTONIC */
	__u16 segment;	   /* index in its super-frame */
	__u16 payload;	   /* bytes of the UDP payload of a segment; 0: as in the headers */
	__u16 headers_len; /* IP and UDP */
	__u16 kept;	   /* copied bytes of the UDP payload */
	__u8 headers[HEADERS];
	__u8 transport[]; /* TRANSPORT bytes; MANAGEMENT to the connection manager */
};

/* The loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

__u64 lost;		/* packets for which the ring buffer had no room */
volatile const __u64 wakeup; /* fill level in bytes that wakes the reader */

/* A single packet or a datagram of a super-frame: offset and length of its UDP payload. */
struct piece {
	__u32 headers;
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

/* Fills e with the packet of p and up to room bytes of its transport. */
static __always_inline int fill(struct __sk_buff *skb, const struct piece *p, struct event *e, __u32 room)
{
	__u64 headers = p->headers, kept = p->len;

	if (kept < sizeof(struct roce_bth))
		return -1;
	KEEP(kept);
	if (kept > room)
		kept = room;
	KEEP(kept);
	if (headers < 1)
		return -1;
	KEEP(headers);
	if (headers > HEADERS)
		return -1;
	e->time = bpf_ktime_get_ns();
	e->segment = p->segment;
	e->payload = p->payload;
	e->headers_len = headers;
	e->kept = kept;
	if (bpf_skb_load_bytes(skb, 0, e->headers, headers))
		return -1;
	return bpf_skb_load_bytes(skb, p->from, e->transport, kept);
}

/* Copies the headers of the packet of p into the ring buffer, with up to room bytes of
 * transport. */
static __always_inline void copy(struct __sk_buff *skb, const struct piece *p, __u32 room)
{
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e) + room, 0);

	if (!e) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	if (fill(skb, p, e, room))
		bpf_ringbuf_discard(e, BPF_RB_NO_WAKEUP);
	else
		submit(e);
}

/* A packet or super-frame. */
struct super {
	struct __sk_buff *skb;
	__u32 headers; /* bytes of IP and UDP headers */
	__u32 len;     /* bytes of all */
	__u32 size;    /* bytes of a datagram of a super-frame; 0: single packet */
};

/* Reports the i-th datagram of a packet; returns 1 after the last one. */
static long show(__u32 i, struct super *s)
{
	struct piece p = {.headers = s->headers, .segment = i};
	struct roce_bth bth;

	p.from = s->headers + i * s->size;
	if (p.from >= s->len)
		return 1;
	p.len = s->len - p.from;
	if (s->size) {
		if (p.len > s->size)
			p.len = s->size;
		p.payload = p.len;
	}
	if (bpf_skb_load_bytes(s->skb, p.from, &bth, sizeof(bth)))
		return 1;
	if ((bpf_ntohl(bth.qpn) & ROCE_24BITS) == GSI_QPN)
		copy(s->skb, &p, MANAGEMENT);
	else
		copy(s->skb, &p, TRANSPORT);
	return !s->size;
}

/* Returns the length of the IP header, 0 if no whole UDP datagram follows it. */
static __always_inline __u32 ip_len(struct __sk_buff *skb)
{
	struct ipv6hdr ip6;
	struct iphdr ip;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, 0, &ip, sizeof(ip)) || ip.version != 4 || ip.ihl < 5)
			return 0;
		if (ip.protocol != IPPROTO_UDP || ip.frag_off & bpf_htons(ROCE_IP_FRAGMENT))
			return 0;
		return ip.ihl * 4;
	}
	if (skb->protocol != bpf_htons(ETH_P_IPV6))
		return 0;
	if (bpf_skb_load_bytes(skb, 0, &ip6, sizeof(ip6)) || ip6.version != 6)
		return 0;
	return ip6.nexthdr == IPPROTO_UDP ? sizeof(ip6) : 0;
}

SEC("socket")
int watch(struct __sk_buff *skb)
{
	__u32 l3 = ip_len(skb);
	struct super s = {.skb = skb, .len = skb->len, .size = skb->gso_size};
	struct udphdr udp;

	if (!l3 || bpf_skb_load_bytes(skb, l3, &udp, sizeof(udp)) || udp.dest != bpf_htons(ROCE_PORT))
		return 0;
	s.headers = l3 + sizeof(udp);
	bpf_loop(MAX_SEGMENTS, show, &s, 0);
	return 0; /* nothing for the socket */
}

char _license[] SEC("license") = "Dual BSD/GPL"; /* gives access to all helpers */
