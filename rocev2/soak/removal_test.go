package soak

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
	"roced.io/roced/rocev2"
	"roced.io/roced/rocev2/nictest"
)

// TestRemovals removes an object or the link during traffic, whichever work requests need. Every work request must
// still complete.
func TestRemovals(t *testing.T) {
	transports := append(profile.Names(), "uc", "ud")
	runs := 15
	if *flagSeeds > 200 {
		runs = *flagSeeds / 5
	}
	for _, name := range transports {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(runs) {
				for _, r := range removals {
					if *flagSeed == 0 || *flagSeed == seed {
						newRemoval(t, name, seed, r).run()
					}
				}
			}
		})
	}
}

// removal describes the removed object and the errors that its removal excuses.
type removal struct {
	name string
	do   func(x *removing)
	// gone means that the peer does not answer any more: requests may wait without end.
	gone bool
	// spills means that completions are lost with their queue.
	spills bool
}

var removals = []removal{
	{name: "local region", do: func(x *removing) { x.dereg(x.a.Node, x.src) }},
	{name: "region of the peer", do: func(x *removing) { x.dereg(x.b.Node, x.dst) }},
	{name: "region of receives", do: func(x *removing) { x.dereg(x.b.Node, x.in) }},
	{name: "window of the peer", do: func(x *removing) {
		if x.mw != nil && x.b.Node.NIC.DeallocMW(x.mw) != nil {
			x.t.Fatal("dealloc_mw")
		}
	}},
	{name: "own queue pair, to ERR", do: func(x *removing) { x.modify(x.a, qp.Err) }},
	{name: "peer, to ERR", gone: true, do: func(x *removing) { x.modify(x.b, qp.Err) }},
	{name: "peer, to RESET", gone: true, do: func(x *removing) { x.modify(x.b, qp.Reset) }},
	{name: "peer", gone: true, do: func(x *removing) { x.b.Destroy(); x.b = nil }},
	{name: "link", gone: true, do: func(x *removing) {
		x.p.SetHook(func(*nictest.Flight) nictest.Fate { return nictest.Fate{Drop: true} })
	}},
	{name: "port", gone: true, do: func(x *removing) {
		if err := x.a.Node.NIC.SetLink(x.p.Now(), false, 0); err != nil {
			x.t.Fatal(err)
		}
	}},
	{name: "send completion queue, overrun", spills: true, do: func(x *removing) { x.polling = false }},
	{name: "receive completion queue of the peer, overrun", spills: true, gone: true, do: func(x *removing) { x.receiving = false }},
	{name: "receives", do: func(x *removing) { x.dry = true }},
}

// removing is one run: a sends to b until an object is removed.
type removing struct {
	removal
	t         *testing.T
	p         *nictest.Pair
	rng       *rand.Rand
	seed      uint64
	transport string
	timeout   uint8
	a, b      *nictest.QP
	ah        *rocev2.AH
	src, dst  *nictest.Buffer
	in        *nictest.Buffer // of receives
	mw        *rocev2.MW

	posted, done int    // send requests
	received     uint64 // receive requests
	flushed      uint64 // receive requests that have completed
	polling      bool
	receiving    bool
	dry          bool // no more receives are posted
	ops          []int
}

const removalDepth = 16

func newRemoval(t *testing.T, transport string, seed uint64, r removal) *removing {
	x := &removing{removal: r, t: t, seed: seed, transport: transport, polling: true, receiving: true,
		rng: rand.New(rand.NewPCG(seed, 0x72656d6f76616c))}
	loss := []float64{0, 0, 0.02}[x.rng.IntN(3)]
	x.timeout = 8
	if !r.gone && loss == 0 && x.rng.IntN(2) == 0 {
		x.timeout = 0 // off; another mechanism must end the requests
	}
	s := &trial{control: pick(x.rng, "none", "none", "dctcp", "dcqcn", "swift", "timely"), transport: transport}
	if transport == "uc" || transport == "ud" {
		s.control, s.transport = "none", ""
	}
	s.drawParts(x.rng)
	x.ops = pick(x.rng, []int{0}, []int{0, 1, 2, 3}, []int{0, 1, 2, 3, 4, 5, 6})
	switch {
	case transport == "uc":
		x.ops = x.ops[:min(len(x.ops), 4)]
	case !profile.Supports(transport, qp.WRRead):
		x.ops = x.ops[:min(len(x.ops), 2)]
	}
	x.p = nictest.New(t, nictest.Options{Seed: seed, Hook: nictest.Drop(loss), Rate: pick[uint64](x.rng, 0, 1e9, 1e10), Busy: true, Config: func(c *rocev2.Config) {
		c.MaxUnacked, c.NewProfile = pick[uint32](x.rng, 1, 4, 64, 0), s.profiles()
	}})
	x.src, x.dst, x.in = x.p.A.Buffer(1<<16), x.p.B.Buffer(1<<16), x.p.B.Buffer(1<<16)
	x.connect()
	x.window()
	return x
}

func (x *removing) connect() {
	atomics := pick[uint8](x.rng, 1, 8)
	opts := []nictest.Option{func(o *nictest.QPOptions) {
		o.Depth, o.Timeout, o.RNRRetry, o.RetryCnt, o.MinRNR, o.RdAtomic = removalDepth, x.timeout, 2, 3, 1, atomics
	}}
	switch x.transport {
	case "uc":
		x.a, x.b = x.p.UC(opts...)
	case "ud":
		x.a, x.b, x.ah, _ = x.p.UD(opts...)
	default:
		x.a, x.b = x.p.RC(opts...)
	}
}

