package rocev2

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/stack"
)

// onSockets returns a NIC on sockets at 10.0.0.2, with a queue pair 0x22 connected to 10.0.0.1.
func onSockets(t testing.TB, change func(*Config)) (*NIC, *QueuePair, *script) {
	t.Helper()
	cfg := testConfig(macB, "10.0.0.2/24", "fd00::2/64")
	cfg.Shared, cfg.Sockets, cfg.Routes = true, true, cfg.Addrs
	if change != nil {
		change(&cfg)
	}
	n := newNIC(t, cfg)
	s := newScript()
	q := plug(t, n, 0x22, qp.RC, s)
	connect(t, n, q, 0, "10.0.0.1", &macA)
	return n, q, s
}

// peerFrames returns frames to 10.0.0.2 from a NIC that counts IDs from id.
func peerFrames(t testing.TB, id uint16, o link.Offload, out ...bth.Packet) []wire {
	t.Helper()
	cfg := testConfig(macA, "10.0.0.1/24", "fd00::1/64")
	cfg.Offload = o
	binary.BigEndian.PutUint16(cfg.Seed[:], id)
	n := newNIC(t, cfg)
	q := plug(t, n, 0x11, qp.RC, newScript(out...))
	connect(t, n, q, 0, "10.0.0.2", &macB)
	n.sch.activate(q)
	return transmit(n, 0)
}

// blind removes the information that a socket does not report: the ID becomes the expected one.
func blind(b []byte) []byte {
	ip := b[inet.EthernetLen : inet.EthernetLen+inet.IPv4Len]
	ip[4], ip[5] = 0, 0
	ip[6] |= ipv4DF >> 8
	inet.SealIPv4(ip)
	return b
}

// seen is an observer that checks the ICRC of all frames.
type seen struct {
	t   *rapid.T
	ids []uint16
}

func (s *seen) Frame(_ mono.Time, _ link.Direction, frame []byte, comment string) {
	if err := bth.CheckICRC(frame[inet.EthernetLen:]); err != nil || inet.Checksum(0, frame[inet.EthernetLen:inet.EthernetLen+inet.IPv4Len]) != 0 || comment != "" {
		s.t.Errorf("observed: %v, checksum %x, %q", err, inet.Checksum(0, frame[inet.EthernetLen:inet.EthernetLen+inet.IPv4Len]), comment)
	}
	s.ids = append(s.ids, binary.BigEndian.Uint16(frame[inet.EthernetLen+4:]))
}

// TestSocketsFindTheID receives from a NIC with arbitrary IDs.
func TestSocketsFindTheID(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n, _, s := onSockets(t, nil)
		o := &seen{t: rt}
		n.SetObserver(o)
		offload := rapid.SampledFrom([]link.Offload{{}, superOffload()}).Draw(rt, "offload")
		id := rapid.Uint16().Draw(rt, "id")
		out := write(0x22, 7, rapid.IntRange(1, 60_000).Draw(rt, "size"), 1024)
		for _, w := range peerFrames(t, id, offload, out...) {
			n.Receive(0, blind(w.b), w.segSize)
		}
		if len(s.got) != len(out) || n.ctr.RxDropped() != 0 {
			rt.Fatalf("%d of %d packets, %d dropped", len(s.got), len(out), n.ctr.RxDropped())
		}
		for i, got := range o.ids {
			if got != id+uint16(i) {
				rt.Fatalf("packet %d: ID %d, want %d", i, got, id+uint16(i))
			}
		}
	})
}

// TestSocketsFindDF receives a packet that was sent without DF.
func TestSocketsFindDF(t *testing.T) {
	n, _, s := onSockets(t, nil)
	w := peerFrames(t, 77, link.Offload{}, sends(0x22, 0, 100)...)[0]
	w.b[inet.EthernetLen+6] = 0
	if err := bth.SealICRC(w.b[inet.EthernetLen:]); err != nil {
		t.Fatal(err)
	}
	n.Receive(0, blind(w.b), 0)
	if len(s.got) != 1 {
		t.Errorf("%d packets, %d dropped", len(s.got), n.ctr.RxDropped())
	}
}

// TestSocketsFindErrors changes packets in transit: one of 2^15 is mistaken for a packet with another ID.
func TestSocketsFindErrors(t *testing.T) {
	n, _, s := onSockets(t, nil)
	r := rand.New(rand.NewPCG(1, 2))
	frame := peerFrames(t, 77, link.Offload{}, sends(0x22, 0, 1000)...)[0].b
	const runs = 50_000
	wrong := 0
	for range runs {
		b := blind(append([]byte(nil), frame...))
		for range 1 + r.IntN(8) {
			b[inet.EthernetLen+inet.IPv4Len+inet.UDPLen+bth.BTHLen+r.IntN(1000)] ^= byte(1 + r.IntN(255))
		}
		before := len(s.got)
		n.Receive(0, b, 0)
		wrong += len(s.got) - before
	}
	if wrong > 8 {
		t.Errorf("%d of %d are accepted", wrong, runs)
	}
}

