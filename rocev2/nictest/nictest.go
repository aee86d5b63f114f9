// Package nictest supports tests of whole NICs. It joins two NICs by a link in memory, on a virtual clock. Runs are
// repeatable: the same seed gives the same frames at the same instants (see Pair.Digest).
//
//	p := nictest.New(t, nictest.Options{Seed: 7, Hook: nictest.Drop(0.01)})
//	a, b := p.RC()
//	src, dst := p.A.Buffer(4096), p.B.Buffer(4096)
//	a.Post(nictest.Write(1, dst.At(0), src.SGE()))
//	a.WaitSend(1)
//
// The goroutine of the test makes all calls. A Hook drops, delays, duplicates and changes frames. A call that fails ends
// the test and prints seed and virtual time.
//
// No promise: this package may change between releases.
package nictest

import (
	"encoding/binary"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"time"

	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// Options of a Pair; zero fields take the default.
type Options struct {
	Seed  uint64
	MTU   int           // largest IP packet, 4300: path MTUs up to 4096 fit
	Delay time.Duration // of the link one way, 1 us
	Rate  uint64        // of the link in bits per second, 0: unlimited
	// Busy polls a NIC for its next frame when the link has sent the last one, like hardware. Otherwise frames queue in
	// front of the link.
	Busy    bool
	Offload link.Offload
	// Whole delivers super-frames unsegmented and without Hook.
	Whole bool
	Hook  Hook
	// Leaving is called after a NIC has built a frame and before the link copies it.
	Leaving func(n *Node)
	// Remote makes the nodes' buffers memory that NICs must copy (rocev2.Distant).
	Remote bool
	// Deferred makes them memory whose accesses end later (rocev2.Deferred).
	Deferred bool
	// Switch joins the NICs by a rocev2.Switch, beside the link.
	Switch *rocev2.Switch
	// Limit bounds the virtual time of a Wait call, 30 s.
	Limit time.Duration
	// Config may change a NIC's configuration.
	Config func(c *rocev2.Config)
}

// TB is the part of testing.TB that a Pair needs, so that this package does not import testing.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Pair is two NICs and the link between them.
type Pair struct {
	A, B *Node
	RNG  *rand.Rand // for the test's own choices and those of hooks

	tb     TB
	o      Options
	now    mono.Time
	link   wire
	digest hash.Hash64
	frames int
	rx, tx []byte // the frame being delivered, or sent
}

// Node is one of the NICs, with a protection domain.
type Node struct {
	NIC    *rocev2.NIC
	PD     *rocev2.PD
	Name   string
	Events []Event

	pair     *Pair
	sent     int       // frames passed to the link
	free     mono.Time // when the link accepts the next frame
	waits    bool      // polls for a frame then
	nextVA   uint64
	deferred []*Deferred
	qps      map[*rocev2.QueuePair]*QP
}

// Event is an asynchronous event.
type Event struct {
	At   mono.Time
	Type qp.Event
	QP   *QP         // nil unless the event belongs to a queue pair
	CQ   *rocev2.CQ  // likewise
	SRQ  *rocev2.SRQ // likewise
}

// GID indices of the nodes' addresses.
const (
	GIDIPv4      = 0 // 10.0.0.1 and 10.0.0.2
	GIDIPv6      = 1 // fd00::1 and fd00::2
	GIDLinkLocal = 2
)

// New returns a pair.
func New(tb TB, o Options) *Pair {
	tb.Helper()
	if o.MTU == 0 {
		o.MTU = 4300
	}
	if o.Delay == 0 {
		o.Delay = time.Microsecond
	}
	if o.Limit == 0 {
		o.Limit = 30 * time.Second
	}
	p := &Pair{tb: tb, o: o, now: mono.Time(time.Second), digest: fnv.New64a(),
		RNG: rand.New(rand.NewPCG(o.Seed, 0x6e69637465737421))}
	p.A, p.B = p.node("a", 1), p.node("b", 2)
	if o.Switch != nil {
		p.check(o.Switch.Join(p.A.NIC, nil))
		p.check(o.Switch.Join(p.B.NIC, nil))
	}
	return p
}

func (p *Pair) node(name string, num byte) *Node {
	p.tb.Helper()
	n := &Node{Name: name, pair: p, nextVA: uint64(num) << 32, qps: make(map[*rocev2.QueuePair]*QP)}
	cfg := rocev2.Config{
		Name: "rxe_" + name, MAC: inet.MAC{2, 0, 0, 0, 0, num}, MTU: p.o.MTU, Offload: p.o.Offload,
		Addrs: []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, num}), 24),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 15: num}), 64),
		},
		Events: sink{n},
	}
	binary.LittleEndian.PutUint64(cfg.Seed[:], p.o.Seed)
	cfg.Seed[31] = num
	if p.o.Config != nil {
		p.o.Config(&cfg)
	}
	var err error
	n.NIC, err = rocev2.New(cfg)
	p.check(err)
	n.PD, err = n.NIC.AllocPD(nil)
	p.check(err)
	return n
}

// Now returns the virtual time.
func (p *Pair) Now() mono.Time { return p.now }

// SetHook replaces the hook, from the next frame on.
func (p *Pair) SetHook(h Hook) { p.o.Hook = h }

// Frames returns the number of datagrams that have been sent so far.
func (p *Pair) Frames() int { return p.frames }

// Digest returns a hash of all datagrams sent so far and of their times. Runs with equal digests are identical.
func (p *Pair) Digest() uint64 { return p.digest.Sum64() }

// Fatalf ends the test and prints seed, time and the message.
func (p *Pair) Fatalf(format string, args ...any) {
	p.tb.Helper()
	p.tb.Fatalf("seed %d, at %v: "+format, append([]any{p.o.Seed, time.Duration(p.now)}, args...)...)
}

// check ends the test on an error.
func (p *Pair) check(err error) {
	p.tb.Helper()
	if err != nil {
		p.Fatalf("%v", err)
	}
}

// Peer returns the other node.
func (n *Node) Peer() *Node {
	if n == n.pair.A {
		return n.pair.B
	}
	return n.pair.A
}

// Pair returns the pair that n belongs to.
func (n *Node) Pair() *Pair { return n.pair }

// Counter returns a counter of the NIC by its name.
func (n *Node) Counter(name string) uint64 {
	n.pair.tb.Helper()
	for _, c := range n.NIC.CounterSnapshot() {
		if c.Name == name {
			return c.Value
		}
	}
	n.pair.Fatalf("no counter %q", name)
	return 0
}

// GID returns an address of the node.
func (n *Node) GID(index uint8) inet.GID { return n.NIC.GIDs()[index].GID }

// sink collects the events of a node.
type sink struct{ n *Node }

func (s sink) add(e Event) {
	e.At = s.n.pair.now
	s.n.Events = append(s.n.Events, e)
}

func (s sink) QPEvent(q *rocev2.QueuePair, e qp.Event) { s.add(Event{Type: e, QP: s.n.qps[q]}) }
func (s sink) CQEvent(c *rocev2.CQ, e qp.Event)        { s.add(Event{Type: e, CQ: c}) }
func (s sink) SRQEvent(r *rocev2.SRQ, e qp.Event)      { s.add(Event{Type: e, SRQ: r}) }
func (s sink) PortEvent(e qp.Event)                    { s.add(Event{Type: e}) }
