package rocev2

import (
	"bytes"
	"errors"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/bth/mad"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2/stack"
)

// inbox stores the management datagrams that a NIC receives.
type inbox struct {
	from []MADRoute
	got  [][]byte
	due  mono.Time
	runs int
}

func (g *inbox) ReceiveMAD(_ mono.Time, from MADRoute, m []byte) {
	g.from, g.got = append(g.from, from), append(g.got, bytes.Clone(m))
}
func (g *inbox) Advance(mono.Time)      { g.runs++; g.due = mono.Never }
func (g *inbox) NextTimeout() mono.Time { return g.due }
func (g *inbox) AppendCounters(s []Counter) []Counter {
	return append(s, Counter{Name: "gsi_runs", Value: uint64(g.runs)})
}

func gsiNIC(t *testing.T, mac inet.MAC, addrs ...string) (*NIC, *inbox) {
	t.Helper()
	n, g := newNIC(t, testConfig(mac, addrs...)), &inbox{due: mono.Never}
	n.SetGSI(g)
	return n, g
}

// exchange carries frames between the NICs until neither sends.
func exchange(now mono.Time, a, b *NIC) {
	for moved := true; moved; {
		moved = false
		for _, n := range [][2]*NIC{{a, b}, {b, a}} {
			for _, w := range transmit(n[0], now) {
				moved = true
				n[1].Receive(now, w.b, 0)
			}
		}
	}
}

func TestMADArrives(t *testing.T) {
	for _, c := range []struct{ src, dst, bits string }{
		{"198.18.0.1", "198.18.0.2", "/24"}, {"fd00::1", "fd00::2", "/64"}} {
		a, _ := gsiNIC(t, macA, c.src+c.bits)
		b, in := gsiNIC(t, macB, c.dst+c.bits)
		to := MADRoute{SGID: gid(c.src), DGID: gid(c.dst), TrafficClass: 0x68}
		for i := range byte(3) { // before the address is known, and after
			m := bytes.Repeat([]byte{i}, mad.Len)
			if err := a.SendMAD(0, to, m); err != nil {
				t.Fatal(err)
			}
			if i > 0 {
				exchange(0, a, b)
			}
		}
		want := MADRoute{SGID: to.DGID, DGID: to.SGID, TrafficClass: 0x68}
		if len(in.got) != 3 || in.from[0] != want {
			t.Fatalf("%s: %d datagrams from %+v", c.src, len(in.got), in.from)
		}
		for i, m := range in.got {
			if len(m) != mad.Len || m[0] != byte(i) {
				t.Errorf("%s: datagram %d is %x", c.src, i, m)
			}
		}
	}
}

