package nictest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
)

// deferredOps are the operations of TestDeferred, each of them over two elements of a list.
var deferredOps = []qp.WROpcode{qp.WRWrite, qp.WRWriteImm, qp.WRSend, qp.WRSendImm, qp.WRRead, qp.WRFetchAdd, qp.WRCmpSwap, qp.WRAtomicWrite}

// deferredRun is the state of TestDeferred: a pair of queue pairs, 4 KiB for each request on each side, and a word for
// all atomic operations.
type deferredRun struct {
	a, b     *QP
	src, dst *Buffer
	size     int
}

const deferredSlot = 4096

// post posts request i.
func (r *deferredRun) post(i int) {
	op, off, id := deferredOps[i%len(deferredOps)], i*deferredSlot, uint64(i)
	part := func(b *Buffer, off, n int) []qp.SGE { return []qp.SGE{b.Part(off, n/3), b.Part(off+n/3, n-n/3)} }
	counter := r.dst.At(len(r.dst.B) - 64)
	w := remote(id, op, r.dst.At(off), part(r.src, off, r.size))
	switch op {
	case qp.WRFetchAdd:
		w = FetchAdd(id, counter, 1, r.src.Part(off, 8))
	case qp.WRCmpSwap:
		w = CompareSwap(id, counter, 1<<50, 7, r.src.Part(off, 8)) // without success
	case qp.WRAtomicWrite:
		w.SGEs, w.Inline, w.Flags = nil, bytes.Repeat([]byte{byte(i)}, 8), w.Flags|qp.SendInline
	case qp.WRSend, qp.WRSendImm, qp.WRWriteImm:
		r.b.PostRecv(id, part(r.dst, off, deferredSlot)...)
	}
	r.a.Post(w)
}

// check verifies the result of request i.
func (r *deferredRun) check(p *Pair, i int, sent, asked []byte) {
	off, atomics := i*deferredSlot, uint64((i+2)/len(deferredOps)) // FETCH_ADDs before it
	at := func(b []byte) []byte { return b[off : off+r.size] }
	got, want := at(r.dst.B), at(sent)
	switch deferredOps[i%len(deferredOps)] {
	case qp.WRRead:
		got, want = at(r.src.B), at(asked)
	case qp.WRFetchAdd, qp.WRCmpSwap:
		got, want = r.src.B[off:off+8], binary.NativeEndian.AppendUint64(nil, atomics)
	case qp.WRAtomicWrite:
		got, want = r.dst.B[off:off+8], bytes.Repeat([]byte{byte(i)}, 8)
	}
	if !bytes.Equal(got, want) {
		p.Fatalf("request %d (%v): data differ", i, deferredOps[i%len(deferredOps)])
	}
}

// TestDeferred: every operation of every transport completes once and in order. Accesses to memory end later; the
// link has faults in some runs.
func TestDeferred(t *testing.T) {
	const requests = 40
	for _, name := range profile.Complete() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(12) {
				o := Options{Seed: seed, Deferred: true, Offload: super}
				if seed%3 > 0 {
					o.Hook = OnlyRoCE(Hooks(Drop(0.02), Reorder(0.05, 10*time.Microsecond), Duplicate(0.02, time.Microsecond)))
				}
				p := New(t, o)
				a, b := p.RC(func(q *QPOptions) { q.Profile, q.Timeout, q.RdAtomic = name, 10, 4 })
				r := &deferredRun{a: a, b: b, src: p.A.Buffer(requests*deferredSlot + 64), dst: p.B.Buffer(requests*deferredSlot + 64), size: 1 + p.RNG.IntN(deferredSlot)}
				r.src.Fill(seed)
				r.dst.Fill(seed + 100)
				clear(r.dst.B[len(r.dst.B)-64:])
				sent, asked := bytes.Clone(r.src.B), bytes.Clone(r.dst.B)
				for i := range requests {
					if p.RNG.IntN(4) == 0 {
						p.Run(time.Duration(p.RNG.IntN(50)) * time.Microsecond)
					}
					r.post(i)
				}
				for i := range requests {
					a.WaitSend(uint64(i))
					r.check(p, i, sent, asked)
				}
				for i := range requests {
					if slices.Contains([]qp.WROpcode{qp.WRWriteImm, qp.WRSend, qp.WRSendImm}, deferredOps[i%len(deferredOps)]) {
						b.WaitRecv(uint64(i))
					}
				}
				if r.src.Deferred.Started == 0 || r.dst.Deferred.Started == 0 || p.A.Counter("memory_faults")+p.B.Counter("memory_faults") > 0 {
					p.Fatalf("%d and %d accesses", r.src.Deferred.Started, r.dst.Deferred.Started)
				}
			}
		})
	}
}

