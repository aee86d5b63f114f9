package qp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// pairHost is one end of a pair; the peer may access its memory with rkey 5.
type pairHost struct {
	*scriptHost
	recvs  []RecvWQE
	taken  int
	sendCQ []CQE
	recvCQ []CQE
}

func (h *pairHost) remote(rkey uint32, va uint64, n int) ([]byte, bool) {
	if rkey != 5 {
		return nil, false
	}
	return h.at(1, va, n, true)
}

func (h *pairHost) CheckRemote(rkey uint32, va uint64, n uint32, _ Access) bool {
	_, ok := h.remote(rkey, va, int(n))
	return ok
}

func (h *pairHost) ReadRemote(rkey uint32, va uint64, n int, _ uint32) ([]byte, bool) {
	return h.remote(rkey, va, n)
}

func (h *pairHost) WriteRemote(rkey uint32, va uint64, p []byte, _ uint32) bool {
	b, ok := h.remote(rkey, va, len(p))
	copy(b, p)
	return ok
}

func (h *pairHost) CompareSwap(rkey uint32, va uint64, compare, swap uint64) (uint64, bool) {
	b, ok := h.remote(rkey, va, 8)
	if !ok {
		return 0, false
	}
	orig := binary.NativeEndian.Uint64(b)
	if orig == compare {
		binary.NativeEndian.PutUint64(b, swap)
	}
	return orig, true
}

func (h *pairHost) FetchAdd(rkey uint32, va uint64, add uint64) (uint64, bool) {
	b, ok := h.remote(rkey, va, 8)
	if !ok {
		return 0, false
	}
	orig := binary.NativeEndian.Uint64(b)
	binary.NativeEndian.PutUint64(b, orig+add)
	return orig, true
}

func (h *pairHost) Invalidate(uint32) bool { return true }
func (h *pairHost) BindMW(BindWR) bool     { return true }
func (h *pairHost) Notify(Event)           {}
func (h *pairHost) CompleteSend(c CQE)     { h.sendCQ = append(h.sendCQ, c) }
func (h *pairHost) CompleteRecv(c CQE)     { h.recvCQ = append(h.recvCQ, c) }

func (h *pairHost) NextRecv(w *RecvWQE) bool {
	if h.taken == len(h.recvs) {
		return false
	}
	w.WRID, w.SGEs = h.recvs[h.taken].WRID, append(w.SGEs[:0], h.recvs[h.taken].SGEs...)
	h.taken++
	return true
}

// end is a queue pair with its host.
type end struct {
	q *QP
	h *pairHost
}

// flight is a packet in transit.
type flight struct {
	at   mono.Time
	to   int
	p    bth.Packet
	meta RxMeta
}

// fault is a fault of the n-th packet of a run.
type fault struct {
	drop, dup bool
	delay     time.Duration
}

// pair is two connected queue pairs on a virtual clock, one microsecond apart.
type pair struct {
	ends   [2]end
	now    mono.Time
	wire   []flight
	count  int
	faults func(n int, p *bth.Packet) fault
	links  links
	trace  []string
}

const pairLatency = time.Microsecond

type pairConfig struct {
	unacked  uint32
	psn      uint32
	rd       uint8
	timeout  uint8
	retry    uint8
	rnrRetry uint8
	profile  func() Profile // nil: standard RC
	other    func() Profile // of the second end, if different
	links    []link         // none: all packets take the same path
	seed     uint64         // of the links' losses
	tuning   *Tuning        // nil: the daemon's
	phantom  bool
	single   bool       // WRITEs of one packet
	ops      []WROpcode // of anyFaults and mixed; nil: all
	created  func(end int, q *QP)
}

