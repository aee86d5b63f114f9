package soak

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"roced/internal/fault"
	"roced/mono"
	"roced/qp"
)

var (
	flagSeeds = flag.Int("seeds", 200, "how many scenarios TestSoak runs")
	flagSeed  = flag.Uint64("seed", 0, "the only scenario to run")
	flagFirst = flag.Uint64("first", 1, "the seed to begin with")
	flagTrace = flag.Bool("trace", false, "show the packets")
)

// counts say what has happened in one run or in all.
type counts struct {
	seeds, failedFlows                      int
	posted                                  [10]int // by operation
	done, flushed, delivered, bytes, frames int
	faults                                  map[fault.Action]uint64
	cut                                     int // frames lost while the link was down
	drained                                 int // send queues drained and started again
	status                                  map[qp.Status]int
	retransmitted, rnr, timeouts, implied   uint64
	services                                map[qp.Type]int
}

func newCounts() counts {
	return counts{faults: make(map[fault.Action]uint64), status: make(map[qp.Status]int), services: make(map[qp.Type]int)}
}

// add adds what a run has counted.
func (c *counts) add(o *counts) {
	c.seeds += o.seeds
	c.failedFlows += o.failedFlows
	for i, n := range o.posted {
		c.posted[i] += n
	}
	c.done += o.done
	c.flushed += o.flushed
	c.delivered += o.delivered
	c.bytes += o.bytes
	c.frames += o.frames
	c.cut += o.cut
	c.drained += o.drained
	c.retransmitted += o.retransmitted
	c.rnr += o.rnr
	c.timeouts += o.timeouts
	c.implied += o.implied
	for k, n := range o.faults {
		c.faults[k] += n
	}
	for k, n := range o.status {
		c.status[k] += n
	}
	for k, n := range o.services {
		c.services[k] += n
	}
}

var opNames = [...]string{"WRITE", "WRITE_IMM", "SEND", "SEND_IMM", "READ", "CMP_SWAP", "FETCH_ADD", "LOCAL_INV", "BIND_MW", "SEND_INV"}

var faultKinds = []fault.Action{fault.Drop, fault.Duplicate, fault.Delay, fault.Reorder, fault.Corrupt, fault.Truncate, fault.ECN}

// String is the summary.
func (c *counts) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds (RC %d, UC %d, UD %d): %d requests done, %d flushed or failed, %d messages received, %d MiB, %d datagrams\n",
		c.seeds, c.services[qp.RC], c.services[qp.UC], c.services[qp.UD], c.done, c.flushed, c.delivered, c.bytes>>20, c.frames)
	b.WriteString("  faults:")
	for _, k := range faultKinds {
		fmt.Fprintf(&b, " %s %d", k, c.faults[k])
	}
	fmt.Fprintf(&b, " link-down %d; queues drained %d\n  posted:", c.cut, c.drained)
	for i, n := range c.posted {
		fmt.Fprintf(&b, " %s %d", opNames[i], n)
	}
	fmt.Fprintf(&b, "\n  retransmitted %d, timeouts %d, implied NAKs %d, RNR NAKs %d; connections broken: RETRY_EXC %d, RNR_RETRY_EXC %d",
		c.retransmitted, c.timeouts, c.implied, c.rnr, c.status[qp.StatusRetryExcErr], c.status[qp.StatusRNRRetryExcErr])
	return b.String()
}

// missing names what has never happened.
func (c *counts) missing() (names []string) {
	check := func(name string, n uint64) {
		if n == 0 {
			names = append(names, name)
		}
	}
	for _, k := range faultKinds {
		check(string(k), c.faults[k])
	}
	for i, n := range c.posted {
		check(opNames[i], uint64(n))
	}
	check("link down", uint64(c.cut))
	check("drained queue", uint64(c.drained))
	check("retransmission", c.retransmitted)
	check("timeout", c.timeouts)
	check("implied NAK", c.implied)
	check("RNR NAK", c.rnr)
	check("RETRY_EXC", uint64(c.status[qp.StatusRetryExcErr]))
	check("RNR_RETRY_EXC", uint64(c.status[qp.StatusRNRRetryExcErr]))
	return names
}

// TestSoak runs scenarios. See the package comment for its arguments.
func TestSoak(t *testing.T) {
	if *flagSeed != 0 {
		c, _ := runSeed(t, *flagSeed)
		fmt.Println(scenarioOf(*flagSeed) + c.String())
		return
	}
	seeds := *flagSeeds
	if testing.Short() {
		seeds = min(seeds, 40)
	}
	sum := &total{counts: newCounts(), of: seeds}
	sum.shown = time.Now()
	workers := runtime.GOMAXPROCS(0)
	t.Run("run", func(t *testing.T) {
		for i := range workers {
			t.Run(fmt.Sprintf("worker=%d", i), func(t *testing.T) {
				t.Parallel()
				for k := i; k < seeds; k += workers {
					seed := *flagFirst + uint64(k)
					t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
						c, _ := runSeed(t, seed)
						sum.add(&c)
					})
				}
			})
		}
	})
	t.Log(sum.String())
	if names := sum.missing(); len(names) > 0 && seeds >= 200 && !t.Failed() {
		t.Errorf("never happened: %v", names)
	}
}

