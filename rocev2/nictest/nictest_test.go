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
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// TestResolution: the NICs resolve each other's address without connected queue pairs.
func TestResolution(t *testing.T) {
	for _, gid := range []uint8{GIDLinkLocal, GIDIPv4, GIDIPv6} {
		p := New(t, Options{Seed: 1})
		p.A.QP(Type(qp.UD), func(o *QPOptions) { o.GID = gid }).AH()
		p.RunIdle()
		if p.Frames() != 2 {
			t.Errorf("GID %d: %d frames, want a question and an answer", gid, p.Frames())
		}
	}
}

func TestRC(t *testing.T) {
	for _, gid := range []uint8{GIDLinkLocal, GIDIPv4, GIDIPv6} {
		p := New(t, Options{Seed: 1})
		a, b := p.RC(func(o *QPOptions) { o.GID = gid; o.PSN = 0xfffffe })
		src, dst := p.A.Buffer(10000), p.B.Buffer(10000)
		src.Fill(1)

		b.PostRecv(7, dst.SGE())
		a.Post(Send(1, src.Part(0, 5000)))
		if c := b.WaitRecv(7); c.ByteLen != 5000 || !bytes.Equal(src.B[:5000], dst.B[:5000]) {
			t.Errorf("SEND: %+v", c)
		}
		a.WaitSend(1)

		a.Post(Write(2, dst.At(0), src.SGE()))
		a.WaitSend(2)
		if !bytes.Equal(src.B, dst.B) {
			t.Error("WRITE")
		}
		dst.Fill(2)
		a.Post(Read(3, dst.At(16), src.Part(0, 9000)))
		a.WaitSend(3)
		if !bytes.Equal(src.B[:9000], dst.B[16:9016]) {
			t.Error("READ")
		}
		a.Post(FetchAdd(4, dst.At(8), 5, src.Part(0, 8)), CompareSwap(5, dst.At(8), 1, 2, src.Part(8, 8)))
		before := binary.NativeEndian.Uint64(dst.B[8:])
		a.WaitSend(4)
		a.WaitSend(5)
		if binary.NativeEndian.Uint64(src.B) != before || binary.NativeEndian.Uint64(src.B[8:]) != before+5 {
			t.Error("atomics")
		}
		p.RunIdle()
		if n := a.SQ.Outstanding() + a.SendCQ.Len() + b.RecvCQ.Len() + len(p.A.Events); n != 0 {
			t.Errorf("%d are left: %v", n, p.A.Events)
		}
	}
}

func TestUC(t *testing.T) {
	p := New(t, Options{Seed: 1})
	a, b := p.UC()
	src, dst := p.A.Buffer(3000), p.B.Buffer(3000)
	src.Fill(1)
	b.PostRecv(7)
	a.Post(WriteImm(1, dst.At(0), 99, src.SGE()))
	if c := b.WaitRecv(7); c.Imm != 99 || c.Flags&qp.WCWithImm == 0 || !bytes.Equal(src.B, dst.B) {
		t.Errorf("%+v", c)
	}
	a.WaitSend(1)
}

func TestUD(t *testing.T) {
	p := New(t, Options{Seed: 1})
	a, b, toB, _ := p.UD()
	src, dst := p.A.Buffer(1000), p.B.Buffer(1040)
	src.Fill(1)
	b.PostRecv(7, dst.SGE())
	a.Post(SendTo(1, toB.Handle(), b, src.SGE()))
	c := b.WaitRecv(7)
	if c.ByteLen != 1040 || c.SrcQP != uint32(a.Num()) || !bytes.Equal(src.B, dst.B[40:]) {
		t.Errorf("%+v", c)
	}
	a.WaitSend(1)
}

// TestCompletionTimes: a completion has the arrival time of its last frame: of the message, or of its
// acknowledgement. A UC send has the time at which its last frame left. The time of polling does not matter.
func TestCompletionTimes(t *testing.T) {
	const delay = 10 * time.Microsecond
	for _, uc := range []bool{false, true} {
		left := map[byte]mono.Time{} // the last frame of each node
		p := New(t, Options{Seed: 1, Delay: delay, Hook: OnlyRoCE(func(f *Flight) Fate {
			left[f.From.Name[0]] = f.At
			return Fate{}
		})})
		connect := p.RC
		if uc {
			connect = p.UC
		}
		a, b := connect()
		src, dst := p.A.Buffer(3000), p.B.Buffer(3000)
		b.PostRecv(7, dst.SGE())
		p.Run(time.Millisecond)
		a.Post(Send(1, src.SGE()))
		p.Run(time.Millisecond)
		sent := left[p.A.Name[0]]
		received, acknowledged := sent.Add(delay), left[p.B.Name[0]].Add(delay)
		if uc {
			acknowledged = sent
		}
		if c := b.WaitRecv(7); c.Time != received {
			t.Errorf("UC %v: received at %d, want %d", uc, c.Time, received)
		}
		if c := a.WaitSend(1); c.Time != acknowledged {
			t.Errorf("UC %v: sent at %d, want %d", uc, c.Time, acknowledged)
		}
	}
}