// TestDeferredUnreliable: UC and UD messages arrive complete, and all messages arrive for which the NIC has room.
func TestDeferredUnreliable(t *testing.T) {
	for _, typ := range []qp.Type{qp.UC, qp.UD} {
		t.Run(fmt.Sprint(typ), func(t *testing.T) {
			const size, grh, n = 600, 40, 40
			p := New(t, Options{Seed: 3, Deferred: true, Offload: super})
			var a, b *QP
			ah := uint32(0)
			if typ == qp.UC {
				a, b = p.UC()
			} else {
				x, y, h, _ := p.UD()
				a, b, ah = x, y, h.Handle()
			}
			src, dst := p.A.Buffer(n*size), p.B.Buffer(n*(size+grh))
			src.Fill(1)
			for i := range n {
				b.PostRecv(uint64(i), dst.Part(i*(size+grh), 20), dst.Part(i*(size+grh)+20, size+grh-20))
				w := SendTo(uint64(i), ah, b, src.Part(i*size, 100), src.Part(i*size+100, size-100))
				a.Post(w)
			}
			for i := range n {
				a.WaitSend(uint64(i))
				b.WaitRecv(uint64(i))
				at := i * (size + grh)
				if typ == qp.UD {
					at += grh
				}
				if !bytes.Equal(dst.B[at:at+size], src.B[i*size:(i+1)*size]) {
					t.Fatalf("message %d differs", i)
				}
			}
		})
	}
}

// TestDeferredIsReadAnew: data read for a request are never sent for a later request. This holds even after a
// retransmission whose original had arrived. The NIC reads large pieces at once.
func TestDeferredIsReadAnew(t *testing.T) {
	const rounds, size = 30, 1 << 17
	for name, hook := range map[string]Hook{
		"all in time": nil,
		"lossy":       OnlyRoCE(Drop(0.01)),
		"late": OnlyRoCE(func(f *Flight) Fate { // delayed by about the timeout
			if f.random(0.9) {
				return Fate{}
			}
			return Fate{Delay: 1030*time.Microsecond + time.Duration(f.From.pair.RNG.IntN(60))*time.Microsecond}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			p := New(t, Options{Seed: 1, Deferred: true, Hook: hook})
			a, _ := p.RC()
			src, dst := p.A.Buffer(size), p.B.Buffer(size)
			for i := range uint64(rounds) {
				src.Fill(i)
				a.Post(Write(i, dst.At(0), src.SGE()))
				a.WaitSend(i)
				if !bytes.Equal(src.B, dst.B) {
					t.Fatalf("WRITE %d has other data", i)
				}
				dst.Fill(rounds + i)
				a.Post(Read(i, dst.At(0), src.SGE()))
				a.WaitSend(i)
				if !bytes.Equal(src.B, dst.B) {
					t.Fatalf("READ %d has other data", i)
				}
			}
			if n := src.Deferred.Started; hook == nil && n > rounds*2*size>>16 {
				t.Errorf("%d accesses", n)
			}
		})
	}
}