// window opens a part of the peer's memory through a window.
func (x *removing) window() {
	if x.transport == "ud" || !profile.Supports(x.transport, qp.WRBindMW) || x.removal.name != "window of the peer" {
		return
	}
	var err error
	if x.mw, err = x.p.B.NIC.AllocMW(x.p.B.PD, rocev2.MWType1, nil); err != nil {
		x.t.Fatal(err)
	}
	x.b.Post(nictest.BindMW(1, qp.BindWR{Addr: x.dst.VA, Length: 1 << 16, MRLKey: x.dst.MR.LKey, MWRKey: x.mw.RKey,
		RKey: x.mw.RKey ^ 1, Access: qp.AccessRemoteWrite | qp.AccessRemoteRead | qp.AccessRemoteAtomic}))
	x.b.WaitSend(1)
}

func (x *removing) dereg(n *nictest.Node, b *nictest.Buffer) {
	if err := n.NIC.DeregMR(b.MR); err != nil {
		x.t.Fatal(err)
	}
}

func (x *removing) modify(q *nictest.QP, s qp.State) { q.Modify(qp.Attr{State: s}, 0, nil) }

func (x *removing) String() string {
	return fmt.Sprintf("%s, seed %d, without its %s", x.transport, x.seed, x.removal.name)
}

// run starts requests, removes an object, and checks that all work requests complete.
func (x *removing) run() {
	before := x.rng.IntN(40)
	for range before {
		x.turn()
	}
	x.do(x)
	for range 20 + x.rng.IntN(40) {
		x.turn()
	}
	if x.spills {
		x.post(4 * removalDepth) // enough to overflow the queue
	}
	ended := x.p.RunUntil(func() bool { x.poll(); return x.a.SQ.Outstanding() == 0 }, 20*time.Second)
	if !ended {
		x.t.Fatalf("%v: %d of %d send requests wait for ever, timeout %d, state %v", x, x.a.SQ.Outstanding(), x.posted,
			x.timeout, x.a.State())
	}
	if x.polling && x.done != x.posted {
		x.t.Fatalf("%v: %d completions of %d send requests", x, x.done, x.posted)
	}
	x.end()
}

// end breaks the peer, if it exists, so that its receives complete.
func (x *removing) end() {
	if x.b == nil || x.b.State() == qp.Reset {
		return
	}
	x.modify(x.b, qp.Err)
	x.b.Node.NIC.RecvPosted(x.p.Now(), x.b.QueuePair)
	x.p.Run(time.Millisecond)
	x.poll()
	if x.receiving && x.flushed != x.received {
		x.t.Fatalf("%v: %d completions of %d receives", x, x.flushed, x.received)
	}
}

// turn posts requests and advances the clock a little.
func (x *removing) turn() {
	x.post(1 + x.rng.IntN(4))
	x.p.Run(time.Duration(x.rng.IntN(30)) * time.Microsecond)
	x.poll()
}

// poll processes completions, in the order of requests.
func (x *removing) poll() {
	for x.polling {
		c, ok := x.a.SendCQ.Poll()
		if !ok {
			break
		}
		if c.WRID != uint64(x.done) {
			x.t.Fatalf("%v: completion of request %d, want %d", x, c.WRID, x.done)
		}
		x.done++
	}
	for x.receiving && x.b != nil {
		if _, ok := x.b.RecvCQ.Poll(); !ok {
			break
		}
		x.flushed++
	}
}

// post posts up to n send requests, as places permit, and receives for them.
func (x *removing) post(n int) {
	for ; n > 0 && x.a.SQ.Outstanding() < removalDepth; n-- {
		if !x.dry && x.b != nil && x.b.RQ.Len() < removalDepth {
			x.b.PostRecv(x.received, x.in.Part(int(x.received%4)<<14, 1<<14))
			x.received++
		}
		w := x.request()
		if x.rng.IntN(8) == 0 {
			w.Flags |= qp.SendFence
		}
		x.a.Post(w)
		x.posted++
	}
}

// request returns a random work request.
func (x *removing) request() qp.SendWQE {
	id, size := uint64(x.posted), x.rng.IntN(6000)
	local, at := x.src.Part(x.rng.IntN(1<<15), size), x.dst.At(x.rng.IntN(1<<12)*8)
	if x.mw != nil {
		at.RKey = x.mw.RKey
	}
	op := x.ops[x.rng.IntN(len(x.ops))]
	if x.transport == "ud" {
		w := nictest.Send(id, x.src.Part(0, x.rng.IntN(1000)))
		w.AH, w.RemoteQKey = x.ah.Handle(), 0x11111111
		if x.b != nil {
			w.RemoteQPN = uint32(x.b.Num())
		}
		return w
	}
	switch op {
	case 0:
		return nictest.Write(id, at, local)
	case 1:
		return nictest.WriteImm(id, at, 7, local)
	case 2:
		return nictest.Send(id, local)
	case 3:
		return nictest.SendInline(id, make([]byte, size%200))
	case 4:
		return nictest.Read(id, at, local)
	case 5:
		return nictest.FetchAdd(id, at, 1, x.src.Part(0, 8))
	}
	return nictest.CompareSwap(id, at, 1, 2, x.src.Part(0, 8))
}
