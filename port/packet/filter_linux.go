package packet

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"roced.io/roced/port"
)

// Offsets in a frame, and the ancillary data of the kernel (linux/filter.h).
const (
	ethLen       = port.EthLen
	offEtherType = 12
	offIPv4Frag  = ethLen + 6
	offIPv4Proto = ethLen + 9
	offIPv4Dst   = ethLen + 16
	offIPv6Next  = ethLen + 6
	offIPv6Dst   = ethLen + 24
	offIPv6Port  = ethLen + 40 + 2

	filterAncillary = 1<<32 - 0x1000 // SKF_AD_OFF, -0x1000
	filterPktType   = filterAncillary + 4
	filterVLAN      = filterAncillary + 44 // SKF_AD_VLAN_TAG
	vlanID          = 0xfff                // of a tag; 0 carries only a priority
	filterAll       = 1 << 18              // longer than any frame
	ipv4FragMask    = 0x1fff               // offset; the filter accepts a first fragment, which the NIC counts
)

// filter returns a socket filter (classic BPF) that accepts unicast and multicast frames with UDP datagrams to a
// port of one of the addresses, which may be multicast groups. Frames in VLANs are those of VLAN interfaces. The kernel
// removes a VLAN tag from the frame, so only the filter can refuse tagged frames.
func filter(addrs []netip.Addr, port uint16) []unix.SockFilter {
	p := program{}
	p.load(unix.BPF_W|unix.BPF_ABS, filterPktType)
	p.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 2, 0, unix.PACKET_HOST)
	p.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 1, 0, unix.PACKET_MULTICAST)
	p.reject()
	p.load(unix.BPF_W|unix.BPF_ABS, filterVLAN)
	p.add(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, 0, 1, vlanID)
	p.reject()
	p.load(unix.BPF_H|unix.BPF_ABS, offEtherType)
	six := p.branch(unix.ETH_P_IP)
	p.unless(unix.BPF_B|unix.BPF_ABS, offIPv4Proto, unix.IPPROTO_UDP)
	p.load(unix.BPF_H|unix.BPF_ABS, offIPv4Frag)
	p.add(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, 0, 1, ipv4FragMask)
	p.reject()
	p.load(unix.BPF_B|unix.BPF_MSH, ethLen) // X = length of the IPv4 header
	p.unless(unix.BPF_H|unix.BPF_IND, ethLen+2, uint32(port))
	for _, a := range addrs {
		if !a.Is4() {
			continue
		}
		p.load(unix.BPF_W|unix.BPF_ABS, offIPv4Dst)
		b := a.As4()
		p.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 0, 1, binary.BigEndian.Uint32(b[:]))
		p.accept()
	}
	p.reject()
	p.land(six)
	p.unless(unix.BPF_H|unix.BPF_ABS, offEtherType, unix.ETH_P_IPV6)
	p.unless(unix.BPF_B|unix.BPF_ABS, offIPv6Next, unix.IPPROTO_UDP)
	p.unless(unix.BPF_H|unix.BPF_ABS, offIPv6Port, uint32(port))
	for _, a := range addrs {
		if !a.Is6() {
			continue
		}
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

// program is a filter under construction.
type program []unix.SockFilter

func (p *program) add(code uint16, jt, jf uint8, k uint32) {
	*p = append(*p, unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k})
}

// load loads a field into the accumulator, or with BPF_MSH the length of an IPv4 header into X.
func (p *program) load(size uint16, k uint32) {
	class := uint16(unix.BPF_LD)
	if size&0xe0 == unix.BPF_MSH {
		class = unix.BPF_LDX
	}
	p.add(class|size, 0, 0, k)
}

// unless rejects frames whose field differs from want.
func (p *program) unless(size uint16, field, want uint32) {
	p.load(size, field)
	p.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 1, 0, want)
	p.reject()
}

func (p *program) accept() { p.add(unix.BPF_RET|unix.BPF_K, 0, 0, filterAll) }
func (p *program) reject() { p.add(unix.BPF_RET|unix.BPF_K, 0, 0, 0) }

// branch jumps to the place of the call of land unless the accumulator equals want. It uses JA, whose offset has 32 bits
// instead of the 8 bits of a conditional jump.
func (p *program) branch(want uint32) (from int) {
	p.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 1, 0, want)
	p.add(unix.BPF_JMP|unix.BPF_JA, 0, 0, 0)
	return len(*p) - 1
}

func (p *program) land(from int) { (*p)[from].K = uint32(len(*p) - from - 1) }
