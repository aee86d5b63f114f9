package qp

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/path"
	"roced.io/roced/qp/mrc"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// mrcProfile returns the profile mrc.
func mrcProfile(in reorder.Params, out retrans.Params) func() Profile {
	return func() Profile {
		return Profile{Kind: bth.ProfileMRC, Tracker: tracker("mrc", in), Recovery: recovery("mrc", out)}
	}
}

// mrcWrites are the operations of MRC.
var mrcWrites = []WROpcode{WRWrite, WRWriteImm}

// mrcPair is lossless for MRC.
func mrcPair() pairConfig {
	c := lossless
	c.timeout, c.unacked, c.ops = 9, 64, mrcWrites
	c.profile = mrcProfile(nil, nil)
	return c
}

// writes returns a workload of both operations in sizes around the MTU of 256.
func writes(p *pair, from int) *workload {
	rng := rand.New(rand.NewPCG(1, uint64(from)))
	l := newWorkload(p, from)
	for range 4 {
		for _, n := range []uint32{0, 1, 256, 257, 600, 5000} {
			l.add(WRWrite, n, 0, rng)
			l.add(WRWriteImm, n, SendSolicited, rng)
		}
	}
	return l
}

// TestMRCEverySize sends both operations without faults, for several windows. No progress depends on a timeout.
func TestMRCEverySize(t *testing.T) {
	for _, unacked := range []uint32{1, 2, 7, 256, 2000} {
		c := mrcPair()
		c.timeout, c.unacked = 0, unacked
		p := newPair(t, c)
		a, b := writes(p, 0), writes(p, 1)
		p.run(t)
		a.verify(t)
		b.verify(t)
		for _, e := range p.ends {
			if n := e.q.ctr.RetransmittedPackets; n != 0 {
				t.Errorf("window %d: %d retransmissions without loss", unacked, n)
			}
		}
	}
}

// TestMRCEachFault loses, duplicates or delays each packet in turn: data, SACKs, Transport ACKs and probes.
func TestMRCEachFault(t *testing.T) { eachFault(t, mrcPair(), writes) }

// TestMRCAnyFaults draws requests, limits, and a pattern of loss, duplicates and delay. Each request must take effect once,
// in order, byte for byte.
func TestMRCAnyFaults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := mrcPair()
		in := reorder.Params{"max_wimm": 3, "dynamic_mpr": float64(rapid.IntRange(0, 1).Draw(t, "dynamic"))}
		in["sack_bytes"] = float64(rapid.SampledFrom([]int{1, 1000, 16384}).Draw(t, "sack bytes"))
		out := retrans.Params{"max_wimm": float64(rapid.IntRange(1, 3).Draw(t, "immediates")), "exponential_retries": retrans.Forever}
		out["loss_packets"] = float64(rapid.IntRange(1, 40).Draw(t, "threshold"))
		c.profile = mrcProfile(in, out)
		anyFaults(t, c)
	})
}

// TestMRCNoReceive: a WRITE with immediate data that finds no receive breaks the connection. The messages before it are
// complete.
func TestMRCNoReceive(t *testing.T) {
	for _, size := range []uint32{0, 600, 5000} {
		p := newPair(t, mrcPair())
		l := newWorkload(p, 0)
		rng := rand.New(rand.NewPCG(1, 1))
		for i := range 6 {
			l.add([]WROpcode{WRWrite, WRWriteImm}[i%2], size, 0, rng)
		}
		p.ends[1].h.recvs = p.ends[1].h.recvs[:1]
		p.run(t)
		want := []Status{StatusSuccess, StatusSuccess, StatusSuccess, StatusRemInvReqErr, StatusWRFlushErr, StatusWRFlushErr}
		for i, c := range p.ends[0].h.sendCQ {
			if c.Status != want[i] {
				t.Errorf("%d bytes: request %d: %v, want %v", size, i, c.Status, want[i])
			}
		}
		if n := len(p.ends[0].h.sendCQ); n != len(want) || p.ends[0].q.State() != Err || p.ends[1].q.State() != Err {
			t.Errorf("%d bytes: %d completions, %v and %v\n%s", size, n, p.ends[0].q.State(), p.ends[1].q.State(), p.tail())
		}
	}
}

func newRand() *rand.Rand { return rand.New(rand.NewPCG(1, 1)) }

// TestMRCWindow: at most MPR packets are outstanding, the last of which requests an acknowledgement. A dynamic range that has
// shrunk pauses the sender.
func TestMRCWindow(t *testing.T) {
	c := mrcPair()
	c.unacked = 5000
	p := newPair(t, c)
	q, h := p.ends[0].q, p.ends[0].h
	h.queue = append(h.queue, SendWQE{Opcode: WRWrite, Length: 1 << 19, RKey: 5, SGEs: []SGE{{Addr: memBase, Length: 1 << 17, LKey: 1},
		{Addr: memBase, Length: 1 << 17, LKey: 1}, {Addr: memBase, Length: 1 << 17, LKey: 1}, {Addr: memBase, Length: 1 << 17, LKey: 1}}})
	q.Doorbell(p.now)
	sent := func() (n int, last Transmit) {
		var tr Transmit
		for q.PollTransmit(p.now, &tr) {
			last = tr
			n++
		}
		return n, last
	}
	sack := func(arrived int, mpr uint8) {
		cack := bth.MakePSN(c.psn).Add(arrived - 1)
		f := bth.Packet{Opcode: bth.OpcodeMRCSACK, PSN: cack, SETH: bth.SETH{Cack: cack, MPR: mpr}}
		if d := q.Receive(p.now, &f, RxMeta{}); d != Accepted {
			t.Fatal(d)
		}
	}
	if n, last := sent(); n != 1024 || !last.Packet.AckReq {
		t.Errorf("%d packets, AckReq %t", n, last.Packet.AckReq)
	}
	for _, s := range []struct {
		arrived, want int
		mpr           uint8
	}{{500, 500, 0}, {1000, 0, 2}, {1500, 232, 2}, {1600, 292, 8}} {
		sack(s.arrived, s.mpr)
		if n, _ := sent(); n != s.want {
			t.Errorf("%+v: %d packets", s, n)
		}
	}
}

