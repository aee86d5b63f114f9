package soak

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/base/fault"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
	"roced.io/roced/rocev2/nictest"
)

// trial holds all decisions of a seed before the run starts.
type trial struct {
	seed    uint64
	typ     qp.Type
	pairs   int
	gid     uint8
	mtu     qp.MTU
	offload link.Offload
	unacked uint32
	delay   time.Duration
	rate    uint64
	depth   int
	sges    int
	inline  int
	sigAll  bool
	rd      uint8
	timeout uint8
	retry   uint8
	rnr     uint8
	minRNR  uint8
	srq     bool
	oneCQ   bool
	polling polling
	pause   time.Duration // between posts
	late    time.Duration // between receives; 0: posted as early as possible
	both    bool          // both sides are requesters
	msgs    int           // messages of a requester
	packets int           // packets that a requester sends, about
	bytes   int
	harsh   bool
	rules   []fault.Rule
	outage  outage
	cold    bool   // sending begins before addresses are resolved
	swtch   bool   // the NICs are on a switch
	control string // congestion control

	transport string // profile of RC
	parts     profile.Spec
}

// polling is the way a client checks for completions.
type polling uint8

const (
	pollAlways polling = iota
	pollSeldom
	pollNotified // arms the queue and waits
)

// outage is a period during which the link is down.
type outage struct {
	after, length time.Duration
	noticed       bool // the NICs are notified
}

func chance(rng *rand.Rand, percent int) bool { return rng.IntN(100) < percent }

func pick[T any](rng *rand.Rand, v ...T) T { return v[rng.IntN(len(v))] }

// draw derives the trial of a seed.
func draw(seed uint64) trial {
	rng := rand.New(rand.NewPCG(seed, 0x736f616b))
	s := trial{
		seed:    seed,
		typ:     pick(rng, qp.RC, qp.RC, qp.RC, qp.UC, qp.UD),
		pairs:   pick(rng, 1, 1, 2, 3, 1+rng.IntN(8)),
		gid:     pick[uint8](rng, nictest.GIDIPv4, nictest.GIDIPv6, nictest.GIDLinkLocal),
		mtu:     qp.MTU(1 + rng.IntN(5)),
		unacked: pick[uint32](rng, 0, 0, 1, 2, 7, 64, 256),
		delay:   pick(rng, time.Microsecond, 5*time.Microsecond, 50*time.Microsecond),
		rate:    pick[uint64](rng, 0, 0, 10e9, 40e9, 100e9),
		depth:   pick(rng, 1, 2, 8, 32, 64),
		sges:    pick(rng, 1, 2, 3, 16),
		inline:  pick(rng, 0, 16, 256),
		sigAll:  chance(rng, 20),
		rd:      pick[uint8](rng, 1, 2, 4, 16),
		timeout: pick[uint8](rng, 12, 12, 13, 14),
		retry:   7, rnr: 7,
		minRNR:  pick[uint8](rng, 1, 1, 2, 6, 12),
		srq:     chance(rng, 30),
		oneCQ:   chance(rng, 30),
		polling: pick(rng, pollAlways, pollAlways, pollSeldom, pollNotified),
		both:    chance(rng, 60),
		cold:    chance(rng, 15),
	}
	if names := ccalgo.Names(); chance(rand.New(rand.NewPCG(seed, 0x6363)), 60) {
		s.control = names[seed%uint64(len(names))]
	}
	s.drawTransport(rand.New(rand.NewPCG(seed, 0x78)))
	if chance(rng, 50) {
		s.offload = link.Offload{MaxSegments: 2 + rng.IntN(127), MaxBytes: pick(rng, 65549, 20000)}
	}
	if chance(rng, 40) {
		s.pause = time.Duration(1 + rng.IntN(100_000))
	}
	if chance(rng, 40) {
		s.late = time.Duration(1 + rng.IntN(200_000))
	}
	if chance(rng, 25) {
		s.retry, s.rnr = uint8(rng.IntN(8)), uint8(rng.IntN(8))
		s.timeout = uint8(8 + rng.IntN(6))
	}
	if s.control == "swift" && s.timeout >= 12 {
		// Its smallest window is a packet in a hundred round trips. Acknowledgements wait behind that window in an
		// answer to a READ: seven short timeouts would pass before.
		s.timeout = 14
	}
	flows := s.pairs
	if s.both {
		flows *= 2
	}
	s.msgs = max(4, (40+rng.IntN(200))/flows)
	s.packets, s.bytes = 3000/flows, 4<<20/flows
	s.drawFaults(rng)
	if s.perfect() && s.rnr == 7 && chance(rng, 70) {
		s.timeout = 0 // progress must not depend on it
	}
	if s.transport == "mrc" { // see flow.early
		s.srq = false
	}
	if s.srq && s.rnr == 7 && s.timeout > 0 && !s.mustSucceed() {
		s.rnr = 6 // a broken connection never returns the requests it took from a shared queue
	}
	return s
}