func newPair(t testing.TB, c pairConfig) *pair {
	p := &pair{now: 1, faults: func(int, *bth.Packet) fault { return fault{} }}
	p.links.init(c)
	for i := range p.ends {
		h := &pairHost{scriptHost: newScriptHost(1 << 18)}
		var prof Profile
		if i == 1 && c.other != nil {
			prof = c.other()
		} else if c.profile != nil {
			prof = c.profile()
		}
		tuning := Software
		if c.tuning != nil {
			tuning = *c.tuning
		}
		q := New(Config{Tuning: tuning, Phantom: c.phantom, SingleWrites: c.single,
			Profile: prof,
			Type:    RC, QPN: bth.QPN(20 + i), Host: h, SigAll: true,
			MaxSendWR: 256, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 256, MaxUnacked: c.unacked,
		})
		p.ends[i] = end{q, h}
		if c.created != nil {
			c.created(i, q)
		}
		err := toRTS(q, Attr{
			PathMTU: 1, DestQPN: uint32(20 + 1 - i), SQPSN: c.psn, RQPSN: c.psn,
			Timeout: c.timeout, RetryCnt: c.retry, RNRRetry: c.rnrRetry, MinRNRTimer: 1,
			MaxRdAtomic: c.rd, MaxDestRdAtomic: c.rd,
			AccessFlags: AccessRemoteRead | AccessRemoteWrite | AccessRemoteAtomic | AccessLocalWrite,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// send polls both ends until they have nothing to send at this instant.
func (p *pair) send() {
	var tr Transmit
	for i := range p.ends {
		for p.ends[i].q.PollTransmit(p.now, &tr) {
			f := flight{at: p.now.Add(pairLatency), to: 1 - i, p: tr.Packet, meta: RxMeta{Path: tr.Path}}
			f.p.Payload = bytes.Clone(tr.Packet.Payload)
			fate := p.faults(p.count, &f.p)
			p.trace = append(p.trace, fmt.Sprintf("%3d %6d %d-> %v %v %v %+v",
				p.count, p.now, i, f.p.PSN, f.p.Opcode, f.p.AETH.Syndrome, fate))
			p.count++
			if lost := p.links.take(&f); lost || fate.drop {
				continue
			}
			f.at = f.at.Add(fate.delay)
			p.wire = append(p.wire, f)
			if fate.dup {
				f.at = f.at.Add(3 * pairLatency)
				p.wire = append(p.wire, f)
			}
		}
		p.ends[i].q.Flushed(p.now)
	}
}

// next returns the next instant with an event.
func (p *pair) next() mono.Time {
	next := p.ends[0].q.NextTimeout().Min(p.ends[1].q.NextTimeout())
	for i := range p.wire {
		next = next.Min(p.wire[i].at)
	}
	return next
}

// step moves to the next instant with an event; it returns false if there is none.
func (p *pair) step() bool {
	p.send()
	next := p.next()
	if next == mono.Never {
		return false
	}
	p.now = max(p.now, next)
	for _, e := range p.ends {
		if p.now >= e.q.NextTimeout() {
			e.q.OnTimeout(p.now)
		}
	}
	for i := 0; i < len(p.wire); {
		f := p.wire[i]
		if f.at > p.now {
			i++
			continue
		}
		p.wire = slices.Delete(p.wire, i, i+1)
		p.links.arrives(&f)
		p.ends[f.to].q.Receive(p.now, &f.p, f.meta)
	}
	return true
}

// run steps until there are no more events.
func (p *pair) run(t failer) {
	for n := 0; p.step(); n++ {
		if n > 200_000 {
			t.Fatalf("never ends\n%s", p.tail())
		}
	}
}

func (p *pair) tail() string {
	var b bytes.Buffer
	for _, l := range p.trace[max(0, len(p.trace)-60):] {
		b.WriteString(l + "\n")
	}
	return b.String()
}

type failer interface {
	Fatalf(format string, args ...any)
}

// workload is a list of requests from one end to the other and their expected effect. Each request has memory of its
// own on both sides.
type workload struct {
	p    *pair
	from int
	ops  []workloadOp
	adds uint64
	off  uint64
}

type workloadOp struct {
	w        SendWQE
	off      uint64
	expected []byte // of the destination
	recv     int    // index of the receive it consumes, or -1
	orig     uint64
}

const counterAt = 1<<18 - 8

func newWorkload(p *pair, from int) *workload {
	l := &workload{p: p, from: from}
	// Each direction uses its own half of the memory, except for the counter.
	l.off = uint64(from) << 17
	binary.NativeEndian.PutUint64(p.ends[1-from].h.mem[counterAt-8*from:], 0)
	return l
}

// add posts a request of n bytes, split over two elements.
func (l *workload) add(op WROpcode, n uint32, flags SendFlags, rng *rand.Rand) {
	src, dst := l.p.ends[l.from].h, l.p.ends[1-l.from].h
	switch op {
	case WRCmpSwap, WRFetchAdd:
		n = 8
	case WRAtomicWrite:
		n, flags, l.off = 8, flags|SendInline, (l.off+7)&^7
	}
	o := workloadOp{off: l.off, recv: -1}
	w := SendWQE{
		WRID: uint64(len(l.ops)), Opcode: op, Flags: flags, Imm: uint32(len(l.ops)), Length: n,
		RemoteVA: memBase + l.off, RKey: 5,
	}
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	o.expected = data
	cut := n / 3
	w.SGEs = []SGE{{memBase + l.off, cut, 1}, {memBase + l.off + uint64(cut), n - cut, 1}}
	switch op {
	case WRRead:
		copy(dst.mem[l.off:], data)
	case WRFetchAdd:
		w.RemoteVA, w.CompareAdd = memBase+counterAt-uint64(8*l.from), 1
		o.orig = l.adds
		l.adds++
	case WRCmpSwap:
		w.RemoteVA = memBase + counterAt - uint64(8*l.from)
		w.CompareAdd, w.Swap = l.adds, l.adds+1
		o.orig = l.adds
		l.adds++
	case WRLocalInv, WRBindMW:
		w.Length, w.SGEs, o.expected = 0, nil, nil
	default:
		copy(src.mem[l.off:], data)
		if op != WRWrite && op != WRAtomicWrite {
			o.recv = len(dst.recvs)
			dst.recvs = append(dst.recvs, RecvWQE{
				WRID: uint64(o.recv), SGEs: []SGE{{memBase + l.off, n / 2, 1}, {memBase + l.off + uint64(n/2), n - n/2, 1}},
			})
		}
		if flags&SendInline != 0 {
			w.Inline, w.SGEs = data, nil
		}
	}
	l.off += uint64(n)
	o.w = w
	l.ops = append(l.ops, o)
	src.queue = append(src.queue, w)
	l.p.ends[l.from].q.Doorbell(l.p.now)
}

// verify checks that each request took effect once, in order, byte for byte.
func (l *workload) verify(t failer) {
	src, dst := l.p.ends[l.from].h, l.p.ends[1-l.from].h
	fail := func(format string, args ...any) {
		t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), l.p.tail())
	}
	if len(src.sendCQ) != len(l.ops) || src.retired != len(l.ops) {
		fail("%d completions and %d retired of %d", len(src.sendCQ), src.retired, len(l.ops))
	}
	recvs := 0
	for i, o := range l.ops {
		c := src.sendCQ[i]
		if c.WRID != uint64(i) || c.Status != StatusSuccess || c.Opcode != workOps[o.w.Opcode].completion {
			fail("request %d completed as %+v", i, c)
		}
		mem := dst.mem
		if o.w.Opcode == WRRead || o.w.Opcode == WRFetchAdd || o.w.Opcode == WRCmpSwap {
			mem = src.mem
		}
		if workOps[o.w.Opcode].kind == kindAtomic {
			o.expected = binary.NativeEndian.AppendUint64(nil, o.orig)
		}
		if !bytes.Equal(mem[o.off:o.off+uint64(len(o.expected))], o.expected) {
			fail("request %d (%d, %d bytes): data differ", i, o.w.Opcode, o.w.Length)
		}
		if o.recv < 0 {
			continue
		}
		recvs++
		r := dst.recvCQ[o.recv]
		withImm := o.w.Opcode == WRWriteImm || o.w.Opcode == WRSendImm
		if r.WRID != uint64(o.recv) || r.Status != StatusSuccess || r.ByteLen != o.w.Length ||
			withImm && (r.Imm != uint32(i) || r.Flags&WCWithImm == 0) {
			fail("request %d received as %+v", i, r)
		}
	}
	if len(dst.recvCQ) != recvs {
		fail("%d received, want %d", len(dst.recvCQ), recvs)
	}
	if n := binary.NativeEndian.Uint64(dst.mem[counterAt-8*l.from:]); n != l.adds {
		fail("counter %d, want %d", n, l.adds)
	}
}
