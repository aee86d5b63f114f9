// Package record turns a capture of one queue pair into a script. The script replays the peer's packets and expects those of
// the device; a reader edits it to what the test is about.
package record

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/drill/frame"
	"roced.io/roced/internal/observe/dissect"
	"roced.io/roced/internal/observe/flow"
	"roced.io/roced/internal/observe/pcapng"
)

// packet is a frame of the connection.
type packet struct {
	*frame.Frame
	number  int    // of the frame in the capture, from 1 as in Wireshark
	stream  uint64 // as in flow.Seen
	fromDUT bool   // else from the peer, whose part the tester plays
	copied  bool   // the network or the capture has duplicated it
}

// capture holds the packets of a file.
type capture struct {
	packets []packet
	streams []flow.Stream
	totals  flow.Totals
	end     dissect.Cut
	cut     []damaged // truncated inside their headers
	bad     []damaged // malformed, or with a wrong ICRC
}

// damaged is a frame that cannot be recorded.
type damaged struct {
	number   int
	src, dst netip.Addr
}

// read reads the RoCEv2 packets of a capture.
func read(in io.Reader, ignoreICRC bool) (c *capture, err error) {
	c = &capture{}
	a := flow.New(flow.Options{IgnoreICRC: ignoreICRC})
	c.end, err = dissect.Read(in, func(n int, f *pcapng.Frame, p *dissect.Packet) error {
		seen, ok := p.Analyse(a, f)
		switch d := (damaged{n, p.Datagram.Src, p.Datagram.Dst}); {
		case !p.RoCE:
		case seen.Partial || !ok && len(p.IP) < p.Datagram.End:
			c.cut = append(c.cut, d)
		case !ok:
			c.bad = append(c.bad, d)
		default:
			if x, err := frame.Parse(plain(p, &seen)); err == nil {
				c.packets = append(c.packets, packet{Frame: x, number: n, stream: seen.Stream, copied: seen.Copy})
			}
		}
		return nil
	})
	c.streams, c.totals = a.Streams(), a.Totals()
	return c, err
}

// plain returns the frame of a packet without tunnels, VLAN tags and extension headers of IPv6. Zeros stand for the truncated part of
// its payload, and for a missing ICRC.
func plain(p *dissect.Packet, s *flow.Seen) []byte {
	const nextHeader, udp = 6, 17
	d := &p.Datagram
	l3, etherType := d.UDP, uint16(inet.TypeIPv4)
	if !d.Src.Is4() {
		l3, etherType = inet.IPv6Len, inet.TypeIPv6
	}
	size := d.UDPLen + bth.ICRCLen - s.ICRC
	all := make([]byte, inet.EthernetLen+l3+size)
	b := inet.PutEthernet(all, &inet.MAC{}, &inet.MAC{}, 0, etherType)
	copy(b, p.IP[:l3])
	copy(b[l3:], p.IP[d.UDP:min(len(p.IP), d.End)])
	if etherType == inet.TypeIPv6 {
		b[nextHeader] = udp
	}
	inet.SetLengths(b[:l3], b[l3:], d.ID, size-inet.UDPLen)
	return all
}

// field returns a field, 0 if the packet does not have it.
func (p *packet) field(name string) uint64 {
	v, _ := p.Get(name)
	return v
}

// Device names a queue pair of a capture. Queue pairs of two hosts may have the same number: Addr, if valid, selects one.
type Device struct {
	QPN        uint64
	Addr       netip.Addr
	IgnoreICRC bool // the capture has no ICRCs, or wrong ones
}

// String returns the queue pair for messages.
func (d Device) String() string {
	if d.Addr.IsValid() {
		return fmt.Sprintf("%#x of %v", d.QPN, d.Addr)
	}
	return fmt.Sprintf("%#x", d.QPN)
}

