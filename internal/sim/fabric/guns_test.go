package fabric

import (
	"testing"

	"roced.io/roced/internal/sim/engine"
)

// gun is a host that sends the packets of its magazine at line rate, and records arrivals.
type gun struct {
	out      *Link
	magazine []Packet
	arrived  []Packet
	at       []engine.Time
	forget   bool // keep only the count
	count    int
	host     uint32
}

func (g *gun) Next(_ engine.Time, paused uint8) (p *Packet, more bool) {
	if len(g.magazine) == 0 || paused>>g.magazine[0].Class&1 != 0 {
		return nil, false
	}
	p = g.out.part.NewPacket()
	*p = g.magazine[0]
	p.Src = g.host
	g.magazine = g.magazine[1:]
	return p, true
}

func (g *gun) Arrive(now engine.Time, _ int32, p *Packet) {
	if g.count++; !g.forget {
		g.arrived = append(g.arrived, *p)
		g.at = append(g.at, now)
	}
	g.out.part.Free(p)
}

func (g *gun) Soon(*Packet) {}

// load puts n copies of p into the magazine, with references from 0 on.
func (g *gun) load(n int, p Packet) {
	for i := range n {
		p.Ref = uint32(i)
		g.magazine = append(g.magazine, p)
	}
}

// field is a network with guns.
type field struct {
	eng  engine.Engine
	net  *Network
	guns []gun
	lost [Reasons]int
	sent int
}

func (f *field) Dropped(_ engine.Time, _ *Packet, why Reason) { f.lost[why]++ }

func newField(t testing.TB, g *Graph, c SwitchConfig) *field {
	t.Helper()
	if c.Buffer.Bytes == 0 {
		c.Buffer.Bytes = 1 << 30
	}
	f := &field{guns: make([]gun, g.Hosts)}
	var err error
	f.net, err = New(&f.eng, Config{Graph: g, Seed: 1, Owner: f, Switch: func(int, int) SwitchConfig { return c }})
	if err != nil {
		t.Fatal(err)
	}
	for h := range f.guns {
		f.guns[h].out, f.guns[h].host = f.net.Attach(h, &f.guns[h]), uint32(h)
	}
	return f
}

// put makes p arrive at the first switch.
func (f *field) put(p Packet) {
	f.eng.Sync()
	d := f.net.parts[0].NewPacket()
	*d = p
	f.net.switches[0].Arrive(f.eng.Now(), 0, d)
}

// run fires all guns until no packet moves, and checks that none is missing.
func (f *field) run(t testing.TB) {
	t.Helper()
	got := 0
	for h := range f.guns {
		f.sent += len(f.guns[h].magazine)
	}
	for h := range f.guns {
		f.guns[h].out.Wake(f.eng.Now())
	}
	f.eng.Drain()
	for h := range f.guns {
		got += f.guns[h].count
	}
	for _, n := range f.lost {
		got += n
	}
	if got != f.sent {
		t.Fatalf("%d packets sent, %d arrived or lost", f.sent, got)
	}
	if err := f.net.Check(0); err != nil {
		t.Fatal(err)
	}
}

const (
	gig  = 1e9
	mus  = engine.Microsecond
	size = 1000
)

var w100 = Wires{HostRate: 100 * gig, Delay: mus}
