package soak

import (
	"encoding/binary"
	"math/rand/v2"

	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
	"roced.io/roced/rocev2/nictest"
)

// message is one work request and its expected effect.
type message struct {
	op      qp.WROpcode
	flags   qp.SendFlags
	size    int
	imm     uint32 // SEND_INV: the key, once posted
	data    []byte // to be sent, or to be read
	source  bool   // data is in local before the run
	local   list
	to      *end
	remote  place
	atomic  atomic
	win     *window // the window whose key it uses, or which it opens or closes
	got     int     // receive completions
	success bool
}

// atomic is the operand and the model of an atomic operation.
type atomic struct {
	shared        bool // a word to which all atomics add 1
	compare, swap uint64
	add           uint64
	orig          uint64 // expected old value
	after         uint64 // expected new value
}

// receives reports whether the message consumes a receive request.
func (m *message) receives() bool {
	switch m.op {
	case qp.WRSend, qp.WRSendImm, qp.WRSendWithInv, qp.WRWriteImm:
		return true
	}
	return false
}

func (m *message) writes() bool { return m.op == qp.WRWrite || m.op == qp.WRWriteImm }

func (m *message) isAtomic() bool { return m.op == qp.WRCmpSwap || m.op == qp.WRFetchAdd }

func (m *message) isLocal() bool { return m.op == qp.WRBindMW || m.op == qp.WRLocalInv }

// withImm reports whether the receiver gets immediate data.
func (m *message) withImm() bool { return m.op == qp.WRSendImm || m.op == qp.WRWriteImm }

// operations lists the operations of each service. Repeated ones are drawn more often.
var operations = map[qp.Type][]qp.WROpcode{
	qp.RC: {
		qp.WRSend, qp.WRSend, qp.WRSendImm, qp.WRSendWithInv, qp.WRWrite, qp.WRWrite, qp.WRWriteImm, qp.WRRead,
		qp.WRRead, qp.WRRead, qp.WRCmpSwap, qp.WRFetchAdd, qp.WRBindMW, qp.WRBindMW, qp.WRLocalInv,
	},
	qp.UC: {qp.WRSend, qp.WRSend, qp.WRSendImm, qp.WRWrite, qp.WRWrite, qp.WRWriteImm, qp.WRBindMW, qp.WRLocalInv},
	qp.UD: {qp.WRSend, qp.WRSend, qp.WRSendImm},
}

// writeOps are the operations of profiles without READs.
var writeOps = []qp.WROpcode{qp.WRWrite, qp.WRWrite, qp.WRWriteImm}

// plan draws the messages of f.
func (f *flow) plan(rng *rand.Rand) {
	s := &f.from.w.s
	packets, total := s.packets, s.bytes
	ops := operations[s.typ]
	if s.typ == qp.RC && !profile.Supports(s.transport, qp.WRRead) {
		ops = writeOps
	}
	for range s.msgs {
		m := &message{op: pick(rng, ops...), to: f.from.peer, imm: rng.Uint32()}
		if s.typ == qp.UD {
			m.to = pick(rng, f.from.w.ends[1-f.from.side]...)
		}
		if chance(rng, 10) {
			m.flags |= qp.SendFence
		}
		if chance(rng, 30) {
			m.flags |= qp.SendSolicited
		}
		if s.sigAll || chance(rng, 60) {
			m.flags |= qp.SendSignaled
		}
		m.size = f.drawSize(rng, min(packets*s.mtu.Bytes(), total))
		packets -= m.size/s.mtu.Bytes() + 1
		total -= m.size
		f.planData(rng, m)
		f.msgs = append(f.msgs, m)
	}
}

// drawSize draws a length, usually near the path MTU.
func (f *flow) drawSize(rng *rand.Rand, most int) int {
	s := &f.from.w.s
	mtu := s.mtu.Bytes()
	n := pick(rng, 0, 1, 3, mtu-1, mtu, mtu+1, 2*mtu, rng.IntN(300), rng.IntN(4*mtu), rng.IntN(4*mtu),
		rng.IntN(64<<10), rng.IntN(256<<10+1))
	switch {
	case s.typ == qp.UD:
		return min(n, 4096)
	case s.srq:
		n = min(n, 16<<10)
	case s.typ == qp.UC:
		n = min(n, 64<<10)
	}
	if n > most {
		n = rng.IntN(min(mtu, 64) + 1)
	}
	return n
}