// find returns the stream to the queue pair d.
func (c *capture) find(d Device) (s flow.Stream, err error) {
	var all []flow.Stream
	for _, s := range c.streams {
		if uint64(s.QPN) == d.QPN && (!d.Addr.IsValid() || s.Dst == d.Addr) && s.Transport != "" {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return s, fmt.Errorf("no packet goes to queue pair %v; the capture has %s", d, c.queuePairs())
	}
	s = all[0]
	for _, t := range all {
		switch {
		case t.Transport != "RC" && t.Transport != "UC" && t.Transport != "UD" || t.QPN < 2:
			return s, fmt.Errorf("queue pair %v has packets of %s; only those of RC, UC and UD can be recorded, but for the connection manager", d, t.Transport)
		case t.Dst != s.Dst:
			return s, fmt.Errorf("%v and %v both have a queue pair %#x: select one with --address", s.Dst, t.Dst, d.QPN)
		case t.Src != s.Src:
			return s, fmt.Errorf("queue pair %v has several peers, %v and %v: record a part of the capture with one of them", d, s.Src, t.Src)
		}
	}
	return s, nil
}

// peer returns the stream from the device to the peer of s, or an ID of 0 if the device has sent nothing. If no packet tells which one
// it is, the only stream left is.
func (c *capture) peer(s flow.Stream) (id uint64, err error) {
	if s.Peer != 0 || s.Transport == "UD" {
		return s.Peer, nil
	}
	var open []flow.Stream
	for _, t := range c.streams {
		if t.Src == s.Dst && t.Dst == s.Src && t.Peer == 0 && t.Transport == s.Transport {
			open = append(open, t)
		}
	}
	switch len(open) {
	case 0:
		return 0, nil
	case 1:
		return open[0].ID, nil
	}
	return 0, fmt.Errorf("no acknowledgement in the capture tells which peer queue pair %#x has: %#x, %#x or another", uint32(s.QPN), uint32(open[0].QPN), uint32(open[1].QPN))
}

// leaves reports whether the packets of a stream come from the device: back is that to the peer of a connection.
func (c *capture) leaves(s flow.Stream, back, id uint64) bool {
	if s.Transport != "UD" {
		return id == back
	}
	return slices.ContainsFunc(c.streams, func(t flow.Stream) bool {
		return t.ID == id && t.Transport == "UD" && t.Src == s.Dst && t.Dst == s.Src && t.From == s.QPN && t.QPN > 1
	})
}

// reaches reports whether the datagrams of a stream go to the device of s.
func (c *capture) reaches(s flow.Stream, id uint64) bool {
	return slices.ContainsFunc(c.streams, func(t flow.Stream) bool { return t.ID == id && t.Src == s.Src && t.Dst == s.Dst && t.QPN == s.QPN })
}

// connection returns the packets between the queue pair d and its peer.
func (c *capture) connection(d Device) (out []packet, s flow.Stream, err error) {
	if s, err = c.find(d); err != nil {
		return nil, s, err
	}
	back, err := c.peer(s)
	if err != nil {
		return nil, s, err
	}
	for _, x := range c.cut {
		if x.src == s.Src && x.dst == s.Dst || x.src == s.Dst && x.dst == s.Src {
			return nil, s, fmt.Errorf("frame %d is truncated inside its headers, so that its fields are unknown: capture at least 256 bytes of each frame", x.number)
		}
	}
	copies := 0
	for _, p := range c.packets {
		if p.fromDUT = c.leaves(s, back, p.stream); p.fromDUT || p.stream == s.ID || s.Transport == "UD" && c.reaches(s, p.stream) {
			out = append(out, p)
			if p.copied {
				copies++
			}
		}
	}
	// Copies that the network has made reached the device. Those of a capture that holds all packets twice did not.
	doubled := 3*copies >= len(out)
	out = slices.DeleteFunc(out, func(p packet) bool { return p.copied && (doubled || p.fromDUT) })
	return out, s, nil
}

// omitted returns the numbers of damaged frames between the hosts of s.
func (c *capture) omitted(s flow.Stream) (list []int) {
	for _, x := range c.bad {
		if x.src == s.Src && x.dst == s.Dst || x.src == s.Dst && x.dst == s.Src {
			list = append(list, x.number)
		}
	}
	return list
}

// queuePairs lists the destinations of a capture.
func (c *capture) queuePairs() string {
	var list []bth.QPN
	for _, s := range c.streams {
		list = append(list, s.QPN)
	}
	if len(list) == 0 {
		return "no RoCEv2 packets" + c.totals.Others.Instead()
	}
	slices.Sort(list)
	list = slices.Compact(list)
	const most = 20
	text := make([]string, 0, most)
	for _, q := range list[:min(most, len(list))] {
		text = append(text, fmt.Sprintf("%#x", uint32(q)))
	}
	return strings.Join(text, ", ") + c.totals.Forgotten()
}

// Script returns a script of the queue pair's packets. name describes the capture, which may be cut.
func Script(in io.Reader, name string, d Device) (string, error) {
	c, err := read(in, d.IgnoreICRC)
	if err != nil {
		return "", err
	}
	packets, s, err := c.connection(d)
	if err != nil {
		return "", err
	}
	w := newWriter(packets, strings.ToLower(s.Transport), s.MTU)
	w.head(name+c.end.String()+c.totals.Forgotten(), d)
	if list := c.omitted(s); len(list) > 0 {
		w.printf("# Omitted frames, which are malformed or have a wrong ICRC: %s", strings.Trim(fmt.Sprint(list), "[]"))
	}
	for i := 0; i < len(packets); {
		i += w.packet(i)
	}
	w.completions()
	return w.text(), nil
}