// TestSocketsHoldPeersToTheirIDs: 25 bits of the ICRC check a peer of the same kind, until another peer replaces it.
func TestSocketsHoldPeersToTheirIDs(t *testing.T) {
	n, q, s := onSockets(t, nil)
	for i := range 2 * stack.HeldPeer {
		id := uint16(i % 2 * i) // GRO has merged some
		n.Receive(0, blind(peerFrames(t, id, link.Offload{}, sends(0x22, uint32(i), 64)...)[0].b), 0)
	}
	if len(s.got) != 2*stack.HeldPeer || q.path.Next.Alike() != stack.HeldPeer {
		t.Fatalf("%d packets, %d of them as expected", len(s.got), q.path.Next.Alike())
	}
	for i, want := range []int{0, 0, 1, 2} {
		n.Receive(0, blind(peerFrames(t, 4711, link.Offload{}, sends(0x22, uint32(i), 64)...)[0].b), 0)
		if got := len(s.got) - 2*stack.HeldPeer; got != want {
			t.Errorf("after packet %d with another ID: %d accepted, want %d", i, got, want)
		}
	}
}

// TestSocketsKnowTheirKind: super-frames to a peer are marked until the peer has shown that it is a NIC on sockets.
// They are marked again when it is not.
func TestSocketsKnowTheirKind(t *testing.T) {
	n, q, s := onSockets(t, func(cfg *Config) { cfg.Offload = superOffload() })
	psn := uint32(0)
	receive := func(id uint16) {
		n.Receive(0, blind(peerFrames(t, id, link.Offload{}, sends(0x22, psn, 64)...)[0].b), 0)
		psn++
	}
	apart := func() (marked bool) {
		s.out = append(s.out, write(0x11, 3, 4096, 1024)...)
		n.sch.activate(q)
		for f := n.PollTransmit(0); f != nil; f = n.PollTransmit(0) {
			if f.SegSize == 0 && f.Apart {
				t.Error("a single frame is marked")
			}
			marked = marked || f.Apart
		}
		return marked
	}
	for i := range 2 * stack.LikePeer {
		if !apart() {
			t.Fatalf("not marked after %d packets", i)
		}
		receive(uint16(i)) // from a peer that counts IDs
	}
	for range stack.LikePeer - 1 {
		receive(0)
	}
	if apart() {
		t.Error("marked for a NIC on sockets")
	}
	receive(maxSocketID)
	if !apart() {
		t.Error("not marked for another peer")
	}
}

// TestSocketsRecogniseTranslation reports a NAT and nothing else.
func TestSocketsRecogniseTranslation(t *testing.T) {
	sender, own, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.9.8.7")
	for _, c := range []struct {
		at  int // offset of the address changed in transit
		now netip.Addr
		ok  func(Translation) bool
	}{
		{ipv4Src, other, func(tr Translation) bool { return tr.Src == other && tr.Dst == own && tr.From == sender }},
		{ipv4Dst, own, func(tr Translation) bool { return tr.Src == sender && tr.Dst == own && tr.To == other }},
	} {
		var told []Translation
		n, _, s := onSockets(t, func(cfg *Config) {
			cfg.Translated = func(tr Translation) { told = append(told, tr) }
		})
		for i := range 20 { // different errors
			b := blind(peerFrames(t, 0, link.Offload{}, sends(0x22, 0, 100)...)[0].b)
			b[60+i] ^= byte(1 + i)
			n.Receive(0, b, 0)
		}
		if len(told) != 0 {
			t.Errorf("told of %+v without any", told)
		}
		for i := range 20 {
			b := peerFrames(t, 0, link.Offload{}, sends(0x22, uint32(i), 100+4*i)...)[0].b
			if c.at == ipv4Dst {
				copy(b[inet.EthernetLen+ipv4Dst:], other.AsSlice())
				if err := bth.SealICRC(b[inet.EthernetLen:]); err != nil {
					t.Fatal(err)
				}
			}
			copy(b[inet.EthernetLen+c.at:], c.now.AsSlice())
			n.Receive(0, blind(b), 0)
		}
		if len(s.got) != 0 || len(told) != 1 || !c.ok(told[0]) {
			t.Errorf("accepted %d, told of %+v", len(s.got), told)
		}
	}
}

// TestSocketsSend: IDs count from 0 in each frame, and connections share few source ports.
func TestSocketsSend(t *testing.T) {
	n, q, s := onSockets(t, func(cfg *Config) { cfg.Offload = superOffload() })
	s.out = write(0x11, 3, 65536, 4096)
	n.sch.activate(q)
	frames := 0
	for _, w := range transmit(n, 0) {
		for i := range link.Segments(w.b, w.segSize) {
			b := link.Segment(nil, w.b, w.segSize, i)
			if id := binary.BigEndian.Uint16(b[inet.EthernetLen+4:]); int(id) != i || bth.CheckICRC(b[inet.EthernetLen:]) != nil {
				t.Errorf("segment %d: ID %d, ICRC %v", i, id, bth.CheckICRC(b[inet.EthernetLen:]))
			}
			frames++
		}
	}
	if frames != 16 {
		t.Errorf("%d frames", frames)
	}
	ports := map[uint16]bool{}
	for i := range 1000 {
		n.net.SetQPNs(&q.path, bth.QPN(i*17), 0x4711)
		ports[q.path.SourcePort()] = true
	}
	if len(ports) != 64 {
		t.Errorf("%d source ports", len(ports))
	}
}

// TestSocketsOnLoopback: addresses of the loopback interface work like others.
func TestSocketsOnLoopback(t *testing.T) {
	cfg := testConfig(macA, "127.0.0.1/8", "::1/128")
	if _, err := New(cfg); !errors.Is(err, stack.ErrAddress) {
		t.Errorf("without sockets: %v", err)
	}
	cfg.Shared, cfg.Sockets, cfg.Routes = true, true, cfg.Addrs
	n := newNIC(t, cfg)
	if _, err := n.net.NewPath(0, AddressVector{SGIDIndex: 0, DGID: gid("127.0.0.2")}); err != nil {
		t.Error(err)
	}
}