// datagrams records the events of a traced queue pair.
type datagrams []qp.TraceKind

func (d *datagrams) Trace(_ mono.Time, e qp.TraceEvent) { *d = append(*d, e.Kind) }
func (d *datagrams) Closed()                            {}

// TestTraceUD: a tracer also sees datagrams.
func TestTraceUD(t *testing.T) {
	p := New(t, Options{Seed: 1})
	a, b, toB, _ := p.UD()
	var sent, received datagrams
	for q, to := range map[*QP]*datagrams{a: &sent, b: &received} {
		if _, err := q.Node.NIC.SetTracer(p.Now(), q.Num(), to); err != nil {
			t.Fatal(err)
		}
	}
	b.PostRecv(7, p.B.Buffer(1040).SGE())
	a.Post(SendTo(1, toB.Handle(), b, p.A.Buffer(1000).SGE()))
	b.WaitRecv(7)
	if !slices.Contains(sent, qp.TraceSent) || !slices.Contains(received, qp.TraceReceived) {
		t.Errorf("sender %v, receiver %v", sent, received)
	}
}

// TestSolicited: a CQ armed for solicited completions ignores others.
func TestSolicited(t *testing.T) {
	p := New(t, Options{Seed: 1})
	a, b := p.RC()
	b.RecvCQ.Arm(true)
	for i, w := range []qp.SendWQE{Send(0), With(Send(1), qp.SendSolicited)} {
		b.PostRecv(uint64(i))
		a.Post(w)
		b.WaitRecv(uint64(i))
		if b.RecvCQ.Notified != i {
			t.Errorf("%d notifications after message %d", b.RecvCQ.Notified, i)
		}
	}
}

// TestOverflow: a full completion queue breaks its queue pairs.
func TestOverflow(t *testing.T) {
	p := New(t, Options{Seed: 1})
	small := p.A.CQ(2)
	a, b := p.A.QP(func(o *QPOptions) { o.SendCQ = small }), p.B.QP()
	Connect(a, b)
	dst := p.B.Buffer(8)
	for i := range 4 {
		a.Post(Write(uint64(i), dst.At(0)))
	}
	p.Run(time.Second)
	if a.State() != qp.Err || !small.Failed() || small.Len() != 2 {
		t.Errorf("state %v, %d completions", a.State(), small.Len())
	}
	if len(p.A.Events) != 2 || p.A.Events[0].Type != qp.EventCQErr || p.A.Events[0].CQ != small.CQ ||
		p.A.Events[1].Type != qp.EventQPFatal || p.A.Events[1].QP != a {
		t.Errorf("events %v", p.A.Events)
	}
}

// TestWindows runs the life cycle of a window over the wire.
func TestWindows(t *testing.T) {
	p := New(t, Options{Seed: 1})
	a, b := p.RC()
	src, dst := p.A.Buffer(64), p.B.Buffer(64)
	src.Fill(1)
	mw, err := p.B.NIC.AllocMW(p.B.PD, rocev2.MWType2, nil)
	if err != nil {
		t.Fatal(err)
	}
	rkey := mw.RKey ^ 1
	b.Post(BindMW(1, qp.BindWR{Addr: dst.VA, Length: 64, MRLKey: dst.MR.LKey, MWRKey: mw.RKey, RKey: rkey,
		Access: qp.AccessRemoteWrite}))
	b.WaitSend(1)
	a.Post(Write(2, Remote{dst.VA, rkey}, src.SGE()))
	a.WaitSend(2)
	if !bytes.Equal(src.B, dst.B) {
		t.Error("the write has not arrived")
	}
	b.PostRecv(3)
	a.Post(SendInv(3, rkey))
	if c := b.WaitRecv(3); c.Flags&qp.WCWithInv == 0 || c.Imm != rkey {
		t.Errorf("%+v", c)
	}
	a.WaitSend(3)
	a.Post(Write(4, Remote{dst.VA, rkey}, src.SGE()))
	if c := a.SendCQ.Wait(); c.Status != qp.StatusRemAccessErr {
		t.Errorf("write through a closed window: status %d", c.Status)
	}
}

// lossy applies every kind of link fault to frames.
func lossy(loss float64) Hook {
	return OnlyRoCE(Hooks(Drop(loss), Duplicate(loss, 3*time.Microsecond), Reorder(loss, 20*time.Microsecond), Corrupt(loss)))
}

