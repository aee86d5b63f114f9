package retrans

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// newTestMRC sends n packets, one in each microsecond.
func newTestMRC(t *testing.T, p Params, n int) *MRC {
	t.Helper()
	r, err := New("mrc", p)
	if err != nil {
		t.Fatal(err)
	}
	r.Reset(at(0))
	for i := range n {
		r.OnSent(mono.Time(i*1000), at(i), 1, false)
	}
	return r.(*MRC)
}

// sack reports the packets of list, with expected as the first missing one.
func sack(expected int, list ...int) *reorder.Feedback {
	f := &reorder.Feedback{Expected: at(expected), Base: at(expected)}
	for _, i := range list {
		f.Bitmap |= 1 << (i - expected)
	}
	return f
}

func refused(i int) *reorder.Feedback {
	return &reorder.Feedback{Expected: at(0), HasSACK: true, Refused: true, SACK: at(i)}
}

// TestMRCLosses checks each way in which a packet is found to be lost.
func TestMRCLosses(t *testing.T) {
	p := Params{"loss_packets": 5, "rto_us": 100}
	r := newTestMRC(t, p, 10)
	if out := r.OnFeedback(9, sack(1, 3, 5)); out != (Outcome{Acked: 1, Delivered: 3}) || r.InFlight() != 7 {
		t.Errorf("5 is 4 transmissions behind 1: %+v, %d in flight", out, r.InFlight())
	}
	if out := r.OnFeedback(9, sack(1, 3, 7)); out != (Outcome{Delivered: 1, Lost: 2}) || r.InFlight() != 4 {
		t.Errorf("7 is 5 behind 2: %+v, %d in flight", out, r.InFlight())
	}
	expectAgain(t, "by order", r, 1, 2)
	if out := r.OnFeedback(9, sack(1, 2, 3, 4, 6, 8, 9)); out != (Outcome{Delivered: 5}) {
		t.Errorf("1 was sent just before 2: %+v", out)
	}
	for i := 10; i < 16; i++ {
		r.OnSent(9, at(i), 1, false)
	}
	if out := r.OnFeedback(9, sack(1, 15)); out.Lost != 2 { // 1 and 10, which 15 follows by five transmissions
		t.Errorf("a lost retransmission: %+v", out)
	}
	expectAgain(t, "retransmission", r, 1, 10)

	r = newTestMRC(t, p, 2)
	r.OnFeedback(9, refused(0))
	for i := 2; i < 8; i++ {
		r.OnSent(9, at(i), 1, false)
	}
	expectAgain(t, "refused", r, 0)
	if out := r.OnFeedback(9, ack(1)); out != (Outcome{Acked: 1, Delivered: 1}) {
		t.Errorf("the first transmission may have arrived: %+v", out)
	}
	r = newTestMRC(t, p, 4)
	if out := r.OnFeedback(9, refused(2)); out != (Outcome{Lost: 1}) || r.InFlight() != 3 {
		t.Errorf("NACK: %+v", out)
	}
	if out := r.OnFeedback(9, refused(2)); out != (Outcome{}) {
		t.Errorf("a second NACK: %+v", out)
	}
	expectAgain(t, "NACK", r, 2)

	r = newTestMRC(t, p, 4)
	r.Probed()
	r.OnSent(4000, at(4), 1, false)
	answer := sack(1, 2)
	answer.ProbeReply = true
	if out := r.OnFeedback(9, answer); out != (Outcome{Acked: 1, Delivered: 2, Lost: 2}) || r.InFlight() != 1 {
		t.Errorf("probe: %+v, %d in flight", out, r.InFlight())
	}
	expectAgain(t, "probe", r, 1, 3)
	// Each packet has a timer: those sent until 2 us have expired.
	r = newTestMRC(t, p, 4)
	if d := r.Deadline(); d < 99_000 || d > 102_000 {
		t.Errorf("the first timer: %d", d)
	}
	r.OnSent(50_000, at(0), 1, true) // restarts its timer
	if out := r.OnTimeout(101_500); out.Lost != 2 {
		t.Errorf("timers: %+v", out)
	}
	expectAgain(t, "timers", r, 1, 2)
	if out := r.OnTimeout(104_000); out.Lost != 1 { // 3; the timer of 0 is younger
		t.Errorf("the timer of a retransmission: %+v", out)
	}
}

