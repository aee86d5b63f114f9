package port

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
)

// kernel is a port whose kernel refuses frames. The last byte of a frame is its number.
type kernel struct {
	memPort
	refuse func(f *link.Frame) error
	tries  int
}

func (k *kernel) Send(now mono.Time, f *link.Frame) error {
	k.tries++
	if err := k.refuse(f); err != nil {
		return err
	}
	return k.memPort.Send(now, f)
}

// numbers returns the numbers of the sent frames.
func (k *kernel) numbers() (out []byte) {
	for _, b := range k.sent {
		out = append(out, b[len(b)-1])
	}
	return out
}

// numbered returns a packet to a queue pair.
func numbered(qpn uint32, number byte) *link.Frame {
	b := roce(0, 0, 40).AppendTo(nil)
	b[49], b[len(b)-1] = byte(qpn), number
	return &link.Frame{Bufs: [][]byte{b}, Len: len(b)}
}

// run calls Recv at each timeout until a time.
func run(b *Backlog, end mono.Time) {
	for b.NextTimeout() <= end {
		_, _, _ = b.Recv(b.NextTimeout(), make([]byte, 100))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const us = mono.Time(time.Microsecond)

// TestRefusedFlow refuses the frames of one queue pair. They are lost after a millisecond, and later ones at once. The frames
// of another queue pair pass meanwhile.
func TestRefusedFlow(t *testing.T) {
	bad := true
	k := &kernel{memPort: memPort{room: -1}}
	k.refuse = func(f *link.Frame) error {
		if bad && flowOf(f) == flowOf(numbered(1, 0)) {
			return ErrRefused
		}
		return nil
	}
	b := NewBacklog(k)
	for i := range byte(3) {
		must(t, b.Send(0, numbered(1, i)))
		must(t, b.Send(0, numbered(2, 10+i)))
	}
	if got := k.numbers(); !slices.Equal(got, []byte{10, 11, 12}) {
		t.Errorf("sent %v, while others wait", got)
	}
	run(b, 990*us)
	if b.Stats().SendDropped != 0 || k.tries > 3+25 {
		t.Errorf("after 0.99 ms: %+v, %d tries", b.Stats(), k.tries)
	}
	run(b, 1100*us)
	if b.Stats().SendDropped != 3 || b.NextTimeout() != mono.Never {
		t.Errorf("after 1.1 ms: %+v, next at %v", b.Stats(), b.NextTimeout())
	}
	tries := k.tries
	must(t, b.Send(1200*us, numbered(1, 3)))
	if b.Stats().SendDropped != 4 || k.tries != tries+1 {
		t.Errorf("a later frame: %+v, %d tries", b.Stats(), k.tries-tries)
	}
	bad = false
	must(t, b.Send(1300*us, numbered(1, 4)))
	bad = true
	must(t, b.Send(1300*us, numbered(1, 5)))
	if got := k.numbers(); got[len(got)-1] != 4 || b.Stats().SendDropped != 4 || b.NextTimeout() == mono.Never {
		t.Errorf("after a frame has passed: %v, %+v", got, b.Stats())
	}
}

// TestRefusedByFullQueue: frames that find a full queue leave in order, and none is lost. Without room the sender waits for the
// timer. The number of tries is bounded.
func TestRefusedByFullQueue(t *testing.T) {
	full := true
	k := &kernel{memPort: memPort{room: -1}}
	k.refuse = func(*link.Frame) error {
		if full {
			return ErrRefused
		}
		return nil
	}
	b := NewBacklog(k)
	var want []byte
	for i := range byte(maxRefused) {
		must(t, b.Send(0, numbered(uint32(i)/4, i)))
		want = append(want, i)
	}
	if err := b.Send(0, numbered(1, 0)); err != ErrLater || !errors.Is(err, ErrAgain) {
		t.Errorf("a full backlog: %v", err)
	}
	k.tries = 0
	run(b, 900*us)
	if k.tries > 18*maxTries {
		t.Errorf("%d tries in 0.9 ms", k.tries)
	}
	full = false
	run(b, 960*us)
	if got := k.numbers(); !slices.Equal(got, want) || b.Stats().SendDropped != 0 || b.NextTimeout() != mono.Never {
		t.Errorf("sent %v, %+v", got, b.Stats())
	}
}

// TestRefusedDatagram: of a super-frame that is sent datagram by datagram, only the refused one is lost.
func TestRefusedDatagram(t *testing.T) {
	var sent []int
	k := &kernel{memPort: memPort{room: -1}}
	k.refuse = func(f *link.Frame) error {
		for ; f.Begun < 4; f.Begun++ {
			if f.Begun == 2 {
				return ErrRefusedPart
			}
			sent = append(sent, f.Begun)
		}
		return nil
	}
	b := NewBacklog(k)
	f := numbered(1, 0)
	f.HdrLen, f.SegSize = f.Len-40, 10
	must(t, b.Send(0, f))
	run(b, 2000*us)
	if fmt.Sprint(sent) != "[0 1 3]" || b.Stats().SendDropped != 1 {
		t.Errorf("sent %v, %+v", sent, b.Stats())
	}
}

// TestRefusedThenDown: frames of a link that goes down are lost. A socket without room keeps them.
func TestRefusedThenDown(t *testing.T) {
	answer := ErrRefused
	k := &kernel{refuse: func(*link.Frame) error { return answer }}
	b := NewBacklog(k)
	must(t, b.Send(0, numbered(1, 0)))
	answer = ErrAgain
	run(b, 3000*us)
	answer = ErrRefused
	run(b, 3500*us)
	if s := b.Stats(); s.SendDropped != 0 {
		t.Errorf("%+v", s)
	}
	answer = ErrDown
	run(b, 3600*us)
	if s := b.Stats(); s.SendDropped != 1 || b.NextTimeout() != mono.Never {
		t.Errorf("%+v", s)
	}
}