// drawTransport draws the transport profile of reliable connections.
func (s *trial) drawTransport(rng *rand.Rand) {
	if s.typ != qp.RC || chance(rng, 40) {
		return
	}
	s.transport = pick(rng, profile.Names()...)
	s.drawParts(rng)
}

// drawParts draws the options of the transport.
func (s *trial) drawParts(rng *rand.Rand) {
	switch s.transport {
	case "irn":
		s.parts.Recovery.Params = map[string]float64{"bdp_packets": pick(rng, 1, 7, 110.0), "bdp_fc": float64(rng.IntN(2)),
			"go_back_n": float64(rng.IntN(4) / 3), "sack": float64((rng.IntN(4) + 2) / 3)}
		s.parts.Reorder.Params = map[string]float64{"bdp_packets": pick(rng, 7, 110.0)}
		s.parts.Paths.Name = pick(rng, "single", "spray")
	case "melo":
		s.parts.Reorder.Params = map[string]float64{"pool_bits": pick(rng, 8, 64, 1024.0), "bdp_packets": pick(rng, 16, 256.0)}
		s.parts.Recovery.Params = map[string]float64{"pool_bits": pick(rng, 8, 64, 1024.0)}
	case "mp-rdma":
		s.control = pick(rng, "mp-rdma", "mp-rdma", "dctcp")
		s.parts.Recovery.Params = map[string]float64{"early_retransmit": float64(rng.IntN(2))}
	case "mrc":
		if s.control == "dcqcn" {
			s.control = "swift"
		}
		s.parts.Reorder.Params = map[string]float64{"sack_bytes": pick(rng, 1, 4096, 16384.0), "dynamic_mpr": float64(rng.IntN(2))}
		s.parts.Recovery.Params = map[string]float64{"max_wimm": pick(rng, 1, 4, 32.0), "loss_packets": pick(rng, 1, 5, 16.0)}
		s.drawEntropy()
	case "eunomia":
		s.parts.Recovery.Params = map[string]float64{"selective_repeat": float64(rng.IntN(2))}
		s.parts.HoldLast = pick(rng, "receiver", "sender", "sender-idle")
		s.parts.Paths.Name = pick(rng, "single", "spray")
	}
}

// drawEntropy draws the entropy values of MRC and, for some trials, a rule that trims. It has random numbers of its own, so
// that the rest of a trial does not depend on them.
func (s *trial) drawEntropy() {
	rng := rand.New(rand.NewPCG(s.seed, 0x6576))
	evs := pick(rng, 1, 2, 16, 64)
	s.parts.Paths = profile.Part{Name: "mrc", Params: map[string]float64{"ev_count": float64(evs), "planes": float64(pick(rng, 1, min(evs, 4))),
		"batch": pick(rng, 1, 4, 64.0), "ev_probe_interval_us": pick(rng, 50, 1000.0), "ev_probe_answers": pick(rng, 1, 8.0)}}
	if chance(rng, 40) {
		s.addRule(fmt.Sprintf("%s trim p=%.4f seed=%d", pick(rng, "rx", "tx", "both"), 0.0001+rng.Float64()*0.05, rng.Uint32()))
	}
}

// drawFaults draws the rules of the link.
func (s *trial) drawFaults(rng *rand.Rand) {
	var rules []string
	switch n := rng.IntN(100); {
	case n < 10:
	case n < 25:
		rules = exactRules(rng)
	case n < 75:
		rules = shareRules(rng, 0.02)
	default:
		s.harsh = true
		rules = shareRules(rng, 0.2)
	}
	if chance(rng, 4) {
		rules = append(rules, fmt.Sprintf("both drop any p=0.3 seed=%d", rng.Uint32()))
		s.harsh, s.cold = true, true
	}
	if chance(rng, 8) {
		s.outage = outage{time.Duration(rng.IntN(500_000)), time.Duration(rng.IntN(100_000_000)), chance(rng, 50)}
		s.harsh = true
	}
	for _, text := range rules {
		s.addRule(text)
	}
}

