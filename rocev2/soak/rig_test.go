package soak

import (
	"bytes"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
	"roced.io/roced/rocev2/nictest"
)

// rig is node B of a pair under attack, with queue pairs of all services and memory of all kinds.
type rig struct {
	p        *nictest.Pair
	own      [3]*nictest.QP // RC, UC, UD of node B
	peer     [3]*nictest.QP
	gone     [3]bool    // destroyed
	hostile  bool       // the client is the attacker
	ah       *rocev2.AH // of B's client
	regions  []*region
	foreign  *rocev2.PD
	windows  []*rocev2.MW
	seen     [][]byte // frames of genuine traffic
	last     map[bth.QPN]bth.PSN
	buf      *nictest.Buffer // of A
	posted   uint64
	complete map[uint64]int // send completions by request
}

// region is memory of node B with guards around it.
type region struct {
	all    []byte // including guards
	b      []byte
	va     uint64
	mr     *rocev2.MR
	frozen []byte // required content; nil: may change
}

const guard = 4096

// regions of a rig, by purpose.
const (
	openRegion    = iota // all accesses allowed
	localRegion          // closed to peers
	readRegion           // peers may read, but not write
	writeRegion          // peers may write, but not read
	foreignRegion        // of another protection domain
	windowRegion         // peers may use its middle, through windows
	topRegion            // at the end of the address space
	zeroRegion           // zero based
)

const regionLen = 1 << 14

func newRig(t testing.TB, o link.Offload) *rig {
	r := &rig{last: make(map[bth.QPN]bth.PSN), complete: make(map[uint64]int)}
	r.p = nictest.New(t, nictest.Options{Seed: 1, Offload: o, Hook: r.look})
	var err error
	if r.foreign, err = r.p.B.NIC.AllocPD(nil); err != nil {
		t.Fatal(err)
	}
	const remote = qp.AccessRemoteRead | qp.AccessRemoteWrite | qp.AccessRemoteAtomic
	r.region(0x10000, qp.AccessLocalWrite|remote, r.p.B.PD, false)
	r.region(0x20000, qp.AccessLocalWrite, r.p.B.PD, true)
	r.region(0x30000, qp.AccessRemoteRead, r.p.B.PD, false)
	r.region(0x40000, qp.AccessLocalWrite|qp.AccessRemoteWrite, r.p.B.PD, true)
	r.region(0x50000, qp.AccessLocalWrite|remote, r.foreign, true)
	r.region(0x60000, qp.AccessLocalWrite|qp.AccessMWBind, r.p.B.PD, true)
	r.region(1<<64-regionLen, qp.AccessLocalWrite|remote, r.p.B.PD, false)
	r.region(0x70000, qp.AccessLocalWrite|remote|qp.AccessZeroBased, r.p.B.PD, false)
	r.freeze(readRegion)
	r.freeze(foreignRegion)
	r.buf = r.p.A.Buffer(1 << 16)
	r.buf.Fill(1)
	for i, typ := range []qp.Type{qp.RC, qp.UC, qp.UD} {
		opt := func(o *nictest.QPOptions) {
			o.Type, o.MTU, o.Depth, o.PSN, o.RdAtomic, o.Timeout, o.SGEs = typ, 2, 32, rigPSN, 4, 6, 4
		}
		r.own[i], r.peer[i] = r.p.B.QP(opt), r.p.A.QP(opt)
	}
	r.start()
	return r
}

// rigPSN is the first PSN of all queue pairs.
const rigPSN = 0xfffffa

// connect takes a queue pair of B and its peer to RTS.
func (r *rig) connect(i int) {
	for _, q := range []*nictest.QP{r.own[i], r.peer[i]} {
		r.last[q.Num()] = bth.MakePSN(rigPSN - 1)
		if i == 2 {
			q.Init()
			q.Modify(qp.Attr{State: qp.RTR}, 0, nil)
			q.RTS()
		}
	}
	if i < 2 {
		nictest.Connect(r.own[i], r.peer[i])
	}
}

// heal reconnects broken queue pairs.
func (r *rig) heal() {
	for i, q := range r.own {
		ok := true
		for _, q := range []*nictest.QP{q, r.peer[i]} {
			q.SendCQ.PollAll()
			q.RecvCQ.PollAll()
			ok = ok && q.State() == qp.RTS
		}
		if ok || r.gone[i] || q.SendCQ.Failed() || q.RecvCQ.Failed() || r.peer[i].SendCQ.Failed() || r.peer[i].RecvCQ.Failed() {
			continue
		}
		q.Modify(qp.Attr{State: qp.Reset}, 0, nil)
		r.peer[i].Modify(qp.Attr{State: qp.Reset}, 0, nil)
		r.connect(i)
	}
}