// TestDeferredStops: unavailable memory stops only its own queue pair, and its pending accesses end with the queue
// pair.
func TestDeferredStops(t *testing.T) {
	p := New(t, Options{Seed: 1, Deferred: true})
	a, b := p.RC()
	c, _ := p.RC()
	_, d := p.RC()
	src, dst := p.A.Buffer(4096), p.B.Buffer(4096)
	stuck := p.A.Buffer(4096)
	stuck.Deferred.Stopped = true
	a.Post(Write(1, dst.At(0), stuck.SGE()))
	d.Post(Write(1, Remote{stuck.VA, stuck.MR.RKey}, dst.SGE()))
	for i := range uint64(20) {
		c.Post(Write(i, dst.At(0), src.SGE()))
		c.WaitSend(i)
	}
	if a.SendCQ.Len()+d.SendCQ.Len() > 0 {
		t.Fatal("done without memory")
	}
	for _, q := range []*QP{a, b} {
		q.Modify(qp.Attr{State: qp.Reset}, 0, nil)
	}
	stuck.Deferred.Stopped = false
	d.WaitSend(1)
	Connect(a, b)
	a.Post(Write(2, dst.At(0), src.SGE()))
	a.WaitSend(2)
	a.Destroy()
	p.RunIdle()
}

// TestDeferredIsGone: accesses that fail late fail their requests.
func TestDeferredIsGone(t *testing.T) {
	const size = 1 << 13
	for _, c := range []struct {
		name     string
		gone     func(src, dst *Buffer) *RemoteMemory
		w        func(src, dst *Buffer) qp.SendWQE
		requests qp.Status
	}{
		{"WRITE from", func(src, _ *Buffer) *RemoteMemory { return src.Remote }, func(src, dst *Buffer) qp.SendWQE { return Write(1, dst.At(0), src.SGE()) }, qp.StatusLocProtErr},
		{"WRITE to", func(_, dst *Buffer) *RemoteMemory { return dst.Remote }, func(src, dst *Buffer) qp.SendWQE { return Write(1, dst.At(0), src.SGE()) }, qp.StatusRemAccessErr},
		{"READ from", func(_, dst *Buffer) *RemoteMemory { return dst.Remote }, func(src, dst *Buffer) qp.SendWQE { return Read(1, dst.At(0), src.SGE()) }, qp.StatusRemAccessErr},
		{"READ to", func(src, _ *Buffer) *RemoteMemory { return src.Remote }, func(src, dst *Buffer) qp.SendWQE { return Read(1, dst.At(0), src.SGE()) }, qp.StatusLocProtErr},
		{"atomic", func(_, dst *Buffer) *RemoteMemory { return dst.Remote }, func(src, dst *Buffer) qp.SendWQE { return FetchAdd(1, dst.At(0), 1, src.Part(0, 8)) }, qp.StatusRemAccessErr},
	} {
		for _, name := range profile.Complete() {
			p := New(t, Options{Seed: 1, Deferred: true})
			a, _ := p.RC(func(q *QPOptions) { q.Profile = name })
			src, dst := p.A.Buffer(size), p.B.Buffer(size)
			c.gone(src, dst).Gone = true
			a.Post(c.w(src, dst))
			if e := a.SendCQ.Wait(); e.Status != c.requests {
				t.Errorf("%s, %s: %v, want %v", c.name, name, e.Status, c.requests)
			}
			if p.A.Counter("memory_faults")+p.B.Counter("memory_faults") == 0 {
				t.Errorf("%s, %s: not counted", c.name, name)
			}
		}
	}
}

// TestDeferredRegionGoes: the end of a region drops the data gathered for it, from a message that does not complete.
func TestDeferredRegionGoes(t *testing.T) {
	last := func(p *bth.Packet) bool { return p.Opcode.IsWrite() && p.Opcode.IsLast() }
	p := New(t, Options{Seed: 1, Deferred: true})
	p.SetHook(DropNth(p.A, last, 0))
	a, b := p.UC()
	src, dst, other := p.A.Buffer(4096), p.B.Buffer(4096), p.B.Buffer(64)
	a.Post(Write(1, dst.At(0), src.SGE()))
	p.Run(100 * time.Microsecond)
	if err := b.Node.NIC.DeregMR(dst.MR); err != nil {
		t.Fatal(err)
	}
	a.Post(Write(2, other.At(0), src.Part(0, 64)))
	p.Run(100 * time.Microsecond)
	if dst.Remote.Writes > 0 {
		t.Error("written after the end of the region")
	}
}

