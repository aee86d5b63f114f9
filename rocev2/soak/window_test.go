package soak

import (
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// window is a memory window over the whole memory of an end, for its peer.
type window struct {
	mw    *rocev2.MW
	typ   rocev2.MWType
	state windowState
	rkey  uint32
	uses  int // messages of the peer that use the window and may be incomplete
	shut  bool
}

type windowState uint8

const (
	windowClosed windowState = iota
	windowBusy               // a request that changes it is in progress
	windowOpen
)

// open returns a window that the peer may use.
func (e *end) open() *window {
	for _, v := range e.windows {
		if v.state == windowOpen && !v.shut {
			return v
		}
	}
	return nil
}

// request opens the window under a new key, or closes one of type 1.
func (v *window) request(e *end) qp.BindWR {
	b := qp.BindWR{Addr: e.mem.buf.VA, Length: uint64(len(e.mem.buf.B)), MRLKey: e.mem.buf.MR.LKey,
		MWRKey: v.mw.RKey, Access: qp.AccessRemoteRead | qp.AccessRemoteWrite | qp.AccessRemoteAtomic}
	if v.shut {
		b.Length = 0
	}
	b.RKey = b.MWRKey&^0xff | (b.MWRKey+1)&0xff
	v.rkey = b.RKey
	return b
}

// opened processes the completion of a bind.
func (v *window) opened() {
	if v.shut {
		v.closed()
		return
	}
	v.state = windowOpen
}

func (v *window) closed() { v.state, v.shut = windowClosed, false }

// bind chooses the window that m opens, or makes m an empty write.
func (f *flow) bind(m *message) bool {
	for _, v := range f.from.windows {
		if v.state == windowClosed {
			v.state, m.win = windowBusy, v
			return true
		}
	}
	f.demote(m)
	return true
}

// unbind chooses the window that m closes. It must no longer be in use: the peer stops first, and m waits for it.
func (f *flow) unbind(m *message) bool {
	v := f.from.open()
	for _, x := range f.from.windows {
		if x.shut && x.state == windowOpen {
			v = x
		}
	}
	if v == nil {
		f.demote(m)
		return true
	}
	v.shut = true
	if v.uses > 0 && f.to().out.failed { // packets of the broken peer may still arrive
		f.demote(m)
		return true
	}
	if v.uses > 0 {
		return false
	}
	v.state, m.win, m.imm = windowBusy, v, v.rkey
	if v.typ == rocev2.MWType1 {
		m.op = qp.WRBindMW
	}
	return true
}

// invalidate makes the SEND m close a window of the peer, after the READs that use it. If there is none, m remains a
// plain SEND.
func (f *flow) invalidate(m *message) {
	for _, v := range f.to().windows {
		if v.state == windowOpen && !v.shut && v.typ == rocev2.MWType2 {
			v.state, m.win, m.imm = windowBusy, v, v.rkey
			m.flags |= qp.SendFence
			return
		}
	}
	m.op = qp.WRSend
}

// demote makes a local operation without a window an empty write.
func (f *flow) demote(m *message) {
	m.op, m.to, m.remote = qp.WRWrite, f.to(), place{f.word.off, 0}
}