// TestMRCRetries: retries are first linear, then exponential up to a ceiling. The losses of one burst use one of them, an
// arrival gives all back.
func TestMRCRetries(t *testing.T) {
	r := newTestMRC(t, Params{"exponential_retries": 3}, 3)
	r.SetTimeout(4096 * time.Nanosecond)
	r.SetRetries(2)
	var waits []time.Duration
	now := mono.Time(10_000)
	for !r.Exhausted() {
		r.OnTimeout(now)
		for psn, ok := r.NextRetransmit(); ok; psn, ok = r.NextRetransmit() {
			r.OnSent(now, psn, 1, true)
		}
		waits = append(waits, r.Deadline().Sub(now).Round(4096))
		now = r.Deadline()
	}
	want := []time.Duration{1, 1, 2, 4, 8, 16}
	for i := range want {
		if len(waits) != len(want) || waits[i] != want[i]*4096 {
			t.Fatalf("%v", waits)
		}
	}
	if r.OnFeedback(now, sack(0, 1)); r.Exhausted() {
		t.Error("exhausted after an arrival")
	}
	if d := r.Timeout(); d != 4096 {
		t.Errorf("timeout of %v after an arrival", d)
	}
	r = newTestMRC(t, Params{"exponential_retries": Forever}, 3)
	r.SetTimeout(time.Second)
	for range 100 { // each NACK answers a retransmission
		r.OnFeedback(now, refused(1))
		r.OnSent(now, at(1), 1, true)
	}
	if r.Exhausted() || r.Timeout() != longestTimeout {
		t.Errorf("%d retries, timeout %v", r.retries, r.Timeout())
	}
	r = newTestMRC(t, nil, 100)
	r.SetRetries(1)
	for i := range 100 {
		r.OnFeedback(now, refused(i))
	}
	if r.retries != 1 || r.Exhausted() {
		t.Errorf("%d retries in a burst", r.retries)
	}
	r.SetTimeout(0)
	if r.Deadline() != mono.Never {
		t.Error("an infinite timeout ends")
	}
}

// TestMRCRange: the peer's range limits outstanding packets. A dynamic one may shrink and grow again, to the first value.
func TestMRCRange(t *testing.T) {
	r := newTestMRC(t, Params{"mpr": 16}, 1)
	for _, c := range []struct{ told, want int }{{0, 2048}, {9, 1152}, {0, 1152}, {1, 128}, {255, 2048}} {
		r.OnFeedback(1, &reorder.Feedback{Expected: at(0), MPR: uint8(c.told)})
		if got := r.Cap(); got != uint32(c.want) {
			t.Errorf("%d: %d packets, want %d", c.told, got, c.want)
		}
	}
}

// TestMRCModel: for any feedback, each outstanding packet is in flight, lost, or known to have arrived, as a naive model
// says. Packets that have arrived are not retransmitted.
func TestMRCModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rec, err := New("mrc", Params{"loss_packets": float64(rapid.IntRange(1, 20).Draw(t, "threshold")), "rto_us": 50})
		if err != nil {
			t.Fatal(err)
		}
		r := rec.(*MRC)
		first := psn(rapid.Uint32Range(0, 1<<24-1).Draw(t, "first"))
		r.Reset(first)
		nxt, now, arrived := first, mono.Time(0), map[bth.PSN]bool{}
		near := func(what string) bth.PSN { return r.Una().Add(rapid.IntRange(-3, 70).Draw(t, what)) }
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			now += mono.Time(rapid.IntRange(0, 20_000).Draw(t, "later"))
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 0, 1:
				if nxt.Since(r.Una()) < r.Cap() {
					r.OnSent(now, nxt, 1, false)
					nxt = nxt.Next()
				}
			case 2:
				if again, ok := r.NextRetransmit(); ok {
					if arrived[again] {
						t.Fatalf("%v has arrived", again)
					}
					r.OnSent(now, again, 1, true)
				}
				r.OnSent(now, near("copy"), 1, true)
			case 3:
				f := reorder.Feedback{Expected: r.Una().Add(rapid.IntRange(-2, 4).Draw(t, "expected")), Base: near("base"), SACK: near("sack"),
					Bitmap: rapid.Uint64().Draw(t, "bitmap"), HasSACK: rapid.Bool().Draw(t, "has"), Refused: rapid.Bool().Draw(t, "refused")}
				f.ProbeReply = rapid.Bool().Draw(t, "answer")
				learn(arrived, r.Una(), nxt, &f)
				r.OnFeedback(now, &f)
			case 4:
				r.Probed()
			case 5:
				if d := r.Deadline(); d != mono.Never && d <= now {
					if out := r.OnTimeout(now); out.Lost == 0 {
						t.Fatal("a timeout without a loss")
					}
				}
			}
			n, known := nxt.Since(r.Una()), count(arrived, r.Una(), nxt)
			if n > r.Cap() || r.InFlight()+r.lost.n+known != n || known != r.set {
				t.Fatalf("una %v, nxt %v: %d in flight, %d lost, %d have arrived, %d by the model", r.Una(), nxt, r.InFlight(), r.lost.n, r.set, known)
			}
			if (r.Deadline() == mono.Never) != (r.InFlight() == 0) {
				t.Fatalf("%d in flight, deadline %d", r.InFlight(), r.Deadline())
			}
		}
		r.OnFeedback(now, &reorder.Feedback{Expected: nxt})
		if _, ok := r.NextRetransmit(); ok || r.InFlight() != 0 || r.lost.n != 0 {
			t.Fatal("something remains")
		}
	})
}