func TestMADNotSent(t *testing.T) {
	a, _ := gsiNIC(t, macA, "198.18.0.1/24")
	m := make([]byte, mad.Len)
	to := MADRoute{SGID: gid("198.18.0.1"), DGID: gid("198.18.0.2")}
	for _, c := range []struct {
		name     string
		src, dst string
		m        []byte
		want     error
	}{
		{"length", "198.18.0.1", "198.18.0.2", m[1:], mad.ErrLength},
		{"not our address", "198.18.0.9", "198.18.0.2", m, stack.ErrGIDIndex},
		{"no route", "198.18.0.1", "198.19.0.2", m, ErrNoRoute},
		{"family", "198.18.0.1", "fd00::2", m, stack.ErrFamily},
	} {
		if err := a.SendMAD(0, MADRoute{SGID: gid(c.src), DGID: gid(c.dst)}, c.m); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := a.SendMAD(0, to, m); err != nil {
		t.Fatal(err)
	}
	nb, now := a.net.Neighbour(stack.Address{Addr: to.DGID}), mono.Time(0)
	for discardAll(a); nb.State != stack.Failed; discardAll(a) {
		now = a.NextTimeout()
		a.Advance(now)
	}
	if err := a.SendMAD(now, to, m); !errors.Is(err, ErrUnreachable) {
		t.Errorf("dead neighbour: %v", err)
	}
	if a.net.Counters.TxDroppedUnreachable != 2 { // the held one and this one
		t.Errorf("%d unreachable", a.net.Counters.TxDroppedUnreachable)
	}
	if nb.Refs != 0 {
		t.Errorf("%d references are left", nb.Refs)
	}
}

func TestMADQueueIsBounded(t *testing.T) {
	a, in := gsiNIC(t, macA, "198.18.0.1/24")
	discardAll(a)
	to := MADRoute{SGID: gid("198.18.0.1"), DGID: gid("198.18.0.1")}
	for i := range controlSlots + 1 {
		if err := a.SendMAD(0, to, make([]byte, mad.Len)); (err != nil) != (i == controlSlots) {
			t.Fatalf("%d: %v", i, err)
		}
	}
	for a.PollTransmit(0) != nil || a.NextTimeout() == 0 {
	}
	if len(in.got) != controlSlots || a.net.Counters.TxDroppedControl != 1 {
		t.Errorf("%d datagrams to ourselves, %d dropped", len(in.got), a.net.Counters.TxDroppedControl)
	}
}

func TestMADDrops(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(p *bth.Packet)
		want rxReason
	}{
		{"good", func(*bth.Packet) {}, rxOK},
		{"QP 0", func(p *bth.Packet) { p.DestQP = 0 }, rxQP0},
		{"immediate", func(p *bth.Packet) { p.Opcode = bth.TransportUD | bth.OpSendOnlyImm }, rxMAD},
		{"RC", func(p *bth.Packet) { p.Opcode = bth.OpSendOnly }, rxMAD},
		{"Q_Key", func(p *bth.Packet) { p.DETH.QKey = 1 }, rxMAD},
		{"source QP", func(p *bth.Packet) { p.DETH.SrcQP = 2 }, rxMAD},
		{"P_Key", func(p *bth.Packet) { p.PKey = 0x8001 }, rxPKey},
		{"limited member", func(p *bth.Packet) { p.PKey = 0x7fff }, rxOK},
	} {
		a, _ := gsiNIC(t, macA, "198.18.0.1/24")
		b, in := gsiNIC(t, macB, "198.18.0.2/24")
		if err := b.SendMAD(0, MADRoute{SGID: gid("198.18.0.2"), DGID: gid("198.18.0.1")}, make([]byte, mad.Len)); err != nil {
			t.Fatal(err)
		}
		exchange(0, b, a) // a knows b's address now, and b knows a's
		p := bth.Packet{Opcode: madOpcode, PKey: bth.DefaultPKey, DestQP: 1,
			DETH: bth.DETH{QKey: mad.QKey, SrcQP: 1}, Payload: make([]byte, mad.Len)}
		c.do(&p)
		path, err := a.madPath(0, MADRoute{SGID: gid("198.18.0.1"), DGID: gid("198.18.0.2")})
		if err != nil {
			t.Fatal(err)
		}
		f := p.AppendTo(append([]byte(nil), path.Headers()...))
		copy(f, macB[:])
		inet.SetLengths(f[inet.EthernetLen:path.L4()], f[path.L4():], 1, len(f)-int(path.Len()))
		inet.SealIPv4(f[inet.EthernetLen:path.L4()])
		if err := bth.SealICRC(f[inet.EthernetLen:]); err != nil {
			t.Fatal(err)
		}
		b.Receive(0, f, 0)
		if c.want == rxOK && (len(in.got) != 1 || b.ctr.RxDropped() != 0) ||
			c.want != rxOK && (len(in.got) != 0 || b.ctr.drops[c.want] != 1) {
			t.Errorf("%s: %d received, drops %v", c.name, len(in.got), b.ctr.drops)
		}
	}
}

func TestGSIDeadlines(t *testing.T) {
	a, g := gsiNIC(t, macA, "198.18.0.1/24")
	g.due = 1000
	if a.NextTimeout() != 1000 {
		t.Errorf("next at %d", a.NextTimeout())
	}
	a.Advance(999)
	if g.runs != 0 {
		t.Error("too early")
	}
	a.Advance(1000)
	if g.runs != 1 || a.NextTimeout() == 1000 {
		t.Errorf("%d calls, next at %d", g.runs, a.NextTimeout())
	}
	if all := a.CounterSnapshot(); all[len(all)-1] != (Counter{"gsi_runs", 1}) {
		t.Errorf("the NIC's last counter is %v", all[len(all)-1])
	}
}