// start connects the queue pairs and opens a window of each type.
func (r *rig) start() {
	for i := range r.own {
		r.connect(i)
	}
	r.ah = r.own[2].AH()
	w := r.regions[windowRegion]
	plain(w.b[4096:8192], 0x40)
	for i, typ := range []rocev2.MWType{rocev2.MWType1, rocev2.MWType2} {
		mw, err := r.p.B.NIC.AllocMW(r.p.B.PD, typ, nil)
		if err != nil {
			r.p.Fatalf("%v", err)
		}
		r.windows = append(r.windows, mw)
		r.own[0].Post(nictest.BindMW(uint64(i), qp.BindWR{Addr: w.va + 4096, Length: 4096, MRLKey: w.mr.LKey,
			MWRKey: mw.RKey, RKey: mw.RKey ^ 1, Access: qp.AccessRemoteRead | qp.AccessRemoteWrite | qp.AccessRemoteAtomic}))
		r.own[0].WaitSend(uint64(i))
	}
	r.p.RunIdle()
}

// region registers memory with guards, filled with canaries if it is secret.
func (r *rig) region(va uint64, a qp.Access, pd *rocev2.PD, secret bool) {
	g := &region{all: make([]byte, regionLen+2*guard), va: va}
	fillCanary(g.all)
	g.b = g.all[guard : guard+regionLen]
	if !secret {
		plain(g.b, byte(len(r.regions))<<4)
	}
	var err error
	g.mr, err = r.p.B.NIC.RegMR(pd, rocev2.MRAttr{VA: va, Length: regionLen, Access: a, Mem: rocev2.NewBytes(g.b)})
	if err != nil {
		r.p.Fatalf("%v", err)
	}
	if a&qp.AccessZeroBased != 0 {
		g.va = 0
	}
	r.regions = append(r.regions, g)
}

func (r *rig) freeze(i int) { r.regions[i].frozen = bytes.Clone(r.regions[i].b) }

// look checks every frame that B sends, and stores some.
func (r *rig) look(f *nictest.Flight) nictest.Fate {
	var p bth.Packet
	roce := f.RoCE(&p)
	if f.From == r.p.B && bytes.Contains(f.Frame, canary) {
		r.p.Fatalf("a frame with secret memory: %v, psn %v, %d bytes", p.Opcode, p.PSN, len(f.Frame))
	}
	if roce {
		r.last[p.DestQP] = p.PSN
		if f.From == r.p.A && len(r.seen) < 64 {
			r.seen = append(r.seen, bytes.Clone(f.Frame))
		}
	}
	return nictest.Fate{}
}

// key returns a key that an attacker may know, or an invented one.
func (r *rig) key(d *program) uint32 {
	switch k := d.below(14); {
	case k < len(r.regions):
		return r.regions[k].mr.RKey
	case k < len(r.regions)+len(r.windows):
		return r.windows[k-len(r.regions)].RKey
	case k == 10:
		return r.buf.MR.RKey
	case k == 11:
		return 0
	case k == 12:
		return r.regions[openRegion].mr.RKey ^ 1<<d.below(32)
	}
	return d.u32()
}

// address returns an address near the start or the end of a region, or any address.
func (r *rig) address(d *program) uint64 {
	g := r.regions[d.below(len(r.regions))]
	switch d.below(8) {
	case 0:
		return g.va
	case 1:
		return g.va + uint64(d.below(regionLen))
	case 2:
		return g.va + regionLen - uint64(d.byte())
	case 3:
		return g.va - uint64(d.byte())
	case 4:
		return r.regions[windowRegion].va + 4096 + uint64(d.below(4096))
	case 5:
		return g.va + uint64(8*d.below(512))
	case 6:
		return r.buf.VA + uint64(d.u16())
	}
	return d.u64()
}

// target returns a key, an address and a length, which usually match. The range is near the start or the end of the
// key's memory, or beyond.
func (r *rig) target(d *program) (key uint32, va uint64, n uint32) {
	k := d.below(len(r.regions) + len(r.windows) + 3)
	begin, length := uint64(0), uint64(regionLen)
	switch {
	case k < len(r.regions):
		key, begin = r.regions[k].mr.RKey, r.regions[k].va
	case k < len(r.regions)+len(r.windows):
		key, begin, length = r.windows[k-len(r.regions)].RKey, r.regions[windowRegion].va+4096, 4096
	default:
		return r.key(d), r.address(d), d.wide(regionLen)
	}
	n = d.wide(int(length))
	switch d.below(6) {
	case 0:
		return key, begin - uint64(d.byte()), n
	case 1, 2:
		n = uint32(2 * d.byte()) // ends at the end, or 16 or 32 bytes after it
		return key, begin + length - uint64(n) + uint64(16*d.below(3)), n
	}
	return key, begin + 8*uint64(d.below(int(length/8))), n
}

// check compares the memory with the permitted content.
func (r *rig) check() {
	for i, g := range r.regions {
		want := make([]byte, guard)
		fillCanary(want)
		tail := make([]byte, guard+regionLen+guard)
		fillCanary(tail)
		if !bytes.Equal(g.all[:guard], want) || !bytes.Equal(g.all[guard+regionLen:], tail[guard+regionLen:]) {
			r.p.Fatalf("region %d: memory around it has changed", i)
		}
		if g.frozen != nil && !bytes.Equal(g.b, g.frozen) {
			r.p.Fatalf("region %d has changed", i)
		}
		if i == windowRegion && !r.hostile && (!bytes.Equal(g.b[:4096], tail[guard:guard+4096]) || !bytes.Equal(g.b[8192:], tail[guard+8192:guard+regionLen])) {
			r.p.Fatalf("memory beyond the windows has changed")
		}
	}
}
