package tap

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
)

// Offsets in a frame, and the kernel's ancillary data (linux/filter.h).
const (
	offEtherType = 12
	offIPv4Frag  = ethLen + 6
	offIPv4Proto = ethLen + 9
	offIPv4Dst   = ethLen + 16
	offIPv6Next  = ethLen + 6
	offIPv6Dst   = ethLen + 24
	offIPv6Port  = ethLen + 40 + 2

	filterAncillary = 1<<32 - 0x1000 // SKF_AD_OFF, -0x1000
	filterPktType   = filterAncillary + 4
	filterVLAN      = filterAncillary + 48
	filterAll       = 1 << 18 // longer than any frame
	ipv4FragMask    = 0x1fff  // offset; a first fragment has the UDP header, and the NIC counts it
)

// packetFilter is a socket filter (classic BPF) that accepts untagged frames to this
// station or to a group of stations with UDP datagrams to the RoCEv2 port of one of the addresses,
// which may be those of groups. A tag would not be in the frame but beside it, so nothing behind the
// filter could tell.
func packetFilter(addrs []netip.Addr) []unix.SockFilter {
	p := program{}
	p.load(unix.BPF_W|unix.BPF_ABS, filterPktType)
	p.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 2, 0, unix.PACKET_HOST)
	p.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 1, 0, unix.PACKET_MULTICAST)
	p.reject()
	p.unless(unix.BPF_W|unix.BPF_ABS, filterVLAN, 0)
	var v4, v6 []netip.Addr
	for _, a := range addrs {
		if a.Is4() {
			v4 = append(v4, a)
		} else {
			v6 = append(v6, a)
		}
	}
	p.load(unix.BPF_H|unix.BPF_ABS, offEtherType)
	six := p.branch(unix.ETH_P_IP)
	p.unless(unix.BPF_B|unix.BPF_ABS, offIPv4Proto, unix.IPPROTO_UDP)
	p.load(unix.BPF_H|unix.BPF_ABS, offIPv4Frag)
	p.add(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, 0, 1, ipv4FragMask)
	p.reject()
	p.load(unix.BPF_B|unix.BPF_MSH, ethLen) // into X: the length of the header
	p.unless(unix.BPF_H|unix.BPF_IND, ethLen+2, bth.UDPPort)
	for _, a := range v4 {
		p.load(unix.BPF_W|unix.BPF_ABS, offIPv4Dst)
		b := a.As4()
		p.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 0, 1, binary.BigEndian.Uint32(b[:]))
		p.accept()
	}
	p.reject()
	p.land(six)
	p.unless(unix.BPF_H|unix.BPF_ABS, offEtherType, unix.ETH_P_IPV6)
	p.unless(unix.BPF_B|unix.BPF_ABS, offIPv6Next, unix.IPPROTO_UDP)
	p.unless(unix.BPF_H|unix.BPF_ABS, offIPv6Port, bth.UDPPort)
	for _, a := range v6 {
		b := a.As16()
		for i := range uint8(4) {
			p.load(unix.BPF_W|unix.BPF_ABS, offIPv6Dst+4*uint32(i))
			toNext := 2*(3-i) + 1
			p.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 0, toNext, binary.BigEndian.Uint32(b[4*i:]))
		}
		p.accept()
	}
	p.reject()
	return p
}

// program is a filter being written.
type program []unix.SockFilter

func (p *program) add(code uint16, jt, jf uint8, k uint32) {
	*p = append(*p, unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k})
}

// load puts a field into the accumulator, or with BPF_MSH an IPv4 header's length into X.
func (p *program) load(size uint16, k uint32) {
	class := uint16(unix.BPF_LD)
	if size&0xe0 == unix.BPF_MSH {
		class = unix.BPF_LDX
	}
	p.add(class|size, 0, 0, k)
}

// unless rejects frames in which a field does not have the value want.
func (p *program) unless(size uint16, field, want uint32) {
	p.load(size, field)
	p.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 1, 0, want)
	p.reject()
}

func (p *program) accept() { p.add(unix.BPF_RET|unix.BPF_K, 0, 0, filterAll) }
func (p *program) reject() { p.add(unix.BPF_RET|unix.BPF_K, 0, 0, 0) }

// branch jumps to where land is called unless the accumulator is want. It jumps by a
// JA, which reaches further than a condition.
func (p *program) branch(want uint32) (from int) {
	p.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 1, 0, want)
	p.add(unix.BPF_JMP|unix.BPF_JA, 0, 0, 0)
	return len(*p) - 1
}

func (p *program) land(from int) { (*p)[from].K = uint32(len(*p) - from - 1) }
