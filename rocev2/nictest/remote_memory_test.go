package nictest

import (
	"bytes"
	"encoding/binary"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// super enables super-frames that are delivered unchanged, as between TAPs.
var super = link.Offload{MaxSegments: 64, MaxBytes: 65535}

// TestFarIsCopiedInLargePieces counts the accesses of 64 KiB messages: one for each super-frame. A message needs two
// or three super-frames.
func TestFarIsCopiedInLargePieces(t *testing.T) {
	const size, most = 1 << 16, 4
	p := New(t, Options{Seed: 1, Remote: true, Offload: super, Whole: true})
	a, b := p.RC()
	src, dst := p.A.Buffer(size), p.B.Buffer(size)
	for i, w := range []func(id uint64) qp.SendWQE{
		func(id uint64) qp.SendWQE { return Write(id, dst.At(0), src.SGE()) },
		func(id uint64) qp.SendWQE { return Read(id, dst.At(0), src.SGE()) },
		func(id uint64) qp.SendWQE { b.PostRecv(id, dst.SGE()); return Send(id, src.SGE()) },
	} {
		src.Fill(uint64(2 * i))
		dst.Fill(uint64(2*i + 1))
		*src.Remote, *dst.Remote = RemoteMemory{Bytes: src.Remote.Bytes}, RemoteMemory{Bytes: dst.Remote.Bytes}
		a.Post(w(uint64(i)))
		a.WaitSend(uint64(i))
		if !bytes.Equal(src.B, dst.B) {
			t.Errorf("request %d: the data differ", i)
		}
		from, to := src.Remote, dst.Remote
		if i == 1 {
			from, to = to, from
		}
		if from.Reads < 1 || from.Reads > most || to.Writes < 1 || to.Writes > most || from.Writes+to.Reads > 0 {
			t.Errorf("request %d: %+v, %+v", i, from, to)
		}
	}
}

// TestFarIsReadForEachTransmission changes memory between a lost packet and its retransmission. The NIC does not
// retransmit the data read ahead for the lost packet.
func TestFarIsReadForEachTransmission(t *testing.T) {
	const size = 8192
	p := New(t, Options{Seed: 1, Remote: true, Offload: super})
	a, _ := p.RC()
	src, dst := p.A.Buffer(size), p.B.Buffer(size)
	src.Fill(1)
	write := func(k *bth.Packet) bool { return k.Opcode.IsWrite() }
	lose := DropNth(p.A, write, 0, 1, 2, 3, 4, 5, 6, 7)
	p.SetHook(func(f *Flight) Fate {
		fate := lose(f)
		if fate.Drop {
			src.Fill(2) // at the earliest time: the frame has left
		}
		return fate
	})
	a.Post(Write(1, dst.At(0), src.SGE()))
	a.WaitSend(1)
	if !bytes.Equal(src.B, dst.B) {
		t.Error("the data are those of the first transmission")
	}
}

// TestFarIsReadForEachRequest sends the same memory twice in a row, changed in between. The second request may leave
// in the frame of the first.
func TestFarIsReadForEachRequest(t *testing.T) {
	p := New(t, Options{Seed: 1, Remote: true, Offload: super, Whole: true})
	a, _ := p.RC()
	src, dst := p.A.Buffer(1<<15), p.B.Buffer(1<<15)
	for i := range 20 {
		src.Fill(uint64(i))
		want := bytes.Clone(src.B[:4096])
		a.Post(Write(uint64(2*i), dst.At(0), src.Part(0, 4096)))
		a.WaitSend(uint64(2 * i))
		src.Fill(uint64(i + 100))
		a.Post(Write(uint64(2*i+1), dst.At(4096), src.Part(4096, 4096)))
		a.WaitSend(uint64(2*i + 1))
		if !bytes.Equal(dst.B[:4096], want) || !bytes.Equal(dst.B[4096:8192], src.B[4096:8192]) {
			t.Fatalf("round %d", i)
		}
	}
}

// TestFarIsGone makes accesses fail on either side. One request fails as with a bad address; earlier writes are in
// place.
func TestFarIsGone(t *testing.T) {
	const size = 1 << 15
	for _, c := range []struct {
		name     string
		remote   func(src, dst *Buffer) *RemoteMemory
		post     func(a, b *QP, src, dst *Buffer) qp.SendWQE
		requests qp.Status
		receives qp.Status // of the receive involved; success if there is none
		node     int       // node of the counter
	}{
		{"WRITE from", func(src, _ *Buffer) *RemoteMemory { return src.Remote },
			func(_, _ *QP, src, dst *Buffer) qp.SendWQE { return Write(1, dst.At(0), src.SGE()) }, qp.StatusLocProtErr, 0, 0},
		{"WRITE to", func(_, dst *Buffer) *RemoteMemory { return dst.Remote },
			func(_, _ *QP, src, dst *Buffer) qp.SendWQE { return Write(1, dst.At(0), src.SGE()) }, qp.StatusRemAccessErr, 0, 1},
		{"READ from", func(_, dst *Buffer) *RemoteMemory { return dst.Remote },
			func(_, _ *QP, src, dst *Buffer) qp.SendWQE { return Read(1, dst.At(0), src.SGE()) }, qp.StatusRemAccessErr, 0, 1},
		{"READ to", func(src, _ *Buffer) *RemoteMemory { return src.Remote },
			func(_, _ *QP, src, dst *Buffer) qp.SendWQE { return Read(1, dst.At(0), src.SGE()) }, qp.StatusLocProtErr, 0, 0},
		{"SEND to", func(_, dst *Buffer) *RemoteMemory { return dst.Remote },
			func(_, b *QP, src, dst *Buffer) qp.SendWQE { b.PostRecv(9, dst.SGE()); return Send(1, src.SGE()) },
			qp.StatusRemOpErr, qp.StatusLocProtErr, 1},
		{"atomic", func(_, dst *Buffer) *RemoteMemory { return dst.Remote },
			func(_, _ *QP, src, dst *Buffer) qp.SendWQE { return FetchAdd(1, dst.At(0), 1, src.Part(0, 8)) },
			qp.StatusRemAccessErr, 0, -1},
	} {
		for _, sw := range []*rocev2.Switch{nil, {}} {
			p := New(t, Options{Seed: 1, Remote: true, Offload: super, Whole: true, Switch: sw})
			a, b := p.RC()
			src, dst := p.A.Buffer(size), p.B.Buffer(size)
			c.remote(src, dst).Gone = true
			a.Post(c.post(a, b, src, dst))
			if e := a.SendCQ.Wait(); e.Status != c.requests {
				t.Errorf("%s: %v, want %v", c.name, e.Status, c.requests)
			}
			if c.receives != 0 {
				if e := b.RecvCQ.Wait(); e.Status != c.receives {
					t.Errorf("%s: receive %v, want %v", c.name, e.Status, c.receives)
				}
			}
			if c.node >= 0 && [2]*Node{p.A, p.B}[c.node].Counter("memory_faults") == 0 {
				t.Errorf("%s: not counted", c.name)
			}
		}
	}
}

// TestFarAtomics: atomic operations take effect after earlier writes and before later reads.
func TestFarAtomics(t *testing.T) {
	p := New(t, Options{Seed: 1, Remote: true})
	a, _ := p.RC()
	src, dst := p.A.Buffer(64), p.B.Buffer(64)
	binary.NativeEndian.PutUint64(src.B, 1000)
	a.Post(Write(1, dst.At(0), src.Part(0, 8)), FetchAdd(2, dst.At(0), 5, src.Part(8, 8)),
		CompareSwap(3, dst.At(0), 1005, 7, src.Part(16, 8)), Read(4, dst.At(0), src.Part(24, 8)))
	for id := range uint64(4) {
		a.WaitSend(id + 1)
	}
	for i, want := range []uint64{1000, 1000, 1005, 7} {
		if v := binary.NativeEndian.Uint64(src.B[8*i:]); v != want {
			t.Errorf("number %d is %d, want %d", i, v, want)
		}
	}
}