// learn adds the packets that f reports as arrived to the model.
func learn(arrived map[bth.PSN]bool, una, nxt bth.PSN, f *reorder.Feedback) {
	if f.Expected.Since(una) > nxt.Since(una) && una.Since(f.Expected) > MaxLate {
		return
	}
	for i := range 64 {
		if p := f.Base.Add(i); f.Bitmap>>i&1 != 0 {
			arrived[p] = p.Since(una) < nxt.Since(una)
		}
	}
	if f.HasSACK && !f.Refused {
		arrived[f.SACK] = f.SACK.Since(una) < nxt.Since(una)
	}
}

// count returns the number of packets from una up to but not including nxt that have arrived.
func count(arrived map[bth.PSN]bool, una, nxt bth.PSN) (n uint32) {
	for ; una != nxt; una = una.Next() {
		if arrived[una] {
			n++
		}
	}
	return n
}

// TestMRCLossReports: losses that no NACK reports are reported with the port of the last transmission.
func TestMRCLossReports(t *testing.T) {
	r := newTestMRC(t, Params{"loss_packets": 5, "rto_us": 100}, 10)
	var lost []uint16
	r.OnLoss(func(_ mono.Time, port uint16) { lost = append(lost, port) })
	for i := range 10 {
		r.SetPort(at(i), uint16(0xc000+i))
	}
	r.SetPort(at(2), 0) // the port of the connection
	r.OnFeedback(9, refused(1))
	r.OnFeedback(9, sack(0, 7)) // 0 and 2 are lost
	r.OnSent(9, at(0), 1, true)
	r.SetPort(at(0), 0xc0aa)
	r.OnTimeout(120_000) // of 3 to 6, 8, 9 and the retransmission
	want := []uint16{0xc000, 0xc003, 0xc004, 0xc005, 0xc006, 0xc008, 0xc009, 0xc0aa}
	if !slices.Equal(lost, want) {
		t.Errorf("lost on %#x, want %#x", lost, want)
	}
	if r.Port(at(0)) != 0xc0aa || r.Port(at(5)) != 0xc005 {
		t.Errorf("ports %#x, %#x", r.Port(at(0)), r.Port(at(5)))
	}
}

// TestMRCSince checks that the age of a packet counts from its first transmission.
func TestMRCSince(t *testing.T) {
	r := newTestMRC(t, Params{"loss_packets": 5}, 2)
	r.OnFeedback(40_000, refused(0))
	r.OnSent(50_000, at(0), 1, true)
	if d := r.Since(60_000, at(0)); d < 60*time.Microsecond || d > 62*time.Microsecond {
		t.Errorf("sent at 0 and 50 us: %v at 60 us", d)
	}
	if d := r.Since(60_000, at(1)); d < 59*time.Microsecond || d > 61*time.Microsecond {
		t.Errorf("sent at 1 us: %v at 60 us", d)
	}
}

// TestMRCGrows: room that grows with the packets in flight changes nothing, and a queue pair without packets has little.
func TestMRCGrows(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		start := bth.MakePSN(uint32(rng.Uint64()))
		grown, whole := NewMRC(64), NewMRC(64)
		if len(grown.packets) != fewPackets {
			t.Fatalf("room for %d packets at first", len(grown.packets))
		}
		whole.packets = make([]mrcPacket, size(whole.cfg.cap))
		both := []*MRC{grown, whole}
		for _, r := range both {
			r.Reset(start)
			r.SetTimeout(50 * time.Millisecond)
		}
		next := start
		for now := mono.Time(0); now < 20_000_000; now += 1000 {
			f := &reorder.Feedback{Expected: grown.Una(), Base: grown.Una().Add(rng.IntN(8192)), Bitmap: rng.Uint64() & rng.Uint64() & rng.Uint64()}
			if rng.IntN(50) == 0 {
				f.Expected = f.Expected.Add(rng.IntN(int(grown.outstanding()) + 1))
			}
			send, acked, again := grown.outstanding() < grown.Cap(), rng.IntN(4) == 0, rng.IntN(3) == 0
			var got [2]string
			for i, r := range both {
				psn, ok := r.NextRetransmit()
				var out Outcome
				switch {
				case ok && again:
					r.OnSent(now, psn, 1, true)
					r.SetPort(psn, uint16(now))
				case acked:
					out = r.OnFeedback(now, f)
				case send:
					r.OnSent(now, next, 1, false)
					r.SetPort(next, uint16(now))
				}
				got[i] = fmt.Sprint(psn, ok, out, r.InFlight(), r.Deadline(), r.Una())
				if r.outstanding() > 0 {
					got[i] += fmt.Sprint(r.Since(now, r.Una()), r.Port(r.Una()))
				}
			}
			if got[0] != got[1] {
				t.Fatalf("seed %d, %d: %s, want %s", seed, now, got[0], got[1])
			}
			next = grown.nxt
		}
		if len(grown.packets) <= fewPackets {
			t.Errorf("seed %d: %d packets have not grown it", seed, grown.outstanding())
		}
	}
}
