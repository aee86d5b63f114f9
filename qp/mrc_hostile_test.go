package qp

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// mrcHostile is hostile with packets of MRC.
type mrcHostile struct{ *hostile }

// TestMRCHostile drives client, peer and time of a queue pair of MRC at random. It must not panic or spin, and must complete
// each accepted request once.
func TestMRCHostile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := mrcHostile{&hostile{t: t, h: &orderHost{scriptHost: newScriptHost(4096), t: t}}}
		s.h.quiet = true
		out := retrans.Params{"max_wimm": float64(rapid.IntRange(1, 4).Draw(t, "wimm")), "loss_packets": float64(rapid.IntRange(1, 9).Draw(t, "loss"))}
		s.q = New(Config{Tuning: Software, Type: RC, QPN: 17, Host: s.h, SigAll: true, MaxSendWR: 9, MaxSendSGE: 3, MaxInline: 300,
			MaxUnacked: rapid.Uint32Range(0, 12).Draw(t, "unacked"), Profile: mrcProfile(reorder.Params{"max_wimm": 2}, out)()})
		if err := toRTS(s.q, Attr{PathMTU: 1, SQPSN: 0xfffff0, RQPSN: 0xfffff0, Timeout: 3, RetryCnt: 7, AccessFlags: AccessRemoteWrite}); err != nil {
			t.Fatal(err)
		}
		t.Repeat(map[string]func(*rapid.T){
			"post": s.post, "poll": s.poll, "receive": s.receive, "receive2": s.receive, "request": s.request,
			"wait": s.wait, "modify": s.modify, "revoke": s.revoke, "": s.check,
		})
		s.q.enterError(s.now)
		for s.q.Doorbell(s.now); s.q.NextTimeout() <= s.now; {
			s.q.OnTimeout(s.now)
		}
		if int(s.h.next) != len(s.h.queue) || s.h.retired != len(s.h.queue) {
			t.Fatalf("%d completed and %d retired of %d", s.h.next, s.h.retired, len(s.h.queue))
		}
	})
}

func (s mrcHostile) receive(t *rapid.T) {
	r := &s.q.req
	near := func(what string) bth.PSN { return r.una.Add(rapid.IntRange(-3, int(r.outstanding())+3).Draw(t, what)) }
	p := bth.Packet{PSN: near("psn")}
	p.Opcode = rapid.SampledFrom([]bth.Opcode{bth.OpcodeMRCSACK, bth.OpcodeMRCSACK, bth.OpcodeMRCNACK, bth.TransportMRC | bth.OpAcknowledge,
		bth.OpcodeMRCProbe, bth.OpcodeMRCEndpointRequest, bth.OpAcknowledge, bth.OpcodeExtAck}).Draw(t, "opcode")
	p.AETH = bth.AETH{Syndrome: bth.Syndrome(rapid.SampledFrom([]int{0x1f, 0x1f, 0x1f, 0x1f, 0x60, 0x21, 0x61, 0x62, 0x63, 0x64}).Draw(t, "syndrome")),
		MSN: (s.q.mrc().out.acked + uint32(rapid.IntRange(-1, 3).Draw(t, "msn"))) & mask24}
	p.SETH = bth.SETH{Cack: near("cack"), AckOffset: rapid.Int16Range(-2, 5).Draw(t, "ack"), ProbeReply: rapid.Bool().Draw(t, "answer"),
		MPR: rapid.Uint8().Draw(t, "mpr"), SACKOffset: rapid.Int16Range(-70, 5).Draw(t, "base"), Bitmap: rapid.Uint64().Draw(t, "bitmap")}
	if p.SETH.ProbeReply && rapid.Bool().Draw(t, "genuine") {
		p.SETH.AckOffset = int16(s.q.mrc().out.probe)
	}
	p.NETH = bth.NETH{PSN: p.PSN, Reason: rapid.SampledFrom([]bth.MRCReason{bth.MRCTrimmed, bth.MRCOutOfWindow, bth.MRCUnexpected, 99}).Draw(t, "reason")}
	s.q.Receive(s.now, &p, RxMeta{CE: rapid.Bool().Draw(t, "ce")})
}

// request delivers a WRITE.
func (s mrcHostile) request(t *rapid.T) {
	p := bth.Packet{AckReq: rapid.Bool().Draw(t, "ackreq"), ReTx: rapid.Bool().Draw(t, "rtx")}
	p.Opcode = bth.TransportMRC | rapid.SampledFrom([]bth.Opcode{bth.OpWriteFirst, bth.OpWriteMiddle, bth.OpWriteLast, bth.OpWriteLastImm,
		bth.OpWriteOnly, bth.OpWriteOnlyImm}).Draw(t, "opcode")
	p.PSN = s.q.resp.trk.Expected().Add(rapid.SampledFrom([]int{0, 0, 1, 2, -1, 1023, 1024, 1 << 22}).Draw(t, "psn"))
	p.Payload = make([]byte, rapid.SampledFrom([]int{256, 256, 0, 88, 5000}).Draw(t, "len"))
	p.RETH = bth.RETH{VA: memBase, RKey: 5, Length: rapid.SampledFrom([]uint32{0, 88, 256, 344, 600, 1 << 31, 1<<32 - 1}).Draw(t, "length")}
	p.METH = bth.METH{MSN: rapid.Uint16Range(0, 2).Draw(t, "msn"), RQMSN: rapid.Uint16Range(0, 1).Draw(t, "rqmsn")}
	s.q.Receive(s.now, &p, RxMeta{})
}

