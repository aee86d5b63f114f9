package flow_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/internal/observe/flow"
	"roced.io/roced/rocev2/nictest"
)

// witness observes all packets at a point between two NICs. It also counts the expected results.
type witness struct {
	*flow.Analyzer
	sent    map[bth.PSN]int // number of transmissions of each request
	high    bth.PSN         // highest PSN
	started bool
	resent  uint64 // requests behind the highest PSN: retransmissions, because the network keeps the order
	naks    uint64
	rnrs    uint64
	acks    uint64
}

func newWitness() *witness {
	return &witness{Analyzer: flow.New(flow.Options{}), sent: map[bth.PSN]int{}}
}

// see passes a frame to the witness.
func (w *witness) see(f *nictest.Flight) {
	w.Packet(f.At, f.Frame[14:])
	var p bth.Packet
	if !f.RoCE(&p) {
		return
	}
	switch op := p.Opcode; {
	case op.IsRequest() && f.From.Name == "a":
		w.sent[p.PSN]++
		if w.started && !p.PSN.After(w.high) {
			w.resent++
		} else {
			w.high, w.started = p.PSN, true
			if op.IsReadRequest() {
				w.high = p.PSN.Add(max(0, int(p.RETH.Length+1023)/1024-1))
			}
		}
	case op.IsAck() && p.AETH.Syndrome.IsNAK():
		w.naks++
	case op.IsAck() && p.AETH.Syndrome.IsRNR():
		w.rnrs++
	case op.IsAck():
		w.acks++
	}
}

// check compares the Analyzer's results for requester a with the expected ones.
func (w *witness) check(t *rapid.T, where string) flow.Flow {
	for _, f := range w.Flows() {
		if f.Requests.Packets == 0 {
			continue
		}
		q, s := f.Requests, f.Responses
		for _, c := range []struct {
			what      string
			got, want uint64
		}{
			{"retransmitted", q.Retransmitted, w.resent}, {"reordered", q.Reordered, 0}, {"duplicated", q.Duplicated, 0},
			{"NAKs", s.NAKs.PSNSequence, w.naks}, {"RNR NAKs", s.RNRNaks, w.rnrs}, {"ACKs", s.Acks, w.acks},
			{"missing", q.Missing, 0},
		} {
			if c.got != c.want {
				t.Errorf("%s the faults: %s %d, want %d\n%+v\n%+v", where, c.what, c.got, c.want, q, s)
			}
		}
		return f
	}
	t.Fatalf("%s the faults: no flow", where)
	return flow.Flow{}
}

// mostDrops limits the drops of one packet: seven retries must suffice although its responses are dropped as often.
const mostDrops = 3

// packetKey identifies a packet and its retransmissions.
type packetKey struct {
	from string
	psn  bth.PSN
}

func keyOf(f *nictest.Flight) packetKey {
	var p bth.Packet
	f.RoCE(&p)
	return packetKey{f.From.Name, p.PSN}
}

// TestLossesAreFound drops random packets between two NICs. One observer is before the losses and sees all
// retransmissions; the other is behind them. Both must agree with the frame counts. The first must also agree with
// the sender.
func TestLossesAreFound(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		share := rapid.SampledFrom([]float64{0, 0.01, 0.05, 0.1}).Draw(rt, "share")
		start := rapid.Uint32Range(1<<24-20, 1<<24+20).Draw(rt, "psn") & (1<<24 - 1)
		before, after := newWitness(), newWitness()
		drops := map[packetKey]int{}
		hook := func(f *nictest.Flight) nictest.Fate {
			before.see(f)
			if key := keyOf(f); f.From.Pair().RNG.Float64() < share && drops[key] < mostDrops {
				drops[key]++
				return nictest.Fate{Drop: true}
			}
			after.see(f)
			return nictest.Fate{}
		}
		p := nictest.New(t, nictest.Options{Seed: rapid.Uint64().Draw(rt, "seed"), Hook: nictest.OnlyRoCE(hook)})
		a, b := p.RC(func(o *nictest.QPOptions) { o.PSN = start })
		src, dst := p.A.Buffer(64<<10), p.B.Buffer(64<<10)
		n := rapid.IntRange(1, 30).Draw(rt, "messages")
		bytes := uint64(0)
		for id := range uint64(n) {
			size := rapid.IntRange(0, 9000).Draw(rt, "size")
			bytes += uint64(size)
			switch rapid.IntRange(0, 2).Draw(rt, "verb") {
			case 0:
				a.Post(nictest.Write(id, dst.At(0), src.Part(0, size)))
			case 1:
				b.PostRecv(id, dst.SGE())
				a.Post(nictest.Send(id, src.Part(0, size)))
			case 2:
				a.Post(nictest.Read(id, dst.At(0), src.Part(0, size)))
			}
		}
		for id := range uint64(n) {
			a.WaitSend(id)
		}
		f := before.check(rt, "before")
		if f.Messages != uint64(n) || f.Requests.Lost != 0 || f.Joined == flow.Unjoined {
			rt.Errorf("before the faults: %d messages, want %d; %+v", f.Messages, n, f)
		}
		if resent := p.A.Counter("retransmitted_packets"); f.Requests.Retransmitted != resent {
			rt.Errorf("%d retransmitted packets, the sender says %d", f.Requests.Retransmitted, resent)
		}
		g := after.check(rt, "after")
		if g.Messages != uint64(n) || g.Bytes != bytes {
			rt.Errorf("after the faults: %d messages of %d bytes, want %d of %d", g.Messages, g.Bytes, n, bytes)
		}
	})
}

// TestTimes adds a delay between two NICs. The observer at the requester measures the round trip; the one at the
// responder measures almost zero.
func TestTimes(t *testing.T) {
	near, far := newWitness(), newWitness()
	const delay = 100 * time.Microsecond
	p := nictest.New(t, nictest.Options{Delay: delay, Hook: nictest.OnlyRoCE(func(f *nictest.Flight) nictest.Fate {
		at := *f
		if f.From.Name == "b" {
			far.see(f)
			at.At = f.At.Add(delay)
			near.see(&at)
		} else {
			near.see(f)
			at.At = f.At.Add(delay)
			far.see(&at)
		}
		return nictest.Fate{}
	})})
	a, _ := p.RC()
	src, dst := p.A.Buffer(4096), p.B.Buffer(4096)
	for id := range uint64(20) {
		a.Post(nictest.Write(id, dst.At(0), src.SGE()))
		a.WaitSend(id)
		a.Post(nictest.Read(id+100, dst.At(0), src.SGE()))
		a.WaitSend(id + 100)
	}
	for w, want := range map[*witness]time.Duration{near: 2 * delay, far: 0} {
		r := w.Flows()[0].RTT
		if r.Samples != 40 || r.Min < want || r.Max > want+20*time.Microsecond || r.P50 < r.Min || r.P99 < r.P50 || r.Smoothed > r.Max {
			t.Errorf("round-trip times %+v, want %v", r, want)
		}
	}
}
