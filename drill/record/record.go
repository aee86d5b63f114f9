// Package record turns a capture of one queue pair into a script. The script replays the peer's packets and expects those of
// the device; a reader edits it to what the test is about.
package record

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"roced.io/roced/bth"
	"roced.io/roced/drill/frame"
	"roced.io/roced/internal/observe/pcapng"
)

// packet is a frame of the connection.
type packet struct {
	*frame.Frame
	number  int  // of the frame in the capture, from 1 as in Wireshark
	fromDUT bool // else from the peer, whose part the tester plays
}

// read returns the RoCEv2 frames of a capture.
func read(capture io.Reader) ([]packet, error) {
	r, err := pcapng.NewReader(capture)
	if err != nil {
		return nil, err
	}
	var out []packet
	var f pcapng.Frame
	for n := 1; ; n++ {
		err := r.Next(&f)
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if f.Link != pcapng.LinkEthernet {
			return nil, fmt.Errorf("link type %d: only captures of Ethernet can be recorded", f.Link)
		}
		if p, err := frame.Parse(bytes.Clone(f.Data)); err == nil {
			out = append(out, packet{Frame: p, number: n})
		}
	}
}

// field returns a field, 0 if the packet does not have it.
func (p *packet) field(name string) uint64 {
	v, _ := p.Get(name)
	return v
}

// hosts returns the addresses of a packet.
func (p *packet) hosts() (src, dst string) {
	s, _ := p.Address("ip.src")
	d, _ := p.Address("ip.dst")
	return string(s), string(d)
}

// Device names a queue pair of a capture. Queue pairs of two hosts may have the same number: Addr, if valid, selects one.
type Device struct {
	QPN  uint64
	Addr netip.Addr
}

// String returns the queue pair for messages.
func (d Device) String() string {
	if d.Addr.IsValid() {
		return fmt.Sprintf("%#x of %v", d.QPN, d.Addr)
	}
	return fmt.Sprintf("%#x", d.QPN)
}

// has reports whether a packet goes to the queue pair.
func (d Device) has(p *packet) bool {
	_, dst := p.hosts()
	return p.field("dst") == d.QPN && (!d.Addr.IsValid() || dst == string(d.Addr.AsSlice()))
}

// connection returns the packets between the queue pair d and its peer. The peer's queue pair is the destination of most of
// the device's packets.
func connection(all []packet, d Device) ([]packet, error) {
	i := slices.IndexFunc(all, func(p packet) bool { return d.has(&p) })
	if i < 0 {
		return nil, fmt.Errorf("no packet goes to queue pair %v; the capture has %s", d, queuePairs(all))
	}
	peer, dut := all[i].hosts()
	transport := all[i].Opcode & transportBits
	count := map[uint64]int{}
	best := uint64(0)
	for _, p := range all {
		if src, dst := p.hosts(); src == dut && dst == peer && p.Opcode&transportBits == transport {
			to := p.field("dst")
			if count[to]++; count[to] > count[best] {
				best = to
			}
		}
	}
	var out []packet
	for _, p := range all {
		src, dst := p.hosts()
		switch to := p.field("dst"); {
		case src == peer && dst == dut && to == d.QPN:
			out = append(out, p)
		case src == dut && dst == peer && to == best:
			p.fromDUT = true
			out = append(out, p)
		}
	}
	if name := frame.OpcodeName(out[0].Opcode); transport != 0 && transport != unreliable {
		return nil, fmt.Errorf("queue pair %v has packets such as %s; only those of RC and UC can be recorded", d, name)
	}
	return out, nil
}

// Transports in the upper bits of opcodes (IBTA vol.1 9.2.1).
const (
	transportBits bth.Opcode = 0xe0
	unreliable    bth.Opcode = 0x20 // UC
)

// queuePairs lists the destinations of a capture.
func queuePairs(all []packet) string {
	var list []uint64
	for _, p := range all {
		if to := p.field("dst"); !slices.Contains(list, to) {
			list = append(list, to)
		}
	}
	if len(list) == 0 {
		return "no RoCEv2 packets"
	}
	slices.Sort(list)
	const most = 20
	text := make([]string, 0, most)
	for _, q := range list[:min(most, len(list))] {
		text = append(text, fmt.Sprintf("%#x", q))
	}
	return strings.Join(text, ", ")
}

// Script returns a script of the queue pair's packets. name describes the capture.
func Script(capture io.Reader, name string, d Device) (string, error) {
	all, err := read(capture)
	if err != nil {
		return "", err
	}
	packets, err := connection(all, d)
	if err != nil {
		return "", err
	}
	w := newWriter(packets)
	w.head(name, d)
	for i := 0; i < len(packets); {
		i += w.packet(packets[i:])
	}
	w.completions()
	return w.b.String(), nil
}
