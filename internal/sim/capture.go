package sim

import (
	"encoding/binary"
	"io"

	"roced.io/roced/bth"
	"roced.io/roced/internal/observe/pcapng"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/nic"
)

// capture writes the packets that enter a link as real frames: Ethernet, IPv4, UDP, the transport packet with
// payload and ICRC. PFC frames follow IEEE 802.1Qbb.
type capture struct {
	k      *nic.Cluster
	dscp   *[fabric.Classes]uint8
	w      *pcapng.Writer
	ifaces map[*fabric.Link]int
	frame  []byte
	err    error
}

// CaptureTo writes the packets that enter links to w as pcapng, with an interface for each. The links are those of parallel
// cables: their packets are in order of time. The returned function reports the first error. A link has at most one capture.
func (s *Simulation) CaptureTo(w io.Writer, links ...*fabric.Link) (failed func() error, err error) {
	c := &capture{k: s.cluster, dscp: s.cfg.DSCP, ifaces: map[*fabric.Link]int{}}
	if c.w, err = pcapng.NewWriter(w, "rocesim"); err != nil {
		return nil, err
	}
	for _, l := range links {
		if c.ifaces[l], err = c.w.AddInterface(pcapng.Interface{Name: l.Name, Link: pcapng.LinkEthernet}); err != nil {
			return nil, err
		}
		l.Tap = c
	}
	return func() error { return c.err }, nil
}

// Sent implements fabric.Tap.
func (c *capture) Sent(now engine.Time, l *fabric.Link, d *fabric.Packet) {
	switch d.Kind {
	case fabric.Pause:
		c.frame = appendPause(c.frame[:0], d)
	case fabric.Data:
		p, _, port := c.k.Packet(d)
		c.frame = AppendFrame(c.frame[:0], p, Headers{Src: d.Src, Dst: d.Dst, Port: port, ECN: d.ECN, DSCP: dscp(c.dscp, d.Class)})
		if d.Cut() {
			c.frame = c.frame[:len(c.frame)-len(p.Payload)-bth.ICRCLen]
		}
	default: // messages between switches have no standard format
		return
	}
	if err := c.w.WritePacket(pcapng.PacketInfo{Interface: c.ifaces[l], Time: int64(now / engine.Nanosecond)}, c.frame); err != nil && c.err == nil {
		c.err = err
	}
}

// Headers are the headers around a transport packet, in the numbers of a simulation.
type Headers struct {
	Src, Dst uint32 // hosts
	Port     uint16 // UDP source port
	ECN      uint8
	DSCP     uint8
}

// dscp returns the DSCP of a class.
func dscp(of *[fabric.Classes]uint8, class uint8) uint8 {
	if of == nil {
		return class << 3
	}
	return of[class]
}

// addr returns the address of a host, in 198.18.0.0/15 (RFC 2544).
func addr(host uint32) [4]byte {
	return [4]byte{198, 18 + byte(host>>16&1), byte(host >> 8), byte(host)}
}

// mac returns the locally administered address of a host.
func mac(host uint32) [6]byte {
	return [6]byte{2, 0, byte(host >> 24), byte(host >> 16), byte(host >> 8), byte(host)}
}

const (
	ipv4Len  = 20
	ttl      = 64
	protoUDP = 17
)

// AppendFrame appends p as a frame between two hosts, in the format of the daemon.
func AppendFrame(b []byte, p *bth.Packet, h Headers) []byte {
	dst, src := mac(h.Dst), mac(h.Src)
	b = append(append(b, dst[:]...), src[:]...)
	b = binary.BigEndian.AppendUint16(b, bth.EtherTypeIPv4)
	ip := len(b)
	from, to := addr(h.Src), addr(h.Dst)
	n := p.WireLen()
	b = append(b, 0x45, h.DSCP<<2|h.ECN)
	b = binary.BigEndian.AppendUint16(b, uint16(ipv4Len+bth.UDPLen+n))
	b = append(b, 0, 0, 0x40, 0, ttl, protoUDP, 0, 0) // don't fragment
	b = append(append(b, from[:]...), to[:]...)
	binary.BigEndian.PutUint16(b[ip+10:], checksum(b[ip:]))
	b = binary.BigEndian.AppendUint16(b, h.Port)
	b = binary.BigEndian.AppendUint16(b, bth.UDPPort)
	b = binary.BigEndian.AppendUint16(b, uint16(bth.UDPLen+n))
	b = append(b, 0, 0) // no UDP checksum (IBTA annex A17)
	b = p.AppendTo(b)
	if err := bth.SealICRC(b[ip:]); err != nil {
		panic("a frame that we have just made: " + err.Error())
	}
	return b
}

// checksum is the checksum of an IPv4 header (RFC 1071).
func checksum(h []byte) uint16 {
	sum := uint32(0)
	for i := 0; i+1 < len(h); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum>>16 + sum)
}

// appendPause appends a PFC frame: MAC control, opcode 0x0101, one class, time in quanta of 512 bits. A quantum is
// 5 ns, as at 100 Gb/s.
func appendPause(b []byte, d *fabric.Packet) []byte {
	b = append(b, 0x01, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0x88, 0x08, 0x01, 0x01, 0, 1<<d.Class)
	times := len(b)
	b = append(b, make([]byte, 60-18)...)
	binary.BigEndian.PutUint16(b[times+2*int(d.Class):], uint16(min(d.Ref/5, 0xffff)))
	return b
}
