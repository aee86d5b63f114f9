package port

import (
	"encoding/binary"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
)

// joinPorts puts two ports on a switch. Every frame of a goes to b.
func joinPorts(a, b *Faulty, ownerA, ownerB any) (woken *atomic.Int32) {
	woken = &atomic.Int32{}
	a.SetSwitch(func([]byte) any { return b }, ownerA, func() {})
	b.SetSwitch(func([]byte) any { return nil }, ownerB, func() { woken.Add(1) })
	return woken
}

// across returns a frame to the port to.
func across(to *Faulty, psn uint32, segSize, n int) *link.Frame {
	f := roce(psn, segSize, n)
	f.Across = to
	return f
}

// TestInbox has two goroutines send frames of different sizes to the port of a third one. Each frame arrives whole and in
// the order of its sender, or is counted as lost. Memory of the senders that changes afterwards does not matter.
func TestInbox(t *testing.T) {
	const each = 20000
	b, link, _ := faulty(t)
	var senders [2]*Faulty
	for s := range senders {
		senders[s], _, _ = faulty(t)
		joinPorts(senders[s], b, new(int), new(int))
	}
	var all sync.WaitGroup
	for s, a := range senders {
		all.Go(func() {
			for i := range uint32(each) {
				f := across(b, uint32(s)<<20|i, 0, 40+int(i%7)*1000)
				if err := a.Send(0, f); err != nil {
					t.Error(err)
				}
				for _, p := range f.Bufs {
					clear(p)
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	next, got := [2]uint32{}, uint64(0)
	buf := make([]byte, 1<<16)
	for done := false; ; {
		frame, _, err := b.Recv(0, buf)
		if err == ErrAgain && done {
			break
		}
		if err == ErrAgain {
			select {
			case <-ended:
				done = true
			default:
			}
			continue
		}
		psn := psnOf(frame)
		s, i := psn>>20, psn&(1<<20-1)
		if n := len(frame); n != 42+40+int(i%7)*1000 || int(binary.BigEndian.Uint16(frame[16:]))+14 != n || i < next[s] {
			t.Fatalf("frame %d of sender %d, %d bytes, after %d", i, s, n, next[s])
		}
		next[s] = i + 1
		got++
	}
	if lost := b.Stats().Overruns; got+lost != 2*each || got < 100 {
		t.Errorf("%d frames received, %d lost, of %d", got, lost, 2*each)
	}
	if len(link.sent) != 0 {
		t.Error("frames took the link")
	}
}

// TestInboxIsBounded fills the inbox of another owner. Frames beyond it are lost and counted, the sender goes on, and each
// frame in it wakes its owner.
func TestInboxIsBounded(t *testing.T) {
	const size, room = 60 << 10, maxInbox / (42 + 60<<10 + letterCost)
	a, _, _ := faulty(t)
	b, _, _ := faulty(t)
	woken := joinPorts(a, b, new(int), new(int))
	for i := range uint32(room + 10) {
		mustSend(t, a, across(b, i, 0, size))
	}
	if n := b.Stats().Overruns; n != 10 || woken.Load() != room {
		t.Errorf("%d frames lost, owner woken %d times", n, woken.Load())
	}
	if b.NextTimeout() != 0 {
		t.Error("the port does not ask to be polled")
	}
	if psns := drainPSNs(b, 0); len(psns) != room || psns[0] != 0 || psns[room-1] != room-1 {
		t.Errorf("received %v", psns)
	}
	if b.NextTimeout() != mono.Never {
		t.Error("the port asks to be polled although there is nothing")
	}
	kept := 0
	for _, f := range b.inbox.free {
		kept += cap(f)
	}
	if kept > maxFree || kept != b.inbox.spare || b.inbox.bytes != 0 {
		t.Errorf("buffers of %d bytes are kept, %d counted; frames of %d bytes", kept, b.inbox.spare, b.inbox.bytes)
	}
}

// TestInboxReusesBuffers sends windows of super-frames, one after the other. After the first one none allocates.
func TestInboxReusesBuffers(t *testing.T) {
	a, _, _ := faulty(t)
	b, _, _ := faulty(t)
	joinPorts(a, b, new(int), new(int))
	frame, buf := across(b, 1, 4096, 15*4096), make([]byte, 1<<16)
	frames := link.RemoteWindow * 4096 / frame.Len
	window := func() {
		for range frames {
			mustSend(t, a, frame)
		}
		for range frames {
			if _, _, err := b.Recv(0, buf); err != nil {
				t.Fatal(err)
			}
		}
	}
	window()
	if n := testing.AllocsPerRun(5, window); n > float64(frames)/50 {
		t.Errorf("a window of %d super-frames allocates %v times", frames, n)
	}
}

// TestInboxSuperFrames passes super-frames whole, and frame by frame to a port with rules.
func TestInboxSuperFrames(t *testing.T) {
	a, _, _ := faulty(t)
	b, _, _ := faulty(t)
	joinPorts(a, b, new(int), new(int))
	mustSend(t, a, across(b, 1, 1000, 4000))
	buf := make([]byte, 1<<16)
	if frame, seg, err := b.Recv(0, buf); len(frame) != 4042 || seg != 1000 || err != nil {
		t.Errorf("%d bytes in segments of %d, %v", len(frame), seg, err)
	}
	if err := b.SetRules(parseRules(t, "rx drop psn=2")); err != nil {
		t.Fatal(err)
	}
	mustSend(t, a, across(b, 1, 1000, 4000))
	if psns := drainPSNs(b, 0); len(psns) != 3 || psns[1] != 3 {
		t.Errorf("received %v", psns)
	}
}

// TestInboxAndLink floods a port from the link and from the inbox. Neither starves.
func TestInboxAndLink(t *testing.T) {
	const fromLink, fromInbox = 1, 2
	a, _, _ := faulty(t)
	b, _, _ := faulty(t)
	joinPorts(a, b, new(int), new(int))
	b.inner = NewBacklog(quiet{&memPort{}, roce(fromLink, 0, 40).AppendTo(nil)})
	count := map[uint32]int{}
	buf := make([]byte, 128)
	for range 640 {
		f := across(b, fromInbox, 0, 40)
		f.Unsealed = true
		mustSend(t, a, f)
		frame, _, err := b.Recv(0, buf)
		if err != nil {
			t.Fatal(err)
		}
		if b.Unsealed() != (psnOf(frame) == fromInbox) {
			t.Fatalf("frame %d: without ICRCs %v", psnOf(frame), b.Unsealed())
		}
		count[psnOf(frame)]++
	}
	if count[fromLink] < 60 || count[fromInbox] < 60 {
		t.Errorf("%d frames of the link, %d of the inbox", count[fromLink], count[fromInbox])
	}
}

// unplugged is a port without a link.
type unplugged struct{ *memPort }

func (unplugged) State() link.State { return link.State{} }
func (unplugged) Poll(mono.Time)    {}
func (unplugged) Stats() Stats      { return Stats{} }

// TestInboxWithoutLink checks that a port whose link is down receives nothing from other NICs.
func TestInboxWithoutLink(t *testing.T) {
	a, _, _ := faulty(t)
	b, link, _ := faulty(t)
	joinPorts(a, b, new(int), new(int))
	b.inner, link.down = NewBacklog(unplugged{link}), true
	mustSend(t, a, across(b, 1, 0, 40))
	if _, _, err := b.Recv(0, make([]byte, 128)); err != ErrDown || b.FaultStats().SendFailed != 1 {
		t.Errorf("%v, %d frames dropped", err, b.FaultStats().SendFailed)
	}
}

// TestInboxAllocations sends and receives frames without an allocation.
func TestInboxAllocations(t *testing.T) {
	a, _, _ := faulty(t)
	b, _, _ := faulty(t)
	joinPorts(a, b, new(int), new(int))
	small, large := across(b, 1, 0, 100), across(b, 1, 4000, 60000)
	buf := make([]byte, 1<<16)
	run := func() {
		for _, f := range []*link.Frame{small, large, small} {
			if err := a.Send(0, f); err != nil {
				t.Error(err)
			}
		}
		for range 3 {
			if _, _, err := b.Recv(0, buf); err != nil {
				t.Error(err)
			}
		}
	}
	for range 10 {
		run()
	}
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestInboxWithoutMemory: a frame without ICRCs whose data have gone is lost. With an ICRC it would arrive with a wrong one.
func TestInboxWithoutMemory(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	fd, err := unix.MemfdCreate("gone", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	gone, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED) // beyond the end of the file
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(gone) }()
	a, _, _ := faulty(t)
	b, _, _ := faulty(t)
	joinPorts(a, b, new(int), new(int))
	for _, unsealed := range []bool{true, false} {
		f := across(b, 1, 0, 40)
		f.Bufs, f.Len, f.Unsealed = append(f.Bufs, gone), f.Len+len(gone), unsealed
		if err := a.Send(0, f); err != nil {
			t.Fatal(err)
		}
		if got := !b.inbox.empty(); got == unsealed {
			t.Errorf("without ICRC %v: arrived %v", unsealed, got)
		}
	}
}
