package qp_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/internal/observe/pcapng"
	"roced.io/roced/qp"
	"roced.io/roced/qp/qptest"
)

// captured is a packet of a reliable connection in a capture.
type captured struct {
	n    int
	from string // IP address of the sender
	p    bth.Packet
}

// loadRC returns the RC packets of a capture.
func loadRC(t *testing.T, file string) (out []captured) {
	fd, err := os.Open(filepath.Join("../bth/testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	r, err := pcapng.NewReader(fd)
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; ; n++ {
		var f pcapng.Frame
		if err := r.Next(&f); err == io.EOF {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		l3 := f.Data[14:]
		udp, from := 40, 8
		if l3[0]>>4 == 4 {
			udp, from = 20, 12
		}
		c := captured{n: n, from: string(l3[from : from+(udp-from)/2])}
		if len(l3) < udp+8 || binary.BigEndian.Uint16(l3[udp+2:]) != bth.UDPPort {
			continue
		}
		b := bytes.Clone(l3[udp+8 : udp+int(binary.BigEndian.Uint16(l3[udp+4:]))])
		if err := c.p.Decode(b); err == nil && c.p.Opcode.Transport() == bth.TransportRC {
			out = append(out, c)
		}
	}
}

// replay replays a capture to our responders.
type replay struct {
	t    *testing.T
	all  []captured
	mtu  qp.MTU
	ends map[string][]*replayEnd // by IP address
	rnr  bth.PSN                 // of the latest RNR NAK
}

// replayEnd is one of our queue pairs, with its answers that have not yet been found in the capture.
type replayEnd struct {
	*replayHost
	q       *qp.QP
	qpn     bth.QPN
	answers []bth.Packet
}

// replayHost has all the memory that the captured requests address. It has a receive or refuses a key exactly when
// rxe's host did.
type replayHost struct {
	*qptest.Host
	pages   map[uint64][]byte
	refuse  bool
	room    int
	waiting bool // no receive is posted
}

func (h *replayHost) NextRecv(w *qp.RecvWQE) bool {
	w.SGEs = append(w.SGEs[:0], qp.SGE{Addr: localVA, Length: uint32(h.room), LKey: lkey})
	return !h.waiting
}

func (h *replayHost) CheckRemote(_ uint32, _ uint64, n uint32, _ qp.Access) bool {
	return n == 0 || !h.refuse
}

func (h *replayHost) at(va uint64) *byte {
	if h.pages[va>>12] == nil {
		h.pages[va>>12] = make([]byte, 4096)
	}
	return &h.pages[va>>12][va&4095]
}

func (h *replayHost) ReadRemote(_ uint32, va uint64, n int, _ uint32) ([]byte, bool) {
	b := make([]byte, n)
	for i := range b {
		b[i] = *h.at(va + uint64(i))
	}
	return b, true
}

func (h *replayHost) WriteRemote(_ uint32, va uint64, p []byte, _ uint32) bool {
	for i := range p {
		*h.at(va + uint64(i)) = p[i]
	}
	return true
}

func (h *replayHost) FetchAdd(_ uint32, va, add uint64) (uint64, bool) {
	b, _ := h.ReadRemote(0, va, 8, 0)
	orig := binary.LittleEndian.Uint64(b)
	return orig, h.WriteRemote(0, va, binary.LittleEndian.AppendUint64(nil, orig+add), 0)
}

func (h *replayHost) CompareSwap(_ uint32, va, compare, swap uint64) (uint64, bool) {
	b, _ := h.ReadRemote(0, va, 8, 0)
	orig := binary.LittleEndian.Uint64(b)
	if orig == compare {
		h.WriteRemote(0, va, binary.LittleEndian.AppendUint64(nil, swap), 0)
	}
	return orig, true
}

// TestReplay gives our responder the requests that two rdma_rxe devices exchanged. The responder must answer as rxe
// did, packet by packet.
func TestReplay(t *testing.T) {
	for _, file := range []string{
		"rc_send", "rc_write", "rc_writeimm", "rc_read", "rc_atomic", "rc_mixed", "rc_psnwrap_write", "rc_srq", "ecn_write",
		"pp_rc", "pt_write_bw", "v6_rc", "cm_rping", "loss2_write", "dup10_mixed", "rc_nak", "rc_rnr",
	} {
		t.Run(file, func(t *testing.T) {
			r := &replay{t: t, all: loadRC(t, file+".pcap"), mtu: 3, ends: map[string][]*replayEnd{}}
			for _, c := range r.all {
				if c.p.Opcode.IsFirst() {
					r.mtu = qp.MTU(bits.Len(uint(len(c.p.Payload))) - 8)
				}
			}
			for i := range r.all {
				if c := &r.all[i]; c.p.Opcode.IsRequest() {
					r.request(i, c)
				} else {
					r.response(c)
				}
			}
			for _, ends := range r.ends {
				for _, e := range ends {
					for _, a := range e.answers {
						t.Errorf("QP %d: %s was not answered by rxe", e.qpn, describe(&a))
					}
				}
			}
		})
	}
}

func describe(p *bth.Packet) string {
	return fmt.Sprintf("%v %v %v msn=%d orig=%d len=%d", p.PSN, p.Opcode, p.AETH.Syndrome, p.AETH.MSN, p.AtomicAck, len(p.Payload))
}

// end returns the queue pair that c addresses.
func (r *replay) end(c *captured) *replayEnd {
	for _, e := range r.ends[c.from] {
		if e.qpn == c.p.DestQP {
			return e
		}
	}
	e := &replayEnd{qpn: c.p.DestQP, replayHost: &replayHost{Host: qptest.NewHost(), pages: map[uint64][]byte{}, room: 1 << 20}}
	e.Register(lkey, localVA, 1<<20, qp.AccessLocalWrite)
	e.q = qp.New(qp.Config{Tuning: qp.Software, Type: qp.RC, QPN: c.p.DestQP, Host: e.replayHost, MaxRecvSGE: 1})
	a := loneAttr
	a.PathMTU, a.RQPSN, a.MaxDestRdAtomic = r.mtu, c.p.PSN.Uint32(), 128
	if err := qptest.Connect(1, e.q, qp.RC, a, qp.RTS); err != nil {
		r.t.Fatal(err)
	}
	r.ends[c.from] = append(r.ends[c.from], e)
	return e
}

// foresee prepares e for request i, so that it can act as rxe did. It sets the memory of a READ, access rights and
// receives.
func (r *replay) foresee(i int, e *replayEnd, c *captured) {
	e.refuse, e.waiting = false, false
	mtu := r.mtu.Bytes()
	span := max(1, (int(c.p.RETH.Length)+mtu-1)/mtu)
	if !c.p.Opcode.IsReadRequest() {
		span = 1
	}
	seen := map[bth.PSN]bool{}
	for _, x := range r.all[i+1:] {
		if x.from == c.from {
			if x.p.PSN == c.p.PSN || x.p.DestQP != c.p.DestQP {
				return // the same request again, or the next connection
			}
			continue
		}
		k := x.p.PSN.Diff(c.p.PSN)
		switch {
		case x.p.Opcode.IsAck() && x.p.AETH.Syndrome == bth.SyndromeRemoteOpErr && c.p.Opcode.Starts() && k < 4:
			e.room = k*mtu + 10
		case k < 0 || k >= span || seen[x.p.PSN]:
			continue
		case x.p.Opcode.IsReadResponse() && c.p.Opcode.IsReadRequest():
			e.WriteRemote(0, c.p.RETH.VA+uint64(k*mtu), x.p.Payload, 0)
		case x.p.Opcode.IsAtomicAck() && e.pages[c.p.AtomicETH.VA>>12] == nil:
			e.WriteRemote(0, c.p.AtomicETH.VA, binary.LittleEndian.AppendUint64(nil, x.p.AtomicAck), 0)
		case x.p.Opcode.IsAck():
			e.refuse = x.p.AETH.Syndrome == bth.SyndromeRemoteAccessErr
			e.waiting = x.p.AETH.Syndrome.IsRNR()
		}
		seen[x.p.PSN] = true
	}
}

func (r *replay) request(i int, c *captured) {
	e := r.end(c)
	r.foresee(i, e, c)
	p := c.p
	e.q.Receive(1, &p, qp.RxMeta{})
	var tr qp.Transmit
	for e.q.PollTransmit(1, &tr) {
		e.answers = append(e.answers, tr.Packet)
	}
}

// response searches our answers for a captured one. rxe answers the packets that follow the refused one in its burst
// with a sequence NAK; our responder is silent.
func (r *replay) response(c *captured) {
	switch s := c.p.AETH.Syndrome; {
	case c.p.Opcode.IsAck() && s.IsRNR():
		r.rnr = c.p.PSN
	case c.p.Opcode.IsAck() && s == bth.SyndromePSNSeqErr && c.p.PSN == r.rnr:
		return
	}
	for from, ends := range r.ends {
		if from == c.from {
			continue
		}
		for _, e := range ends {
			if len(e.answers) > 0 && sameAnswer(&e.answers[0], &c.p) {
				e.answers = e.answers[1:]
				return
			}
		}
	}
	r.t.Errorf("packet %d: rxe answers %s", c.n, describe(&c.p))
	for from, ends := range r.ends {
		for _, e := range ends {
			if from != c.from && len(e.answers) > 0 {
				r.t.Logf("QP %d answers %s", e.qpn, describe(&e.answers[0]))
			}
		}
	}
}

func sameAnswer(ours, rxe *bth.Packet) bool {
	op := ours.Opcode
	switch {
	case op != rxe.Opcode || ours.PSN != rxe.PSN || !bytes.Equal(ours.Payload, rxe.Payload):
		return false
	case op.HasAETH() && ours.AETH.MSN != rxe.AETH.MSN:
		return false
	case op.IsAck() && ours.AETH.Syndrome == bth.SyndromeInvalidRequest && rxe.AETH.Syndrome == bth.SyndromeRemoteOpErr:
		return true // docs/design/core.md, "Deliberate departures"
	case op.HasAETH() && ours.AETH.Syndrome != rxe.AETH.Syndrome:
		return false
	}
	return !op.IsAtomicAck() || ours.AtomicAck == rxe.AtomicAck
}
