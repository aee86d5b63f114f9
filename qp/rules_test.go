package qp_test

import (
	"slices"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
	"roced.io/roced/qp/qptest"
)

// solo is one queue pair whose peer is the test.
type solo struct {
	t   *testing.T
	q   *qp.QP
	h   *qptest.Host
	ctr qp.Counters
	now mono.Time
	p   bth.Profile
}

const soloMem = 1 << 20 // start of the memory of a solo; its key is 1

// newSolo returns a queue pair of a profile in RTS. Its PSNs begin with 0, its MTU is 256.
func newSolo(t *testing.T, name string, change func(*qp.Config)) *solo {
	t.Helper()
	s := &solo{t: t, h: qptest.NewHost(), now: 1}
	s.h.Register(1, soloMem, 1<<16, qp.AccessLocalWrite|qp.AccessRemoteRead|qp.AccessRemoteWrite|qp.AccessRemoteAtomic)
	p, err := profile.NewMaker(profile.Link{}).New(name, profile.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	c := qp.Config{Tuning: qp.Software, Type: qp.RC, QPN: 20, MaxSendWR: 1024, MaxSendSGE: 4, MaxRecvSGE: 4, Host: s.h, Counters: &s.ctr, Profile: p}
	if change != nil {
		change(&c)
	}
	s.p, s.q = c.Profile.Kind, qp.New(c)
	a := benchAttr(21)
	a.PathMTU, a.AccessFlags = 1, qp.AccessRemoteRead|qp.AccessRemoteWrite|qp.AccessRemoteAtomic
	if err := qptest.Connect(s.now, s.q, qp.RC, a, qp.RTS); err != nil {
		t.Fatal(err)
	}
	return s
}

// poll returns all packets that may leave.
func (s *solo) poll() (out []bth.Packet) {
	var t qp.Transmit
	for s.q.PollTransmit(s.now, &t) {
		out = append(out, t.Packet)
	}
	s.q.Flushed(s.now)
	return out
}

// rx delivers a packet of the profile. x holds flags and fields of the extension header.
func (s *solo) rx(p bth.Packet, x bth.XETH) qp.Drop {
	if p.Ext = x; s.p != bth.ProfileRC {
		p.Ext.Profile = s.p
		if p.Opcode < bth.TransportExt {
			p.Opcode |= bth.TransportExt
		}
		if s.p == bth.ProfileEunomia {
			p.Ext.Flags |= bth.XHasHead
		}
	}
	return s.q.Receive(s.now, &p, qp.RxMeta{Path: 50000})
}

func (s *solo) post(w qp.SendWQE) {
	for _, g := range w.SGEs {
		w.Length += g.Length
	}
	s.h.Sends = append(s.h.Sends, w)
	s.q.Doorbell(s.now)
}

func (s *solo) post1(op qp.WROpcode, n uint32) {
	s.post(qp.SendWQE{WRID: uint64(len(s.h.Sends)), Opcode: op, Flags: qp.SendSignaled, RemoteVA: soloMem, RKey: 1,
		SGEs: []qp.SGE{{Addr: soloMem, Length: n, LKey: 1}}})
}

func (s *solo) recv(n uint32) {
	s.h.Recvs.WQEs = append(s.h.Recvs.WQEs, qp.RecvWQE{WRID: uint64(len(s.h.Recvs.WQEs)),
		SGEs: []qp.SGE{{Addr: soloMem, Length: n, LKey: 1}}})
}

// xack delivers an acknowledgement of an extended transport; sack < 0 omits the selective acknowledgement.
func (s *solo) xack(expected, sack int) qp.Drop {
	p := bth.Packet{Opcode: bth.OpcodeExtAck, PSN: psn(expected), AETH: bth.AETH{Syndrome: bth.SyndromeACK}}
	var x bth.XETH
	if sack >= 0 {
		p.AETH.Syndrome = bth.SyndromePSNSeqErr
		x = bth.XETH{Flags: bth.XHasSACK, SACK: psn(sack)}
	}
	return s.rx(p, x)
}

func psn(n int) bth.PSN { return bth.MakePSN(uint32(n)) }

func naks(packets []bth.Packet) (n int) {
	for i := range packets {
		if packets[i].Opcode.IsAck() && packets[i].AETH.Syndrome.IsNAK() {
			n++
		}
	}
	return n
}

// TestOvertakenSACKCounts: an acknowledgement that a later one overtakes on a shorter path still reports its packet
// as received.
func TestOvertakenSACKCounts(t *testing.T) {
	for name, recovery := range map[string]profile.Part{"irn": {}, "eunomia": {Name: "eunomia", Params: map[string]float64{"selective_repeat": 1}}} {
		s := newSolo(t, name, func(c *qp.Config) {
			var err error
			if c.Profile, err = profile.NewMaker(profile.Link{}).New(name, profile.Spec{Recovery: recovery}); err != nil {
				t.Fatal(err)
			}
		})
		for range 6 {
			s.post1(qp.WRWrite, 8)
		}
		if n := len(s.poll()); n != 6 {
			t.Fatalf("%s: %d packets", name, n)
		}
		s.xack(2, -1) // 0 and 1 have arrived
		s.xack(1, 3)  // earlier: 3 came before 1
		s.xack(2, 5)
		var again []uint32
		for _, p := range s.poll() {
			again = append(again, p.PSN.Uint32())
		}
		if len(again) != 2 || again[0] != 2 || again[1] != 4 {
			t.Errorf("%s: sent again: %v, want 2 and 4: 3 has been acknowledged", name, again)
		}
	}
}

// spy is a controller that records its calls.
type spy struct {
	ccalgo.None
	samples []ccalgo.Sample
}

func (c *spy) OnAck(_ mono.Time, s ccalgo.Sample) { c.samples = append(c.samples, s) }

// bytes returns the number of bytes reported to the spy since the previous call.
func (c *spy) bytes() (n uint32) {
	for _, s := range c.samples {
		n += s.Bytes
	}
	c.samples = nil
	return n
}

func spied(c *spy) func(*qp.Config) { return func(q *qp.Config) { q.Profile.Controller = c } }

// TestBytesBehindREAD: requests acknowledged behind an unanswered READ count at once, and only once.
func TestBytesBehindREAD(t *testing.T) {
	c := new(spy)
	s := newSolo(t, "irn", spied(c))
	s.post1(qp.WRRead, 8)
	s.post1(qp.WRWrite, 256)
	s.post1(qp.WRWrite, 100)
	if n := len(s.poll()); n != 3 {
		t.Fatalf("%d packets", n)
	}
	s.xack(2, -1)
	if n := c.bytes(); n != 256 {
		t.Errorf("%d bytes, want 256", n)
	}
	s.xack(3, -1)
	if n := c.bytes(); n != 100 {
		t.Errorf("%d bytes, want 100", n)
	}
	resp := bth.Packet{Opcode: bth.OpReadRespOnly, PSN: psn(0), AETH: bth.AETH{Syndrome: bth.SyndromeACK}, Payload: make([]byte, 8)}
	if d := s.rx(resp, bth.XETH{}); d != qp.Accepted {
		t.Fatal(d)
	}
	if n := c.bytes(); n != 0 || len(s.h.SendCQ) != 3 {
		t.Errorf("%d bytes and %d completions with the response, want 0 and 3", n, len(s.h.SendCQ))
	}
}

// TestRoundTripsBehindREAD: an acknowledgement that waits behind the response to a READ is no RTT sample, because the
// peer paces its responses.
func TestRoundTripsBehindREAD(t *testing.T) {
	c := new(spy)
	s := newSolo(t, "rc", spied(c))
	answer := func(op bth.Opcode, n int, length int) {
		t.Helper()
		p := bth.Packet{Opcode: op, PSN: psn(n), AETH: bth.AETH{Syndrome: bth.SyndromeACK}, Payload: make([]byte, length)}
		if d := s.rx(p, bth.XETH{}); d != qp.Accepted {
			t.Fatal(d)
		}
	}
	s.post1(qp.WRRead, 8)
	s.post1(qp.WRWrite, 256)
	s.poll()
	s.now += 30e6
	answer(bth.OpReadRespOnly, 0, 8)
	answer(bth.OpAcknowledge, 1, 0)
	s.post1(qp.WRWrite, 100)
	s.poll()
	s.now += 7000
	answer(bth.OpAcknowledge, 2, 0)
	var got []time.Duration
	for _, x := range c.samples {
		got = append(got, x.RTT)
	}
	if want := []time.Duration{0, 0, 7000}; !slices.Equal(got, want) {
		t.Errorf("round trips %v, want %v", got, want)
	}
}

// TestMarksUnderDisorder: congestion control gets the marks and round-trip times of acknowledgements that do not
// advance una.
func TestMarksUnderDisorder(t *testing.T) {
	for _, name := range []string{"irn", "eunomia"} {
		c := new(spy)
		s := newSolo(t, name, spied(c))
		for range 4 {
			s.post1(qp.WRSend, 256)
		}
		s.poll()
		s.now += 7000
		p := bth.Packet{Opcode: bth.OpcodeExtAck, PSN: psn(0), AETH: bth.AETH{Syndrome: bth.SyndromeACK}}
		s.rx(p, bth.XETH{Flags: bth.XHasSACK | bth.XECE, SACK: psn(2)})
		if len(c.samples) != 1 || !c.samples[0].ECN {
			t.Errorf("%s: congestion control was told %+v of a marked SACK", name, c.samples)
		}
		told := c.bytes()
		s.xack(1, -1)
		told += c.bytes()
		s.rx(p, bth.XETH{Flags: bth.XHasSACK | bth.XECE, SACK: psn(3)})
		if len(c.samples) != 1 || !c.samples[0].ECN {
			t.Errorf("%s: congestion control was told %+v of a marked SACK that another has overtaken", name, c.samples)
		}
		told += c.bytes()
		s.xack(4, -1)
		if told += c.bytes(); told != 4*256 {
			t.Errorf("%s: %d bytes acknowledged in all, want %d", name, told, 4*256)
		}
	}
}

// TestRefusalHitsItsOwnReceive: a SEND behind a refused READ has taken a receive. The receive is flushed, and the
// refusal is an event.
func TestRefusalHitsItsOwnReceive(t *testing.T) {
	for _, name := range []string{"irn", "melo", "mp-rdma", "eunomia"} {
		s := newSolo(t, name, nil)
		s.recv(256)
		send := bth.Packet{Opcode: bth.OpSendOnly, PSN: psn(1), Payload: make([]byte, 8)}
		if d := s.rx(send, bth.XETH{Flags: bth.XHasMsg | bth.XHasRecvSN, MSN: 1}); d != qp.Accepted {
			t.Fatalf("%s: %v", name, d)
		}
		read := bth.Packet{Opcode: bth.OpReadRequest, PSN: psn(0), RETH: bth.RETH{VA: 1, RKey: 99, Length: 8}}
		s.rx(read, bth.XETH{Flags: bth.XHasReadSN})
		if len(s.h.RecvCQ) != 1 || s.h.RecvCQ[0].Status != qp.StatusWRFlushErr {
			t.Errorf("%s: completions %+v, want one that is flushed", name, s.h.RecvCQ)
		}
		if len(s.h.Events) == 0 || s.h.Events[0] != qp.EventQPAccessErr {
			t.Errorf("%s: events %v, want QP_ACCESS_ERR", name, s.h.Events)
		}
		if naks(s.poll()) != 1 {
			t.Errorf("%s: no NAK", name)
		}
	}
}

// TestForgedNumbers: the message numbers of a peer must agree with its PSNs.
func TestForgedNumbers(t *testing.T) {
	immediate := bth.Packet{Opcode: bth.OpWriteOnlyImm, PSN: psn(0), RETH: bth.RETH{VA: soloMem, RKey: 1, Length: 8}, Payload: make([]byte, 8)}
	send := bth.Packet{Opcode: bth.OpSendOnly, PSN: psn(0), Payload: make([]byte, 8)}
	read := bth.Packet{Opcode: bth.OpReadRequest, PSN: psn(0), RETH: bth.RETH{VA: soloMem, RKey: 1, Length: 8}}
	const msg, sn = bth.XHasMsg, bth.XHasRecvSN
	for _, c := range []struct {
		name string
		p    bth.Packet
		x    bth.XETH
		ok   bool
	}{
		{"WRITE with immediate", immediate, bth.XETH{Flags: msg | sn}, true},
		{"its offset", immediate, bth.XETH{Flags: msg | sn, Offset: 1000}, false},
		{"its MSN", immediate, bth.XETH{Flags: msg | sn, MSN: 5}, false},
		{"without message numbers", immediate, bth.XETH{Flags: sn}, false},
		{"its receive", immediate, bth.XETH{Flags: msg | sn, RecvSN: 1}, false},
		{"SEND", send, bth.XETH{Flags: msg | sn}, true},
		{"SEND's offset", send, bth.XETH{Flags: msg | sn, Offset: 3}, false},
		{"SEND's MSN", send, bth.XETH{Flags: msg | sn, MSN: 1}, false},
		{"SEND's receive", send, bth.XETH{Flags: msg | sn, RecvSN: 1}, false},
		{"READ", read, bth.XETH{Flags: bth.XHasReadSN}, true},
		{"READ's number", read, bth.XETH{Flags: bth.XHasReadSN, ReadSN: 1}, false},
	} {
		for _, name := range []string{"irn", "melo", "mp-rdma", "eunomia"} {
			s := newSolo(t, name, nil)
			s.recv(4096)
			s.recv(4096)
			d := s.rx(c.p, c.x)
			good := 0
			for _, e := range s.h.RecvCQ {
				if e.Status == qp.StatusSuccess {
					good++
					if e.ByteLen != 8 {
						t.Errorf("%s, %s: %d bytes", name, c.name, e.ByteLen)
					}
				}
			}
			broken := s.q.State() == qp.Err
			if n := naks(s.poll()); c.ok && (broken || n > 0 || d != qp.Accepted) || !c.ok && (!broken || n != 1 || good > 0) {
				t.Errorf("%s, %s: verdict %v, state %v, %d NAKs, %d completions", name, c.name, d, s.q.State(), n, good)
			}
		}
	}
}

// TestNoAckIsLost: acknowledgements that clock the peer wait for a paused link. Up to Tuning.AckDepth of them wait,
// and the oldest are dropped.
func TestNoAckIsLost(t *testing.T) {
	const n = 5000
	for depth, want := range map[int16]int{0: 4096, 100: 100, n + 1: n} {
		s := newSolo(t, "mp-rdma", func(c *qp.Config) { c.Tuning.AckDepth = depth })
		for i := range n {
			w := bth.Packet{Opcode: bth.OpWriteOnly, PSN: psn(i), RETH: bth.RETH{VA: soloMem, RKey: 1}}
			s.rx(w, bth.XETH{Flags: bth.XHasMsg, MSN: uint32(i)})
		}
		out := s.poll()
		if len(out) != want {
			t.Fatalf("depth %d: %d acknowledgements of %d packets, want %d", depth, len(out), n, want)
		}
		if first := out[0].Ext.SACK; first != psn(n-want) {
			t.Errorf("depth %d: the first one is of %v", depth, first)
		}
	}
}

// TestSilentInError: a broken queue pair sends no acknowledgements of READ responses.
func TestSilentInError(t *testing.T) {
	s := newSolo(t, "irn", nil)
	s.post1(qp.WRRead, 8)
	s.poll()
	s.rx(bth.Packet{Opcode: bth.OpReadRespOnly, PSN: psn(0), AETH: bth.AETH{Syndrome: bth.SyndromeACK}, Payload: make([]byte, 8)}, bth.XETH{})
	if err := s.q.Modify(s.now, qp.Attr{State: qp.Err}, qp.AttrState); err != nil {
		t.Fatal(err)
	}
	if out := s.poll(); len(out) > 0 {
		t.Errorf("%v left in the error state", out[0].Opcode)
	}
}

// TestREADsWithinCircle: outstanding responses occupy less than half of their PSN circle. Otherwise new responses
// would look like old ones.
func TestREADsWithinCircle(t *testing.T) {
	for _, name := range []string{"rc", "irn"} {
		s := newSolo(t, name, nil)
		s.h.Regions[1] = &qptest.Region{Mem: make([]byte, 1<<30+2*soloMem), Access: qp.AccessLocalWrite}
		for range 3 {
			s.post1(qp.WRRead, 1<<30+256)
		}
		if n := len(s.poll()); n != 1 {
			t.Errorf("%s: %d READs of 2^22 + 1 responses each were sent", name, n)
		}
	}
}

// TestPlainExtended: a profile inherits missing parts from RC, for responses too.
func TestPlainExtended(t *testing.T) {
	newSolo(t, "irn", func(c *qp.Config) { c.Profile = qp.Profile{Kind: bth.ProfileIRN} })
}

// TestRNRBeyond: an RNR NAK for a packet that was never sent changes nothing.
func TestRNRBeyond(t *testing.T) {
	for _, name := range []string{"irn", "mp-rdma", "eunomia"} {
		s := newSolo(t, name, nil)
		s.post1(qp.WRSend, 8)
		s.poll()
		s.xack(1, -1)
		nak := bth.Packet{Opcode: bth.OpcodeExtAck, PSN: psn(1), AETH: bth.AETH{Syndrome: bth.SyndromeRNR | 20}}
		if d := s.rx(nak, bth.XETH{}); d != qp.DropStaleAck {
			t.Errorf("%s: %v", name, d)
		}
		s.post1(qp.WRSend, 8)
		if n := len(s.poll()); n == 0 {
			t.Errorf("%s: nothing is sent any more", name)
		}
	}
}

// TestRNRKeepsTimeout: waiting for a receive is no timeout, and does not lengthen the timeout.
func TestRNRKeepsTimeout(t *testing.T) {
	s := newSolo(t, "irn", nil)
	s.post1(qp.WRSend, 8)
	for range 5 {
		if n := len(s.poll()); n != 1 {
			t.Fatalf("%d packets", n)
		}
		s.rx(bth.Packet{Opcode: bth.OpcodeExtAck, PSN: psn(0), AETH: bth.AETH{Syndrome: bth.SyndromeRNR | 1}}, bth.XETH{})
		s.now = s.now.Add(20 * time.Microsecond)
		s.q.OnTimeout(s.now)
	}
	s.poll()
	if d := s.q.NextTimeout().Sub(s.now); d > 100*time.Microsecond {
		t.Errorf("the timeout is %v after five RNR NAKs, want RTO_low", d)
	}
}

// TestForeignGuess: a packet of another transport is answered, and breaks the queue pair, if it has the expected PSN.
// An attacker who guesses PSNs gets no answer.
func TestForeignGuess(t *testing.T) {
	s := newSolo(t, "rc", nil)
	p := bth.Packet{Opcode: bth.TransportExt | bth.OpSendOnly, PSN: psn(1), Ext: bth.XETH{Profile: bth.ProfileIRN}}
	for range 100 {
		s.q.Receive(s.now, &p, qp.RxMeta{})
		if p.PSN = p.PSN.Next(); len(s.poll()) > 0 || s.q.State() != qp.RTS {
			t.Fatal("a guessed PSN was answered")
		}
	}
	p.PSN = psn(0)
	s.q.Receive(s.now, &p, qp.RxMeta{})
	if n := naks(s.poll()); n != 1 || s.q.State() != qp.Err {
		t.Errorf("%d NAKs, state %v", n, s.q.State())
	}
	// The reverse: a peer with RC refuses our requests.
	x := newSolo(t, "irn", nil)
	x.post1(qp.WRSend, 8)
	x.post1(qp.WRSend, 8)
	x.poll()
	nak := bth.Packet{Opcode: bth.OpAcknowledge, PSN: psn(1), AETH: bth.AETH{Syndrome: bth.SyndromeInvalidRequest}}
	x.q.Receive(x.now, &nak, qp.RxMeta{})
	if x.q.State() != qp.RTS {
		t.Error("a peer that has taken a request does not refuse the transport")
	}
	nak.PSN = psn(0)
	x.q.Receive(x.now, &nak, qp.RxMeta{})
	if x.q.State() != qp.Err {
		t.Error("not broken by the peer's NAK")
	}
}

// TestResponsesTakeTurns: a rate limit holds requests up. They do not take the turn of responses when
// acknowledgements leave in between (soak seeds 800016348, 800019694 and 800041639).
func TestResponsesTakeTurns(t *testing.T) {
	for _, name := range []string{"rc", "irn", "mp-rdma", "eunomia"} {
		s := newSolo(t, name, nil)
		if err := s.q.Modify(s.now, qp.Attr{RateLimit: 1000}, qp.AttrRateLimit); err != nil { // 1 Mb/s
			t.Fatal(err)
		}
		for range 64 {
			s.post1(qp.WRWrite, 8)
		}
		read := bth.Packet{Opcode: bth.OpReadRequest, PSN: psn(0), RETH: bth.RETH{VA: soloMem, RKey: 1, Length: 16 * 256}}
		if d := s.rx(read, bth.XETH{Flags: bth.XHasReadSN}); d != qp.Accepted {
			t.Fatalf("%s: %v", name, d)
		}
		requests, responses := 0, 0
		for i := range 20 {
			expected := 1
			if name == "rc" {
				expected = 16
			}
			w := bth.Packet{Opcode: bth.OpWriteOnly, PSN: psn(expected + i), AckReq: true, RETH: bth.RETH{VA: soloMem, RKey: 1}}
			s.rx(w, bth.XETH{Flags: bth.XHasMsg, MSN: uint32(i + 1)})
			for _, p := range s.poll() {
				switch {
				case p.Opcode.IsRequest():
					requests++
				case p.Opcode.IsReadResponse():
					responses++
				}
			}
			s.now = s.now.Add(5 * time.Millisecond)
			s.q.OnTimeout(s.now)
		}
		if requests < 5 || responses < 5 {
			t.Errorf("%s: %d requests and %d responses in 20 turns", name, requests, responses)
		}
	}
}