func scenarioOf(seed uint64) string {
	s := draw(seed)
	return s.String()
}

// total is the sum over all runs, which tells of its progress.
type total struct {
	counts
	mu    sync.Mutex
	of    int
	shown time.Time
}

func (s *total) add(c *counts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.add(c)
	if s.seeds < s.of && time.Since(s.shown) > 5*time.Second {
		s.shown = time.Now()
		fmt.Fprintln(os.Stderr, s.String())
	}
}

// TestRepeatable: the same seed goes the same way.
func TestRepeatable(t *testing.T) {
	for seed := uint64(1); seed <= 12; seed++ {
		_, x := runSeed(t, seed)
		if _, y := runSeed(t, seed); x != y {
			t.Errorf("seed %d goes two ways: %x and %x", seed, x, y)
		}
	}
}

// runSeed runs a scenario and returns what happened and a hash of it.
func runSeed(t *testing.T, seed uint64) (counts, [2]uint64) {
	s := draw(seed)
	var w *world
	defer func() {
		if t.Failed() {
			explain(t, &s, w)
		}
	}()
	w = newWorld(t, s)
	w.count = newCounts()
	if *flagTrace {
		w.wire.shown = os.Stdout
	}
	w.begun = w.p.Now()
	w.drive(w.finished)
	w.finish()
	w.verify()
	w.sum()
	if c := &w.count; s.perfect() && c.retransmitted != 0 && c.rnr == 0 {
		w.p.Fatalf("%d packets were sent again, and nothing was lost", c.retransmitted)
	}
	return w.count, [2]uint64{w.p.Digest(), w.digest}
}

// explain prints what is needed to understand a failure.
func explain(t *testing.T, s *scenario, w *world) {
	var b bytes.Buffer
	if w != nil {
		for _, e := range w.wire.trace[max(0, len(w.wire.trace)-traceLen):] {
			fmt.Fprintln(&b, e)
		}
		for _, f := range w.flows {
			fmt.Fprintf(&b, "%v: %d messages, %d posted, %d known, failed %v (%d), state %v, in queues %d, %d; receives: %d, %d posted, %d known\n",
				f.from, len(f.msgs), f.posted, f.known, f.failed, f.status, f.from.qp.State(), f.from.qp.SQ.Outstanding(), f.from.qp.SendCQ.Len(),
				len(f.from.recvs.slots), f.from.recvs.posted, f.from.recvs.known)
		}
	}
	t.Logf("the last frames:\n%s\nscenario: %v\nagain: go test ./rocev2/soak -run TestSoak -args -seed=%d -trace",
		b.String(), s, s.seed)
}

// drive lets the time pass until done, no longer than limit.
func (w *world) drive(done func() bool) {
	end := w.p.Now().Add(limit)
	for {
		w.work()
		now := w.p.Now()
		if done() {
			return
		}
		if now >= end {
			w.p.Fatalf("hangs")
		}
		planned := w.wake.Min(end)
		w.p.RunUntil(func() bool {
			// What has been posted must be transmitted before the time passes: that
			// may complete it.
			acts := w.acts
			w.work()
			return w.acts != acts || done() || w.wake < planned || w.wake <= w.p.Now()
		}, max(planned.Sub(now), 0))
	}
}

// finished reports whether all requests are done and, as far as that is certain,
// all messages have been received.
func (w *world) finished() bool {
	for _, f := range w.flows {
		if !f.done() {
			return false
		}
		for e, st := range f.streams {
			if w.s.typ == qp.RC && !f.failed && st.pos < len(st.msgs) && e.flushes == 0 {
				return false
			}
		}
	}
	return true
}

// finish lets everything come to rest and breaks the queue pairs: what is posted,
// before or afterwards, must be flushed.
func (w *world) finish() {
	w.ending = true
	quiet := func() bool { return w.wire.next() == mono.Never }
	for ok := false; !ok; ok = quiet() {
		w.drive(quiet)
		w.p.RunIdle()
	}
	w.work()
	w.afterRest()
	for _, f := range w.flows {
		f.replaceRest()
		if chance(w.rng, 50) {
			f.post(w.p.Now()) // what is posted at the last moment is flushed too
		}
		f.from.qp.Modify(qp.Attr{State: qp.Err}, 0, nil)
	}
	w.drive(w.flushed)
	w.p.RunIdle()
	w.work()
}

