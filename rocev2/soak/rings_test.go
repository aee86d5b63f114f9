package soak

import (
	"testing"
	"time"

	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/nictest"
)

// FuzzRings attacks a NIC with arbitrary content of a client's rings. The client must not access foreign memory, and
// each request must complete at most once.
func FuzzRings(f *testing.F) {
	addPrograms(f, 300)
	f.Fuzz(func(t *testing.T, b []byte) {
		d := &program{b}
		o := link.Offload{}
		if d.byte()&1 != 0 {
			o = link.Offload{MaxSegments: 64, MaxBytes: 65549}
		}
		r := newRig(t, o)
		r.secretsOfOthers()
		for n := 0; d.more() && n < 400; n++ {
			r.post(d)
		}
		r.p.Run(5 * time.Millisecond)
		r.end()
		r.check()
	})
}

// secretsOfOthers reveals the memory that the client may send: all of its own.
func (r *rig) secretsOfOthers() {
	for _, i := range []int{localRegion, writeRegion} {
		plain(r.regions[i].b, 0x20)
	}
	plain(r.regions[windowRegion].b, 0x30)
	r.posted, r.hostile = 1<<32, true
}

// post executes one step of a program. The client is on B; its peers on A behave correctly.
func (r *rig) post(d *program) {
	r.keepGoing(d)
	i := d.below(3)
	q := r.own[i]
	switch d.below(8) {
	case 0:
		w := qp.RecvWQE{WRID: d.u64(), SGEs: r.sges(d)}
		_ = q.RQ.Post(w)
		q.Node.NIC.RecvPosted(r.p.Now(), q.QueuePair)
	case 1:
		_ = r.peer[i].RQ.Post(qp.RecvWQE{WRID: 1, SGEs: []qp.SGE{r.buf.Part(d.below(4096), 4096)}})
	case 2:
		r.p.Run(time.Duration(d.u16()) * 10 * time.Nanosecond)
	case 3:
		r.genuine(d)
	default:
		w := r.anyRequest(d)
		r.posted++
		w.WRID = r.posted
		if q.SQ.PostRaw(w) == nil {
			r.complete[w.WRID] = 0
		}
		if d.below(4) > 0 {
			q.Doorbell()
		}
	}
	r.reap()
}

// keepGoing reconnects broken queue pairs, so that the attack continues.
func (r *rig) keepGoing(d *program) {
	if d.below(4) != 0 {
		return
	}
	for i, q := range r.own {
		if q.State() == qp.RTS && r.peer[i].State() == qp.RTS || q.SendCQ.Failed() || q.RecvCQ.Failed() {
			continue
		}
		r.breakDown(q)
		r.peer[i].Modify(qp.Attr{State: qp.Reset}, 0, nil)
		q.Modify(qp.Attr{State: qp.Reset}, 0, nil)
		r.connect(i)
	}
}

// breakDown moves q to the ERR state, in which all requests must complete.
func (r *rig) breakDown(q *nictest.QP) {
	q.Modify(qp.Attr{State: qp.Err}, 0, nil)
	q.Doorbell()
	q.Node.NIC.RecvPosted(r.p.Now(), q.QueuePair)
	r.p.Run(time.Microsecond) // a broken queue is flushed in batches, without delay
	r.reap()
	if n := q.SQ.Outstanding(); n != 0 && !q.SendCQ.Failed() {
		r.p.Fatalf("%d requests have not been flushed", n)
	}
	if n := q.RQ.Len(); n != 0 && !q.RecvCQ.Failed() {
		r.p.Fatalf("%d receive requests have not been flushed", n)
	}
}

// reap processes completions. Each completion of the client must belong to a posted request.
func (r *rig) reap() {
	for i, q := range r.own {
		for _, c := range q.SendCQ.PollAll() {
			n, ok := r.complete[c.WRID]
			if n++; c.WRID > 1<<32 && (!ok || n > 1) {
				r.p.Fatalf("request %d completed %d times: %+v", c.WRID, n, c)
			}
			r.complete[c.WRID] = n
		}
		q.RecvCQ.PollAll()
		r.peer[i].SendCQ.PollAll()
		r.peer[i].RecvCQ.PollAll()
	}
}

// end breaks the queue pairs.
func (r *rig) end() {
	for _, q := range r.own {
		if !q.SendCQ.Failed() {
			r.breakDown(q)
		}
	}
}

// sges draws a scatter/gather list.
func (r *rig) sges(d *program) (l []qp.SGE) {
	n := d.below(4)
	if d.below(16) == 0 {
		n = d.below(300)
	}
	for range n {
		s := qp.SGE{Addr: r.address(d), Length: d.wide(regionLen), LKey: r.key(d)}
		if d.below(3) > 0 { // usually valid
			g := r.regions[d.below(len(r.regions))]
			s.Addr, s.LKey = g.va+uint64(d.below(regionLen-2048)), g.mr.LKey
			s.Length = uint32(d.size(512))
		}
		l = append(l, s)
	}
	return l
}

// anyRequest draws a send request of any content.
func (r *rig) anyRequest(d *program) qp.SendWQE {
	w := qp.SendWQE{Opcode: qp.WROpcode(d.below(11)), Flags: qp.SendFlags(d.below(8)), Imm: r.key(d), SGEs: r.sges(d)}
	if d.below(16) == 0 {
		w.Opcode, w.Flags = qp.WROpcode(d.byte()), qp.SendFlags(d.byte())
	}
	for _, s := range w.SGEs {
		w.Length += s.Length
	}
	if d.below(8) == 0 {
		w.Flags |= qp.SendInline
		w.Inline = make([]byte, d.size(512))
		w.Length = uint32(len(w.Inline))
	}
	if d.below(12) == 0 {
		w.Length = d.wide(regionLen)
	}
	w.RemoteVA, w.RKey = r.buf.VA+uint64(d.below(4096))*8, r.buf.MR.RKey
	if d.below(4) == 0 {
		w.RemoteVA, w.RKey = r.address(d), r.key(d)
	}
	w.CompareAdd, w.Swap = d.u64(), d.u64()
	w.AH, w.RemoteQPN, w.RemoteQKey = r.ah.Handle(), uint32(r.peer[2].Num()), 0x11111111
	if d.below(4) == 0 {
		w.AH, w.RemoteQPN, w.RemoteQKey = d.u32()>>d.below(32), d.u32()>>d.below(32), d.u32()
	}
	w.Bind = qp.BindWR{Addr: r.address(d), Length: uint64(d.wide(regionLen)), MRLKey: r.key(d), MWRKey: r.key(d),
		RKey: r.key(d), Access: qp.Access(d.below(64))}
	if d.below(2) == 0 {
		mw := r.windows[d.below(2)]
		g := r.regions[windowRegion]
		w.Bind = qp.BindWR{Addr: g.va + uint64(d.below(8192)), Length: uint64(d.below(12000)), MRLKey: g.mr.LKey,
			MWRKey: mw.RKey, RKey: mw.RKey&^0xff | uint32(d.byte()), Access: qp.Access(2 * d.below(8))}
	}
	return w
}