// addRule adds a rule of the link.
func (s *trial) addRule(text string) {
	r, err := fault.Parse(text)
	if err != nil {
		panic(err)
	}
	s.rules = append(s.rules, r)
}

// actions returns actions of fault rules with random arguments.
func actions(rng *rand.Rand) []string {
	return []string{
		"drop", "duplicate " + fmt.Sprint(1+rng.IntN(3)), fmt.Sprintf("delay %dus", 1+rng.IntN(300)),
		fmt.Sprintf("reorder %d %dus", 1+rng.IntN(8), 50+rng.IntN(500)), "corrupt",
		fmt.Sprintf("truncate %d", 14+rng.IntN(120)), "ecn",
	}
}

func shareRules(rng *rand.Rand, most float64) (rules []string) {
	for _, a := range actions(rng) {
		if chance(rng, 40) {
			rules = append(rules, fmt.Sprintf("%s %s p=%.4f seed=%d",
				pick(rng, "rx", "tx", "both", "both"), a, 0.0001+rng.Float64()*most, rng.Uint32()))
		}
	}
	return rules
}

func exactRules(rng *rand.Rand) (rules []string) {
	for range 1 + rng.IntN(6) {
		first := rng.IntN(40)
		cond := []string{
			fmt.Sprintf("psn=+%d n=1", first), fmt.Sprintf("psn=+%d..%d n=1", first, first+rng.IntN(5)),
			fmt.Sprintf("op=%s count=%d", pick(rng, "ack", "nak", "read", "readresp", "atomic", "send", "write"), 1+rng.IntN(3)),
			fmt.Sprintf("op=%s n=1 count=%d", pick(rng, "request", "response"), 1+rng.IntN(3)),
		}
		rules = append(rules, pick(rng, "rx", "tx")+" "+pick(rng, actions(rng)...)+" "+pick(rng, cond...))
	}
	return rules
}

// loses reports whether the link can lose packets.
func (s *trial) loses() bool {
	for _, r := range s.rules {
		switch r.Action {
		case fault.Drop, fault.Corrupt, fault.Truncate:
			return true
		}
	}
	return s.outage.length > 0
}

// perfect reports whether the link has no faults.
func (s *trial) perfect() bool { return len(s.rules) == 0 && s.outage.length == 0 }

// anyOrder reports whether messages may start to arrive before earlier ones are complete.
func (s *trial) anyOrder() bool { return s.transport != "" && s.transport != "rc" }

// repeats reports whether packets that were not lost may be retransmitted. Reasons are early retransmission (FUSO),
// timeouts shorter than network or memory latency, several paths, and refusals.
func (s *trial) repeats() bool {
	return s.anyOrder() && s.transport != "eunomia" || s.deferred()
}

// deferred reports whether accesses to memory take time (nictest.Deferred).
func (s *trial) deferred() bool { return s.seed%8 == 3 && s.timeout > 0 && s.typ == qp.RC }

// copies reports whether the link can duplicate packets, disorders whether it can reorder them.
func (s *trial) copies() bool { return s.has(fault.Duplicate) }

func (s *trial) disorders() bool {
	return s.has(fault.Delay) || s.has(fault.Reorder) || s.copies()
}

func (s *trial) has(a fault.Action) bool {
	for _, r := range s.rules {
		if r.Action == a {
			return true
		}
	}
	return false
}

// mustSucceed reports whether no request of a reliable connection may fail.
func (s *trial) mustSucceed() bool {
	return !s.harsh && s.retry == 7 && s.rnr == 7 && (s.timeout >= 12 || s.timeout == 0)
}

// profiles returns the plug-ins of the queue pairs of a NIC.
func (s *trial) profiles() func(name string) (qp.Profile, error) {
	m := profile.NewMaker(profile.Link{})
	parts := s.parts
	parts.Congestion.Name = s.control
	return func(string) (qp.Profile, error) { return m.New(s.transport, parts) }
}

func (s *trial) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v, %d pairs, %+v\n", s.typ, s.pairs, *s)
	for _, r := range s.rules {
		fmt.Fprintf(&b, "  %v\n", r)
	}
	return b.String()
}
