package rocev2

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
)

// script replaces the state machine of a queue pair: it sends the packets of out and records received packets.
type script struct {
	out      []bth.Packet
	ah       []uint32
	paths    []uint32
	endless  bool // restart at the end of out
	sent     int
	bytes    int
	got      []bth.Packet
	grh      [][]byte
	ce       int
	from     []uint32 // paths of got
	keep     bool
	verdict  qp.Drop
	deadline mono.Time
	flushed  int // packets polled at the last Flushed
	flushes  int
	timeouts int
	cnps     int
	bells    int
	resumed  int
}

func (s *script) Receive(_ mono.Time, p *bth.Packet, m qp.RxMeta) qp.Drop {
	if s.keep {
		c := *p
		c.Payload = bytes.Clone(p.Payload)
		s.got = append(s.got, c)
		s.grh = append(s.grh, bytes.Clone(m.GRH))
		s.from = append(s.from, m.Path)
	}
	if m.CE {
		s.ce++
	}
	return s.verdict
}
func (s *script) Resume(mono.Time)       { s.resumed++ }
func (s *script) Doorbell(mono.Time)     { s.bells++ }
func (s *script) OnCNP(mono.Time)        { s.cnps++ }
func (s *script) OnTimeout(mono.Time)    { s.timeouts++; s.deadline = mono.Never }
func (s *script) Flushing() bool         { return false }
func (s *script) NextTimeout() mono.Time { return s.deadline }
func (s *script) Flushed(mono.Time)      { s.flushed = s.sent; s.flushes++ }
func (s *script) PollTransmit(_ mono.Time, t *qp.Transmit) bool {
	i := s.sent
	if s.endless {
		i %= len(s.out)
	}
	if i >= len(s.out) {
		return false
	}
	t.Packet = s.out[i]
	if s.ah != nil {
		t.AH = s.ah[i]
	}
	if s.paths != nil {
		t.Path = s.paths[i]
	}
	s.sent++
	s.bytes += t.Packet.WireLen()
	return true
}

// newScript returns a script of the packets out.
func newScript(out ...bth.Packet) *script {
	return &script{out: out, deadline: mono.Never, keep: true}
}

var (
	macA = inet.MAC{2, 0, 0, 0, 0, 0xa}
	macB = inet.MAC{2, 0, 0, 0, 0, 0xb}
)

func testConfig(mac inet.MAC, addrs ...string) Config {
	cfg := Config{Name: "test", MAC: mac, MTU: 4300}
	for _, a := range addrs {
		cfg.Addrs = append(cfg.Addrs, netip.MustParsePrefix(a))
	}
	return cfg
}

func newNIC(t testing.TB, cfg Config) *NIC {
	t.Helper()
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func nicA(t testing.TB) *NIC { return newNIC(t, testConfig(macA, "10.0.0.1/24", "fd00::1/64")) }

func gid(a string) inet.GID { return inet.GIDOf(netip.MustParseAddr(a)) }

// connect gives q a path and, if mac is set, the address of the neighbour.
func connect(t testing.TB, n *NIC, q *QueuePair, sgid uint8, dst string, mac *inet.MAC) {
	t.Helper()
	p, err := n.net.NewPath(0, AddressVector{SGIDIndex: sgid, DGID: gid(dst)})
	if err != nil {
		t.Fatal(err)
	}
	q.path = p
	if mac != nil && p.Next != nil {
		n.net.Learn(0, p.Next, *mac)
		discardAll(n)
	}
}

func discardAll(n *NIC) {
	for n.PollTransmit(0) != nil {
	}
}

// wire is a frame that has left.
type wire struct {
	b       []byte
	segSize int
}

// transmit polls all frames that n sends.
func transmit(n *NIC, now mono.Time) (out []wire) {
	for f := n.PollTransmit(now); f != nil; f = n.PollTransmit(now) {
		w := wire{f.AppendTo(nil), f.SegSize}
		if len(w.b) != f.Len {
			panic("Len is not the sum of the pieces")
		}
		out = append(out, w)
	}
	return out
}

// split returns the single frames of out.
func split(out []wire) (frames [][]byte) {
	for _, w := range out {
		for i := range link.Segments(w.b, w.segSize) {
			frames = append(frames, link.Segment(nil, w.b, w.segSize, i))
		}
	}
	return frames
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// counter returns a counter of n by its name.
func counter(t testing.TB, n *NIC, name string) uint64 {
	t.Helper()
	for _, c := range n.CounterSnapshot() {
		if c.Name == name {
			return c.Value
		}
	}
	t.Fatalf("no counter %s", name)
	return 0
}

// payload returns n bytes that depend on position and seed.
func payload(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
	return b
}

// write returns the packets of an RDMA WRITE of size bytes to QP dest.
func write(dest bth.QPN, psn uint32, size, mtu int) (out []bth.Packet) {
	data := payload(size, int(psn))
	for off := 0; off < size; off += mtu {
		p := bth.Packet{Opcode: bth.OpWriteMiddle, PKey: bth.DefaultPKey, DestQP: dest,
			PSN: bth.MakePSN(psn), Payload: data[off:min(off+mtu, size)]}
		psn++
		last := off+mtu >= size
		switch {
		case off == 0 && last:
			p.Opcode = bth.OpWriteOnly
		case off == 0:
			p.Opcode = bth.OpWriteFirst
		case last:
			p.Opcode, p.AckReq = bth.OpWriteLast, true
		}
		p.RETH = bth.RETH{VA: 0x1000, RKey: 0x77, Length: uint32(size)}
		out = append(out, p)
	}
	return out
}

// sends returns SEND ONLY packets of the given sizes.
func sends(dest bth.QPN, psn uint32, sizes ...int) (out []bth.Packet) {
	for _, n := range sizes {
		out = append(out, bth.Packet{Opcode: bth.OpSendOnly, PKey: bth.DefaultPKey, DestQP: dest,
			PSN: bth.MakePSN(psn), AckReq: true, Payload: payload(n, int(psn))})
		psn++
	}
	return out
}