// TestMRCWoken: the Transport ACK of a message that has woken a program leaves at once, though nothing has requested it.
func TestMRCWoken(t *testing.T) {
	p := newPair(t, mrcPair())
	q := p.ends[1].q
	p.ends[1].h.recvs = []RecvWQE{{}}
	in := bth.Packet{Opcode: bth.TransportMRC | bth.OpWriteOnlyImm, PSN: bth.MakePSN(lossless.psn)}
	q.Receive(p.now, &in, RxMeta{})
	var tr Transmit
	if q.PollTransmit(p.now, &tr) {
		t.Errorf("%v without a request", tr.Packet.Opcode)
	}
	in.PSN, in.METH, in.Opcode = in.PSN.Next(), bth.METH{MSN: 1}, bth.TransportMRC|bth.OpWriteOnly
	q.Receive(p.now, &in, RxMeta{})
	q.Woken()
	if !q.PollTransmit(p.now, &tr) || tr.Packet.Opcode != bth.TransportMRC|bth.OpAcknowledge || tr.Packet.AETH.MSN != 2 {
		t.Errorf("%v, %+v", tr.Packet.Opcode, tr.Packet.AETH)
	}
}

// TestMRCMeasures: a SACK measures the round trip of the transmission whose timestamp it echoes. If the first transmission is so
// old that timestamps have repeated, it measures none: 9 ms would count as 0.6.
func TestMRCMeasures(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name         string
		again        time.Duration // zero: sent once
		second       bool          // the SACK echoes the second transmission
		answer, want time.Duration
	}{
		{"sent once", 0, false, ms, ms},
		{"the first of two", 2 * ms, false, 3 * ms, 3 * ms},
		{"the second of two", 2 * ms, true, 3 * ms, ms},
		{"an old one", 8 * ms, false, 9 * ms, 0},
	} {
		p := newPair(t, mrcPair())
		q, h, start := p.ends[0].q, p.ends[0].h, p.now
		h.queue = append(h.queue, SendWQE{Opcode: WRWrite, Length: 8, RKey: 5, SGEs: []SGE{{Addr: memBase, Length: 8, LKey: 1}}})
		q.Doorbell(start)
		var tr Transmit
		if !q.PollTransmit(start, &tr) {
			t.Fatal("no packet")
		}
		psn, echo := tr.Packet.PSN, mrc.Stamp(start).Timestamp
		if c.again > 0 {
			q.mrc().out.rec.OnSent(start.Add(c.again), psn, 1, true)
		}
		if c.second {
			echo = mrc.Stamp(start.Add(c.again)).Timestamp
		}
		f := bth.Packet{Opcode: bth.OpcodeMRCSACK, PSN: psn, SETH: bth.SETH{Cack: psn}}
		fb := reorder.Feedback{Timestamp: echo}
		fb.Receiver.Reported = true
		got := q.mrc().out.measure(start.Add(c.answer), &fb, &f)
		if (got - c.want).Abs() > time.Microsecond {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestMRCUnanswered: a probe, or the repeated last packet, makes its entropy value ASSUMED_BAD if it has no answer.
func TestMRCUnanswered(t *testing.T) {
	for _, c := range []struct {
		name    string
		arrived bool // a SACK reports the WRITE, so that only its Transport ACK is missing
		answer  bool // a SACK returns on the same entropy value
		want    path.EVState
	}{
		{"probe", false, false, path.EVAssumedBad},
		{"repeated packet", true, false, path.EVAssumedBad},
		{"answered probe", false, true, path.EVGood},
		{"answered packet", true, true, path.EVGood},
	} {
		config := mrcPair()
		config.timeout = 20
		config.profile = func() Profile {
			p := mrcProfile(nil, nil)()
			p.Paths = plugIn(path.New, "mrc", path.Params{"ev_count": 8, "ev_active": 8, "ev_min_active": 1})
			return p
		}
		p := newPair(t, config)
		q := p.ends[0].q
		p.ends[0].h.queue = append(p.ends[0].h.queue, SendWQE{Opcode: WRWrite, Length: 8, RKey: 5, SGEs: []SGE{{Addr: memBase, Length: 8, LKey: 1}}})
		q.Doorbell(p.now)
		var tr Transmit
		sack := func(entropy uint32, cack bth.PSN) {
			f := bth.Packet{Opcode: bth.OpcodeMRCSACK, PSN: cack, SETH: bth.SETH{Cack: cack, Entropy: entropy}}
			if d := q.Receive(p.now, &f, RxMeta{}); d != Accepted {
				t.Fatal(d)
			}
		}
		next := func() uint32 {
			p.now = q.NextTimeout()
			q.OnTimeout(p.now)
			if !q.PollTransmit(p.now, &tr) {
				t.Fatalf("%s: nothing to send", c.name)
			}
			return tr.Path
		}
		q.PollTransmit(p.now, &tr)
		cack := tr.Packet.PSN
		if !c.arrived {
			cack = cack.Add(-1)
		} else {
			sack(tr.Path, cack)
		}
		asked := next()
		if c.answer {
			sack(asked, cack)
		}
		next()
		port, _ := bth.SplitEntropy(asked)
		if got, _ := q.mrc().out.evs.State(int(port & 7)); got != c.want {
			t.Errorf("%s: its entropy value has state %d, want %d", c.name, got, c.want)
		}
	}
}