// planData reserves the memory of m on both sides.
func (f *flow) planData(rng *rand.Rand, m *message) {
	own, s := &f.from.mem, &f.from.w.s
	pieces := 1 + rng.IntN(s.sges)
	switch {
	case m.isLocal():
		m.size = 0
		m.flags |= qp.SendSignaled
		return
	case m.isAtomic():
		m.size = 8
		m.local = own.list(rng, 8, pieces)
		f.planAtomic(rng, m)
		return
	case m.op == qp.WRRead && f.readBack(rng, m):
		m.local = own.list(rng, m.size, pieces)
		return
	case m.op != qp.WRRead && f.passOn(rng, m):
	default:
		m.data = bytesOf(rng, m.size)
		if m.op != qp.WRRead && m.size <= s.inline && chance(rng, 50) {
			m.flags |= qp.SendInline
		} else {
			m.local = own.list(rng, m.size, pieces)
			m.source = m.op != qp.WRRead
		}
	}
	if m.writes() || m.op == qp.WRRead {
		m.remote = m.to.mem.reserve(rng, m.size, 1)
	}
}

// readBack makes m read data that an earlier message writes.
func (f *flow) readBack(rng *rand.Rand, m *message) bool {
	if len(f.msgs) == 0 || !chance(rng, 30) {
		return false
	}
	if o := pick(rng, f.msgs...); o.writes() && o.size <= 16<<10 {
		m.size, m.data, m.remote = o.size, o.data, o.remote
		return true
	}
	return false
}

// passOn makes m send data that an earlier message reads; this needs a fence.
func (f *flow) passOn(rng *rand.Rand, m *message) bool {
	if len(f.msgs) == 0 || !chance(rng, 20) {
		return false
	}
	if o := pick(rng, f.msgs...); o.op == qp.WRRead && o.size <= 16<<10 {
		m.size, m.data, m.local = o.size, o.data, o.local
		m.flags |= qp.SendFence
		return true
	}
	return false
}

// planAtomic plans the effect on a word that only f uses, or adds 1 to the shared one.
func (f *flow) planAtomic(rng *rand.Rand, m *message) {
	a := &m.atomic
	if m.op == qp.WRFetchAdd && chance(rng, 30) {
		*a = atomic{shared: true, add: 1}
		m.remote = place{f.to().w.sharedWord[f.to().side], 8}
		return
	}
	m.remote = f.word
	a.orig = f.value
	switch {
	case m.op == qp.WRFetchAdd:
		a.add = rng.Uint64()
		a.after = f.value + a.add
	case chance(rng, 70):
		a.compare, a.swap = f.value, rng.Uint64()
		a.after = a.swap
	default:
		a.compare, a.swap = f.value+1+rng.Uint64N(100), rng.Uint64()
		a.after = f.value
	}
	f.value = a.after
}

func bytesOf(rng *rand.Rand, n int) []byte {
	b := make([]byte, (n+7)&^7)
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rng.Uint64())
	}
	return b[:n]
}

// request returns the work request of m.
func (f *flow) request(id int, m *message) qp.SendWQE {
	w := qp.SendWQE{WRID: uint64(id), Opcode: m.op, Flags: m.flags, Imm: m.imm}
	if m.flags&qp.SendInline != 0 {
		w.Inline = m.data
	} else {
		w.SGEs = f.from.mem.sges(m.local)
	}
	switch {
	case m.op == qp.WRBindMW:
		w.Bind = m.win.request(f.from)
	case m.isLocal():
	case m.isAtomic() || m.writes() || m.op == qp.WRRead:
		to := m.to.mem.buf.At(m.remote.off)
		if m.atomic.shared {
			to = m.to.w.shared[m.to.side].At(m.remote.off)
		}
		w.RemoteVA, w.RKey = to.VA, to.RKey
		if m.win != nil {
			w.RKey = m.win.rkey
		}
		w.CompareAdd, w.Swap = m.atomic.add, m.atomic.swap
		if m.op == qp.WRCmpSwap {
			w.CompareAdd = m.atomic.compare
		}
	}
	if f.from.w.s.typ == qp.UD {
		w = f.address(w, m)
	}
	return w
}

// address adds the destination of a datagram.
func (f *flow) address(w qp.SendWQE, m *message) qp.SendWQE {
	to := nictest.SendTo(w.WRID, f.from.ah, m.to.qp)
	w.AH, w.RemoteQPN, w.RemoteQKey = to.AH, to.RemoteQPN, to.RemoteQKey
	return w
}