// run sends messages of random sizes with random operations over a lossy link, and checks every byte. It returns the
// digest.
func run(t *testing.T, seed uint64, loss float64, offload link.Offload) uint64 {
	p := New(t, Options{Seed: seed, Hook: lossy(loss), Offload: offload, Rate: 40e9})
	a, b := p.RC(func(o *QPOptions) { o.PSN = 0xffffff - uint32(seed)%64 })
	const size = 1 << 14
	src, dst := p.A.Buffer(size), p.B.Buffer(size)
	for id := range uint64(30) {
		src.Fill(seed + id)
		n := p.RNG.IntN(size + 1)
		switch p.RNG.IntN(3) {
		case 0:
			b.PostRecv(id, dst.SGE())
			a.Post(Send(id, src.Part(0, n)))
			b.WaitRecv(id)
		case 1:
			a.Post(Write(id, dst.At(0), src.Part(0, n)))
		case 2:
			dst.Fill(seed - id)
			a.Post(Read(id, dst.At(0), src.Part(0, n)))
		}
		a.WaitSend(id)
		if !bytes.Equal(src.B[:n], dst.B[:n]) {
			p.Fatalf("message %d of %d bytes differs", id, n)
		}
	}
	p.RunIdle()
	return p.Digest()
}

func TestLossAndRepeatability(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		for _, o := range []link.Offload{{}, {MaxSegments: 16, MaxBytes: 65535}} {
			t.Run(fmt.Sprintf("seed=%d/segments=%d", seed, o.MaxSegments), func(t *testing.T) {
				if x, y := run(t, seed, 0.02, o), run(t, seed, 0.02, o); x != y {
					t.Errorf("the same seed gives %x and %x", x, y)
				}
			})
		}
	}
}

// TestWhole: the receiver accepts unsegmented super-frames.
func TestWhole(t *testing.T) {
	p := New(t, Options{Seed: 1, Whole: true, Offload: link.Offload{MaxSegments: 40, MaxBytes: 65535}})
	a, _ := p.RC()
	src, dst := p.A.Buffer(1<<20), p.B.Buffer(1<<20)
	src.Fill(1)
	a.Post(Write(1, dst.At(0), src.SGE()))
	a.WaitSend(1)
	if !bytes.Equal(src.B, dst.B) || p.A.sent > 100 {
		t.Errorf("%d frames of %d datagrams", p.A.sent, p.Frames())
	}
}

// TestReadResponsesShareFrames: the LAST response of a READ and the FIRST of the next one, which have an AETH, share a
// super-frame. So READs of 64 KiB in a row need two each, not three.
func TestReadResponsesShareFrames(t *testing.T) {
	const reads, size = 8, 1 << 16
	p := New(t, Options{Seed: 1, Whole: true, Offload: super})
	a, _ := p.RC()
	src, dst := p.B.Buffer(size), p.A.Buffer(size)
	src.Fill(1)
	before := p.B.sent
	for id := range uint64(reads) {
		a.Post(Read(id, src.At(0), dst.SGE()))
	}
	for id := range uint64(reads) {
		a.WaitSend(id)
	}
	if frames := p.B.sent - before; frames >= 3*reads-2 || !bytes.Equal(src.B, dst.B) {
		t.Errorf("%d READs in %d frames", reads, frames)
	}
}

func TestDropNth(t *testing.T) {
	p := New(t, Options{Seed: 1})
	p.SetHook(DropNth(p.A, func(x *bth.Packet) bool { return x.Opcode == bth.OpWriteMiddle }, 1))
	a, _ := p.RC()
	src, dst := p.A.Buffer(8000), p.B.Buffer(8000)
	src.Fill(1)
	a.Post(Write(1, dst.At(0), src.SGE()))
	a.WaitSend(1)
	if p.B.Counter("out_of_sequence") == 0 || !bytes.Equal(src.B, dst.B) {
		t.Error("nothing was lost, or nothing came")
	}
}

// TestDatagramSize: the largest datagram is the path MTU of the port, also after the port has got another MTU.
func TestDatagramSize(t *testing.T) {
	p := New(t, Options{Seed: 1, MTU: 1500})
	a, b, ah, _ := p.UD()
	src, dst := p.A.Buffer(8192), p.B.Buffer(8192)
	for id, mtu := range []int{1500, 4300, 600, 9000} {
		p.check(p.A.NIC.SetLink(p.now, true, mtu))
		p.check(p.B.NIC.SetLink(p.now, true, mtu))
		largest := p.A.NIC.PortAttr().ActiveMTU.Bytes()
		b.PostRecv(uint64(id), dst.SGE())
		a.Post(SendTo(uint64(id), ah.Handle(), b, src.Part(0, largest)))
		a.WaitSend(uint64(id))
		b.WaitRecv(uint64(id))

		a.Post(SendTo(9, ah.Handle(), b, src.Part(0, largest+1)))
		if c := a.SendCQ.Wait(); c.WRID != 9 || c.Status != qp.StatusLocLenErr {
			t.Errorf("MTU %d, %d bytes: %+v", mtu, largest+1, c)
		}
		a.Modify(qp.Attr{State: qp.RTS}, 0, nil) // from SQE
	}
}