// replaceRest leaves a few messages that can only be flushed.
func (f *flow) replaceRest() {
	f.msgs = f.msgs[:f.posted:f.posted]
	for range 3 {
		f.msgs = append(f.msgs, &message{op: qp.WRSend, to: f.to()})
	}
	f.nextAt = 0
}

// flushed reports whether everything is posted and completed.
func (w *world) flushed() bool {
	for _, f := range w.flows {
		if f.known != len(f.msgs) {
			return false
		}
	}
	for _, r := range w.recvs {
		if r.srq == nil && r.known != len(r.slots) {
			return false
		}
	}
	return true
}

// afterRest checks what must hold when nothing happens any more.
func (w *world) afterRest() {
	for _, f := range w.flows {
		st := f.from.qp.State()
		if !f.failed && st != qp.RTS || f.failed && st != qp.Err {
			w.p.Fatalf("%v is in state %v", f.from, st)
		}
		if n := f.from.qp.SQ.Outstanding(); n != 0 {
			w.p.Fatalf("%v: %d places of the send queue are not given back", f.from, n)
		}
		for e, stream := range f.streams {
			w.checkDelivery(f, e, stream)
		}
	}
	for _, n := range []int{0, 1} {
		for _, e := range w.node(n).Events {
			switch e.Type {
			case qp.EventCommEst, qp.EventSQDrained, qp.EventPortActive, qp.EventPortErr, qp.EventQPLastWQE:
			default:
				w.p.Fatalf("event %d", e.Type)
			}
		}
	}
}

// checkDelivery compares what was received with what is said to have been sent.
func (w *world) checkDelivery(f *flow, e *end, st *stream) {
	missing := 0
	for i, m := range st.msgs {
		if m.success && m.got == 0 && m.win == nil { // UC: the window may have been closed meanwhile
			missing++
		}
		if w.s.typ == qp.RC && (m.got > 1 || m.got == 1 != (i < st.pos) || m.success && m.got == 0) {
			w.p.Fatalf("%v: message %d to %v: done %v, received %d times", f.from, i, e, m.success, m.got)
		}
	}
	if missing > 0 && !w.s.loses() && !w.s.disorders() && w.s.late == 0 && !w.s.cold && !e.recvs.short() {
		w.p.Fatalf("%v: %d messages to %v have not arrived, and nothing was lost", f.from, missing, e)
	}
}

// short reports whether messages may have come when no request was posted.
func (r *recvs) short() bool {
	return r.w.s.depth < len(r.slots)
}

// verify compares memory and completions at the end of a run.
func (w *world) verify() {
	for _, f := range w.flows {
		if f.known != f.posted || f.from.qp.SQ.Outstanding() != 0 {
			w.p.Fatalf("%v: %d completions known of %d posted, %d outstanding", f.from, f.known, f.posted, f.from.qp.SQ.Outstanding())
		}
		f.settleWord()
	}
	for _, r := range w.recvs {
		if left := r.queue.Len(); r.known+left != r.posted || left > 0 && r.srq == nil {
			w.p.Fatalf("%d receive requests posted, %d completed, %d left", r.posted, r.known, left)
		}
		if err := r.mem.check(); err != nil {
			w.p.Fatalf("receive buffers: %v", err)
		}
	}
	for side, ends := range w.ends {
		for _, e := range ends {
			if err := e.mem.check(); err != nil {
				w.p.Fatalf("%v: %v", e, err)
			}
		}
		w.checkShared(side)
	}
}

// checkShared compares the sum of the additions.
func (w *world) checkShared(side int) {
	sum := binary.NativeEndian.Uint64(w.shared[side].B[w.sharedWord[side]:])
	least, most := uint64(0), uint64(0)
	for _, f := range w.flows {
		for _, m := range f.msgs[:f.posted] {
			if m.atomic.shared && m.to.side == side {
				most++
				if m.success {
					least++
				}
			}
		}
	}
	if sum < least || sum > most {
		w.p.Fatalf("%d additions, %d of them complete, make %d", most, least, sum)
	}
	for v := range w.found[side] {
		if v >= sum {
			w.p.Fatalf("an addition has found %d of %d", v, sum)
		}
	}
}

// sum gathers the counters of the run.
func (w *world) sum() {
	c := &w.count
	c.seeds, c.frames, c.cut = 1, w.p.Frames(), w.wire.lost
	c.services[w.s.typ]++
	for _, r := range w.wire.eng.RuleStats() {
		c.faults[r.Rule.Action] += r.Hit
	}
	for side := range 2 {
		n := w.node(side)
		c.retransmitted += n.Counter("retransmitted_packets")
		c.rnr += n.Counter("rcvd_rnr_err")
		c.timeouts += n.Counter("local_ack_timeout_err")
		c.implied += n.Counter("implied_nak_seq_err")
	}
}
