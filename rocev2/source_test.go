package rocev2

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
)

// fromPort returns a frame of a SEND to the queue pair of onSockets, from a UDP source port.
func fromPort(t *testing.T, psn uint32, port uint16) []byte {
	b := peerFrames(t, 0, link.Offload{}, sends(0x22, psn, 100)...)[0].b
	binary.BigEndian.PutUint16(b[inet.EthernetLen+inet.IPv4Len:], port)
	if err := bth.SealICRC(b[inet.EthernetLen:]); err != nil {
		t.Fatal(err)
	}
	return blind(b)
}

// TestSourcePort: a NIC takes packets of a peer on this host only from the source port that it has learned from an accepted
// packet, while a socket is bound to it.
func TestSourcePort(t *testing.T) {
	const own, next, other = 0xc001, 0xc002, 0xd000
	bound, asked := map[uint16]bool{own: true, other: true}, 0
	n, q, s := onSockets(t, func(c *Config) {
		c.Bound = func(a netip.Addr, port uint16) bool {
			asked++
			return a == netip.MustParseAddr("10.0.0.1") && bound[port]
		}
	})
	q.source.learns = true
	now := mono.Time(1)
	for i, c := range []struct {
		what    string
		port    uint16
		later   bool
		verdict qp.Drop
		taken   bool
		asked   int
		closed  bool // the peer has closed its socket
	}{
		{what: "before the peer, dropped by the transport", port: other, verdict: qp.DropStaleAck, taken: true},
		{what: "the first accepted packet", port: own, taken: true, asked: 1},
		{what: "the same port", port: own, taken: true},
		{what: "another user", port: other, asked: 1},
		{what: "again", port: other},
		{what: "later", port: other, later: true, asked: 1},
		{what: "the same port after a flood", port: own, taken: true},
		{what: "the peer's new socket", port: next, later: true, closed: true, taken: true, asked: 2},
		{what: "a peer without a socket may have several ports", port: other, taken: true},
	} {
		if c.later {
			now = now.Add(sourcePause)
		}
		bound[own] = bound[own] && !c.closed
		before, drops := len(s.got), n.ctr.drops[rxSource]
		s.verdict, asked = c.verdict, 0
		n.Receive(now, fromPort(t, uint32(i), c.port), 0)
		if taken := len(s.got) > before; taken != c.taken || n.ctr.drops[rxSource] > drops == c.taken || asked != c.asked {
			t.Errorf("%s: taken %v, want %v; %d dropped; asked %d times, want %d", c.what, taken, c.taken,
				n.ctr.drops[rxSource]-drops, asked, c.asked)
		}
	}
}

// TestSourcePortOfCNP: the rule includes CNPs, which the transport does not judge.
func TestSourcePortOfCNP(t *testing.T) {
	n, q, s := onSockets(t, func(c *Config) { c.Bound = func(netip.Addr, uint16) bool { return true } })
	q.source.learns = true
	n.Receive(0, fromPort(t, 0, 0xc001), 0)
	for i, port := range []uint16{0xd000, 0xc001} {
		var cnp bth.Packet
		cnp.SetCNP(0x22)
		b := peerFrames(t, 0, link.Offload{}, cnp)[0].b
		binary.BigEndian.PutUint16(b[inet.EthernetLen+inet.IPv4Len:], port)
		if err := bth.SealICRC(b[inet.EthernetLen:]); err != nil {
			t.Fatal(err)
		}
		if n.Receive(0, blind(b), 0); s.cnps != i {
			t.Errorf("port %#x: %d CNPs, want %d", port, s.cnps, i)
		}
	}
}

// TestSourcePortLearners lists the queue pairs that learn.
func TestSourcePortLearners(t *testing.T) {
	anyBound := func(netip.Addr, uint16) bool { return true }
	for _, c := range []struct {
		what    string
		bound   func(netip.Addr, uint16) bool
		typ     qp.Type
		profile string
		to      string
		want    bool
	}{
		{"RC", anyBound, qp.RC, "rc", "10.0.0.1", true},
		{"UC", anyBound, qp.UC, "rc", "10.0.0.1", true},
		{"an extended transport with one path", anyBound, qp.RC, "irn", "10.0.0.1", true},
		{"datagrams", anyBound, qp.UD, "rc", "10.0.0.1", false},
		{"several paths", anyBound, qp.RC, "mp-rdma", "10.0.0.1", false},
		{"MRC", anyBound, qp.RC, "mrc", "10.0.0.1", false},
		{"the NIC itself", anyBound, qp.RC, "rc", "10.0.0.2", false},
		{"no sockets", nil, qp.RC, "rc", "10.0.0.1", false},
	} {
		n, q, _ := onSockets(t, func(cfg *Config) { cfg.Bound = c.bound })
		parts, err := profile.NewMaker(profile.Link{}).New(c.profile, profile.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		q.typ, q.core = c.typ, qp.New(qp.Config{Type: c.typ, Profile: parts})
		connect(t, n, q, 0, c.to, nil)
		if n.watchSource(q); q.source.learns != c.want {
			t.Errorf("%s: learns %t", c.what, q.source.learns)
		}
	}
}