// TestDeferredAfterReset: an access that fails before or after a reset does not fail the new
// connection.
func TestDeferredAfterReset(t *testing.T) {
	for _, size := range []int{64, 1 << 17} { // all at once, or the first half
		p := New(t, Options{Seed: 1, Deferred: true})
		p.SetHook(func(f *Flight) Fate {
			return Fate{Drop: size > 64 && f.Seq > 80 && p.now < mono.Time(1100*time.Millisecond)}
		})
		a, b := p.RC()
		src, dst, other := p.A.Buffer(size), p.B.Buffer(size), p.B.Buffer(64)
		dst.Remote.Gone, dst.Deferred.Stopped = true, size == 64
		a.Post(Write(1, dst.At(0), src.SGE()))
		p.Run(100 * time.Microsecond)
		for _, q := range []*QP{a, b} {
			q.Modify(qp.Attr{State: qp.Reset}, 0, nil)
		}
		p.Run(time.Second)
		Connect(a, b)
		dst.Deferred.Stopped = false
		p.Run(100 * time.Microsecond)
		a.Post(Write(2, other.At(0), src.Part(0, 64)))
		a.WaitSend(2)
		if len(dst.Deferred.queue) > 0 || dst.Deferred.Started == 0 {
			t.Errorf("%d bytes: %d accesses", size, dst.Deferred.Started)
		}
	}
}

// TestDeferredFlush: a broken queue pair returns receives after all writes to them have ended, and then the later
// receives.
func TestDeferredFlush(t *testing.T) {
	const size, receives = 3000, 20
	for _, name := range profile.Complete() {
		p := New(t, Options{Seed: 1, Deferred: true})
		a, b := p.RC(func(q *QPOptions) { q.Profile, q.Depth = name, 2*receives })
		src, dst := p.A.Buffer(size), p.B.Buffer(size)
		dst.Deferred.Stopped = true
		for i := range uint64(receives) {
			b.PostRecv(i, dst.SGE())
		}
		a.Post(Send(0, src.SGE()))
		p.RunUntil(func() bool { return dst.Deferred.Started > 0 }, time.Second)
		b.Modify(qp.Attr{State: qp.Err}, 0, nil)
		for i := range uint64(receives) {
			b.PostRecv(receives+i, dst.SGE())
		}
		p.Run(time.Millisecond)
		if n := b.RecvCQ.Len(); n != 0 {
			t.Fatalf("%s: %d receives are given back while something is written to one", name, n)
		}
		dst.Deferred.Stopped = false
		for i := range uint64(2 * receives) {
			if c := b.RecvCQ.Wait(); c.WRID != i || c.Status != qp.StatusWRFlushErr {
				t.Fatalf("%s: %+v instead of receive %d", name, c, i)
			}
		}
	}
}

// TestDeferredScattered: a packet may have more destinations than the limit of concurrent writes.
func TestDeferredScattered(t *testing.T) {
	const size, places = 1000, 16
	for _, name := range profile.Complete() {
		p := New(t, Options{Seed: 1, Deferred: true})
		a, b := p.RC(func(q *QPOptions) { q.Profile, q.SGEs = name, places })
		src, dst := p.A.Buffer(size), p.B.Buffer(2*size)
		parts := func(b *Buffer) (list []qp.SGE) { // with gaps between
			for i := range places {
				list = append(list, b.Part(i*2*size/places, size/places+1))
			}
			return list
		}
		b.PostRecv(0, parts(dst)...)
		a.Post(Send(0, src.SGE()))
		b.WaitRecv(0)
		back := p.A.Buffer(2 * size)
		a.Post(Read(1, dst.At(0), parts(back)...))
		a.WaitSend(0)
		a.WaitSend(1)
		for i := range places {
			at, n := i*2*size/places, min(size/places+1, size-i*(size/places+1))
			if !bytes.Equal(dst.B[at:at+n], src.B[i*(size/places+1):][:n]) {
				t.Fatalf("%s: part %d differs", name, i)
			}
		}
	}
}