// TestMRCForeign: packets of MRC do not disturb a queue pair of another transport, nor the reverse, whatever their PSN.
func TestMRCForeign(t *testing.T) {
	foreign := []bth.Opcode{bth.OpWriteOnly, bth.OpSendOnly, bth.OpReadRequest, bth.OpAcknowledge, bth.OpReadRespOnly,
		bth.TransportExt | bth.OpWriteOnly, bth.OpcodeExtAck, bth.OpcodeExtReadAck, bth.OpcodeMRCEndpointRequest}
	own := []bth.Opcode{bth.TransportMRC | bth.OpWriteOnly, bth.TransportMRC | bth.OpAcknowledge, bth.OpcodeMRCSACK, bth.OpcodeMRCNACK,
		bth.OpcodeMRCProbe, bth.OpcodeMRCEndpointResponse}
	for name, c := range map[string]struct {
		profile func() Profile
		ops     []bth.Opcode
	}{
		"mrc": {mrcProfile(nil, nil), foreign}, "rc": {func() Profile { return Profile{} }, own}, "irn": {func() Profile { return irn(nil) }, own},
	} {
		conf := mrcPair()
		conf.profile = c.profile
		p := newPair(t, conf)
		l := newWorkload(p, 0)
		l.add(WRWrite, 5000, 0, newRand())
		p.send() // all are outstanding
		for _, op := range c.ops {
			for i := -2; i < 40; i++ {
				psn := bth.MakePSN(conf.psn).Add(i)
				bad := bth.Packet{Opcode: op, PSN: psn, AETH: bth.AETH{Syndrome: bth.SyndromeInvalidRequest, MSN: 1}, SETH: bth.SETH{Cack: psn},
					NETH: bth.NETH{PSN: psn, Reason: bth.MRCUnexpected}, RETH: bth.RETH{VA: memBase, RKey: 5}}
				for _, e := range p.ends {
					if d := e.q.Receive(p.now, &bad, RxMeta{}); d != DropProfile && !(op.IsEndpoint() && d == DropOpcode) {
						t.Errorf("%s: %v, PSN %v: %v", name, op, psn, d)
					}
				}
			}
		}
		p.run(t)
		l.verify(t)
	}
}

// TestMRCRoundTrip: the round-trip time is that of the packet whose timestamp is echoed, also of a retransmission. It is
// unknown after the range of timestamps.
func TestMRCRoundTrip(t *testing.T) {
	conf := mrcPair()
	conf.timeout = 20
	for _, c := range []struct {
		late time.Duration // of the first packet
		want time.Duration
	}{{0, 2 * pairLatency}, {time.Millisecond, time.Millisecond + 2*pairLatency}, {20 * time.Millisecond, 0}} {
		p := newPair(t, conf)
		p.ends[0].q.cfg.Tuning.TailProbe = time.Second
		first := true
		p.faults = func(_ int, packet *bth.Packet) (f fault) {
			if packet.Opcode.IsWrite() && first {
				f.delay, first = c.late, false
			}
			return f
		}
		newWorkload(p, 0).add(WRWrite, 100, 0, newRand())
		p.run(t)
		if got := time.Duration(p.ends[0].q.req.tail.rtt.mean); got.Round(time.Microsecond) != c.want {
			t.Errorf("late by %v: %v, want %v", c.late, got, c.want)
		}
	}
}

// TestMRCTimeouts: a peer that is gone is given up after the linear and the exponential retries.
func TestMRCTimeouts(t *testing.T) {
	conf := mrcPair()
	conf.retry, conf.profile = 2, mrcProfile(nil, retrans.Params{"rto_us": 100, "exponential_retries": 2})
	p := newPair(t, conf)
	p.faults = func(int, *bth.Packet) fault { return fault{drop: true} }
	l := newWorkload(p, 0)
	l.add(WRWrite, 5000, 0, newRand())
	l.add(WRWriteImm, 10, 0, newRand())
	p.run(t)
	if cq := p.ends[0].h.sendCQ; len(cq) != 2 || cq[0].Status != StatusRetryExcErr || cq[1].Status != StatusWRFlushErr {
		t.Errorf("%+v", cq)
	}
	// Three timeouts of 100 us, then 200 us and 400 us.
	if least, most := mono.Time(900_000), mono.Time(960_000); p.now < least || p.now > most {
		t.Errorf("given up after %v", time.Duration(p.now))
	}
	// Only Transport ACKs are missing: no packet has a timer.
	p = newPair(t, mrcPair())
	p.faults = func(_ int, packet *bth.Packet) fault {
		return fault{drop: packet.Opcode == bth.TransportMRC|bth.OpAcknowledge}
	}
	newWorkload(p, 0).add(WRWrite, 10, 0, newRand())
	p.run(t)
	if cq := p.ends[0].h.sendCQ; len(cq) != 1 || cq[0].Status != StatusRetryExcErr {
		t.Errorf("without Transport ACKs: %+v", cq)
	}
}
