package port

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/fault"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
)

// memPort is a port that is connected to the test.
type memPort struct {
	sent    [][]byte
	toRecv  []super
	room    int // number of frames that Send accepts; negative: no limit
	down    bool
	offload link.Offload
}

type super struct {
	frame   []byte
	segSize int
}

func (m *memPort) Send(_ mono.Time, f *link.Frame) error {
	if m.down {
		return ErrDown
	}
	if m.room == 0 {
		return ErrAgain
	}
	m.room--
	m.sent = append(m.sent, f.AppendTo(nil))
	return nil
}

func (m *memPort) Recv(_ mono.Time, buf []byte) (frame []byte, segSize int, err error) {
	if m.down {
		return nil, 0, ErrDown
	}
	if len(m.toRecv) == 0 {
		return nil, 0, ErrAgain
	}
	s := m.toRecv[0]
	m.toRecv = m.toRecv[1:]
	return buf[:copy(buf, s.frame)], s.segSize, nil
}

func (m *memPort) NextTimeout() mono.Time { return mono.Never }
func (m *memPort) FD() int                { return 3 }
func (m *memPort) Offload() link.Offload  { return m.offload }
func (m *memPort) Close() error           { return nil }

// notes is an observer that records its calls.
type notes []string

func (n *notes) Frame(_ mono.Time, d link.Direction, frame []byte, comment string) {
	*n = append(*n, fmt.Sprintf("%s %d %s", [...]string{"rx", "tx"}[d], len(frame), comment))
}

func parseRules(t interface{ Fatal(...any) }, texts ...string) (out []fault.Rule) {
	for _, s := range texts {
		r, err := fault.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func faulty(t testing.TB, rules ...string) (*Faulty, *memPort, *notes) {
	t.Helper()
	m := &memPort{room: -1, offload: link.Offload{MaxSegments: 64, MaxBytes: 65535}}
	n := &notes{}
	f := NewFaulty(m, n)
	if err := f.SetRules(parseRules(t, rules...)); err != nil {
		t.Fatal(err)
	}
	return f, m, n
}

// roce returns a RoCEv2 frame with n bytes of UDP payload, or a super-frame whose segments have consecutive PSNs.
func roce(psn uint32, segSize, n int) *link.Frame {
	const hdrLen = 14 + 20 + 8
	b := make([]byte, hdrLen+n)
	copy(b, "\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x08\x00\x45\x00\x00\x00\x00\x00\x40\x00\x40\x11\x00\x00\xc6\x12\x00\x01\xc6\x12\x00\x02")
	binary.BigEndian.PutUint16(b[16:], uint16(hdrLen-14+n))
	binary.BigEndian.PutUint16(b[34:], 0xc123)
	binary.BigEndian.PutUint16(b[36:], 4791)
	binary.BigEndian.PutUint16(b[38:], uint16(8+n))
	for i := range link.Segments(b, segSize) {
		binary.BigEndian.PutUint32(b[hdrLen+i*segSize+8:], psn+uint32(i))
	}
	return &link.Frame{Bufs: [][]byte{b[:hdrLen], b[hdrLen:]}, Len: len(b), HdrLen: hdrLen, SegSize: segSize}
}

func mustSend(t *testing.T, f *Faulty, fr *link.Frame) {
	t.Helper()
	if err := f.Send(0, fr); err != nil {
		t.Fatal(err)
	}
}

func psnOf(frame []byte) uint32 { return binary.BigEndian.Uint32(frame[42+8:]) }

// drainPSNs receives all frames and returns their PSNs.
func drainPSNs(f *Faulty, now mono.Time) (out []uint32) {
	buf := make([]byte, 1<<17)
	for {
		frame, seg, err := f.Recv(now, buf)
		if err != nil {
			return out
		}
		for i := range link.Segments(frame, seg) {
			out = append(out, psnOf(link.Segment(nil, frame, seg, i)))
		}
	}
}

func TestFaultyWithoutRules(t *testing.T) {
	f, m, _ := faulty(t)
	sf := roce(1, 100, 450)
	mustSend(t, f, sf)
	if len(m.sent) != 1 || !bytes.Equal(m.sent[0], sf.AppendTo(nil)) || f.Offload() != m.offload || f.FD() != 3 {
		t.Fatal("not handed through")
	}
	m.toRecv = []super{{sf.AppendTo(nil), 100}}
	buf := make([]byte, 1<<17)
	if frame, seg, err := f.Recv(0, buf); len(frame) != sf.Len || seg != 100 || err != nil {
		t.Fatal(len(frame), seg, err)
	}
	if !f.State().Up || f.Stats() != (Stats{}) {
		t.Error("state of a port that cannot tell")
	}
}

func TestFaultyCutsSuperFrames(t *testing.T) {
	f, m, n := faulty(t, "both drop psn=12 name=gap")
	if f.Offload() != (link.Offload{Faults: true}) {
		t.Error("super-frames are asked for")
	}
	sf := roce(10, 100, 450)
	mustSend(t, f, sf)
	flat := sf.AppendTo(nil)
	want := []int{0, 1, 3, 4}
	for i, b := range m.sent {
		if !bytes.Equal(b, link.Segment(nil, flat, 100, want[i])) {
			t.Errorf("frame %d is not segment %d", i, want[i])
		}
	}
	m.toRecv = []super{{flat, 100}, {roce(20, 0, 40).AppendTo(nil), 0}}
	if got := drainPSNs(f, 0); len(m.sent) != 4 || fmt.Sprint(got) != "[10 11 13 14 20]" {
		t.Fatalf("sent %d, received %v", len(m.sent), got)
	}
	if s := strings.Join(*n, "\n"); s != "tx 142 fault: drop (gap)\nrx 142 fault: drop (gap)" {
		t.Error(s)
	}
	st := f.FaultStats()
	if st.Frames != 11 || st.Rules[0].Hit != 2 || st.SendFailed != 0 {
		t.Errorf("%+v", st)
	}
}

// TestFaultyShowsSentFramesOnce: the observer sees each frame that the NIC has not shown once, as the rules have left it.
func TestFaultyShowsSentFramesOnce(t *testing.T) {
	f, m, n := faulty(t, "tx drop psn=2 name=gap", "tx duplicate psn=3 name=twice", "tx delay 1ms psn=4 name=late")
	for psn := range uint32(5) {
		fr := roce(psn, 0, 40)
		fr.Unseen = true
		mustSend(t, f, fr)
	}
	drainPSNs(f, mono.Time(time.Second))
	fr := roce(5, 0, 40)
	fr.Unseen = true // handed over before the rules went
	if err := f.SetRules(nil); err != nil {
		t.Fatal(err)
	}
	mustSend(t, f, fr)
	want := "tx 82 \ntx 82 \ntx 82 fault: drop (gap)\ntx 82 fault: duplicate (twice)\ntx 82 fault: delay (late)\ntx 82 "
	if got := strings.Join(*n, "\n"); got != want || len(m.sent) != 6 {
		t.Errorf("%d frames sent, shown:\n%s", len(m.sent), got)
	}
}

// TestFaultyTrims: the port passes on a trimmed packet of MRC, the observer sees it, and the counters tell it from others.
func TestFaultyTrims(t *testing.T) {
	f, m, n := faulty(t, "both trim 16 name=hop")
	fr := roce(5, 0, 200)
	fr.Bufs[1][0] = byte(bth.TransportMRC | bth.OpWriteFirst)
	mustSend(t, f, fr)
	mustSend(t, f, roce(6, 0, 200))
	m.toRecv = []super{{fr.AppendTo(nil), 0}}
	buf := make([]byte, 1<<17)
	got, _, err := f.Recv(0, buf)
	if err != nil || len(m.sent) != 2 || len(m.sent[1]) != 242 || !bytes.Equal(m.sent[0], got) {
		t.Fatalf("%v, sent %x, received %x", err, m.sent, got)
	}
	var p bth.Packet
	if err := p.Decode(got[42:]); err != bth.ErrTrimmed || p.PSN != bth.MakePSN(5) || got[15] != bth.MRCDSCPTrimmedLastHop<<2 {
		t.Errorf("%v: %x", err, got)
	}
	if s := strings.Join(*n, "\n"); s != "tx 58 fault: trim (hop)\nrx 58 fault: trim (hop)" {
		t.Error(s)
	}
	if r := f.FaultStats().Rules[0]; r.Matched != 3 || r.Hit != 2 {
		t.Errorf("%+v", r)
	}
}

// TestFaultyOnOwnTraffic: the rules act on frames of the NIC to itself as they leave and as they arrive. The link need
// not be up.
func TestFaultyOnOwnTraffic(t *testing.T) {
	f, m, n := faulty(t, "tx drop psn=2 name=a", "rx drop psn=3 name=b", "both duplicate psn=4 name=c", "tx delay 1ms psn=5 name=d")
	m.down = true
	var got []uint32
	for psn := range uint32(7) {
		fr := roce(psn, 0, 40)
		copy(fr.Bufs[0], fr.Bufs[0][6:12])
		if err := f.Send(0, fr); err == ErrAgain {
			t.Fatalf("no room for frame %d", psn)
		}
		if psn != 2 && psn != 5 && f.NextTimeout() != 0 {
			t.Errorf("nothing is due after frame %d", psn)
		}
		got = append(got, drainPSNs(f, 0)...)
	}
	got = append(got, drainPSNs(f, mono.Time(time.Second))...)
	if s := fmt.Sprint(got); s != "[0 1 4 4 4 4 6 5]" || len(m.sent) != 0 {
		t.Errorf("received %s, %d frames on the link", s, len(m.sent))
	}
	want := "tx 82 fault: drop (a)\nrx 82 fault: drop (b)\ntx 82 fault: duplicate (c)\nrx 82 fault: duplicate (c)\n" +
		"rx 82 fault: duplicate (c)\ntx 82 fault: delay (d)"
	if s := strings.Join(*n, "\n"); s != want {
		t.Error(s)
	}
}

// TestFaultySwitch passes frames to the port of another NIC of the switch and of the same owner, under the rules of both.
// A frame without room waits.
func TestFaultySwitch(t *testing.T) {
	a, link, _ := faulty(t, "tx duplicate count=1 any")
	b, _, notes := faulty(t, "rx drop count=1 any")
	owner := new(int)
	joinPorts(a, b, owner, owner)
	send := func() error { return a.Send(1, roce(1, 0, 8000)) }
	buf := make([]byte, 9000)
	if err := send(); err != nil {
		t.Fatal(err)
	}
	if frame, _, err := b.Recv(1, buf); len(frame) != 8042 || err != nil {
		t.Errorf("%d bytes, %v", len(frame), err)
	}
	if _, _, err := b.Recv(1, buf); err != ErrAgain {
		t.Error(err)
	}
	if got := strings.Join(*notes, ","); got != "rx 8042 fault: drop (rx drop any count=1)" {
		t.Error(got)
	}
	const room = maxInbox / (8042 + letterCost)
	n := 0
	for err := error(nil); err == nil && n < 2*room; n++ {
		err = send()
	}
	if n-1 != room+1 { // the last one waits in a
		t.Errorf("%d frames without room", n-1)
	}
	if b.NextTimeout() != 0 || a.NextTimeout() == mono.Never {
		t.Error("no port wants to be polled")
	}
	for range room + 1 {
		if frame, _, err := b.Recv(1, buf); len(frame) != 8042 || err != nil {
			t.Fatalf("%d bytes, %v", len(frame), err)
		}
		a.flush(1)
	}
	if len(link.sent) != 0 || b.Stats().Overruns != 0 {
		t.Errorf("%d frames took the link, %d are lost", len(link.sent), b.Stats().Overruns)
	}
}

func TestFaultyDelaysBothWays(t *testing.T) {
	f, m, _ := faulty(t, "both delay 1ms psn=5")
	for p := range uint32(3) {
		if err := f.Send(100, roce(4+p, 0, 40)); err != nil {
			t.Fatal(err)
		}
		m.toRecv = append(m.toRecv, super{roce(4+p, 0, 40).AppendTo(nil), 0})
	}
	if got := drainPSNs(f, 100); fmt.Sprint(got) != "[4 6]" || len(m.sent) != 2 {
		t.Fatalf("%v, sent %d", got, len(m.sent))
	}
	due := mono.Time(100).Add(time.Millisecond)
	if f.NextTimeout() != due || len(drainPSNs(f, due-1)) != 0 {
		t.Fatalf("next %v", f.NextTimeout())
	}
	if got := drainPSNs(f, due); fmt.Sprint(got) != "[5]" || len(m.sent) != 3 || psnOf(m.sent[2]) != 5 {
		t.Fatalf("%v, sent %d", got, len(m.sent))
	}
	if f.NextTimeout() != mono.Never {
		t.Error("something is left")
	}
}

// TestFaultyWithoutRoom fills the port in the middle of duplicates. No rule applies twice, and no frame is lost.
func TestFaultyWithoutRoom(t *testing.T) {
	f, m, _ := faulty(t, "tx duplicate 3 psn=1")
	m.room = 2
	if err := f.Send(0, roce(1, 0, 40)); err != nil {
		t.Fatal(err)
	}
	if f.NextTimeout() != mono.Time(faultyRetry) {
		t.Errorf("retry at %v", f.NextTimeout())
	}
	if err := f.Send(1, roce(2, 0, 40)); !errors.Is(err, ErrAgain) {
		t.Fatalf("%v, want ErrAgain", err)
	}
	m.room = -1
	drainPSNs(f, 2)
	if len(m.sent) != 4 || f.NextTimeout() != mono.Never {
		t.Fatalf("sent %d", len(m.sent))
	}
	if err := f.Send(3, roce(2, 0, 40)); err != nil || len(m.sent) != 5 {
		t.Fatal(err)
	}
}

func TestFaultyLinkDown(t *testing.T) {
	f, m, _ := faulty(t, "tx duplicate 3 psn=1", "both delay 1ms psn=2")
	f.Send(0, roce(2, 0, 40))
	m.room = 1
	f.Send(0, roce(1, 0, 40))
	m.down = true
	if err := f.Send(1, roce(3, 0, 40)); !errors.Is(err, ErrDown) {
		t.Fatalf("%v, want ErrDown", err)
	}
	if _, _, err := f.Recv(1, make([]byte, 2000)); !errors.Is(err, ErrDown) {
		t.Fatalf("%v, want ErrDown", err)
	}
	m.down, m.room = false, -1
	drainPSNs(f, mono.Time(time.Second))
	if len(m.sent) != 2 || f.FaultStats().SendFailed != 3 || f.FaultStats().Held != 0 {
		t.Errorf("sent %d, stats %+v", len(m.sent), f.FaultStats())
	}
}

func TestFaultyRulesAtRunTime(t *testing.T) {
	f, m, _ := faulty(t, "both delay 1s")
	f.Send(0, roce(1, 0, 40))
	m.toRecv = []super{{roce(7, 0, 40).AppendTo(nil), 0}}
	drainPSNs(f, 0)
	if err := f.SetRules(nil); err != nil {
		t.Fatal(err)
	}
	if f.NextTimeout() != 0 {
		t.Error("held frames are not due")
	}
	if got := drainPSNs(f, 1); fmt.Sprint(got) != "[7]" || len(m.sent) != 1 || f.Offload() != m.offload {
		t.Fatalf("%v, sent %d, %+v", got, len(m.sent), f.Offload())
	}
	if err := f.SetRules([]fault.Rule{{}}); err == nil {
		t.Error("bad rule accepted")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// traffic records the PSNs that have entered a faulty port from both sides.
type traffic struct {
	f             *Faulty
	m             *memPort
	psn           uint32
	sent, arrived []uint32
	got           []uint32
}

// step sends or delivers a frame or super-frame of segs segments.
func (w *traffic) step(now mono.Time, send bool, segs int) {
	fr := roce(w.psn, 20*min(segs-1, 1), 20*segs)
	var psns []uint32
	for range segs {
		psns = append(psns, w.psn)
		w.psn++
	}
	if !send {
		w.m.toRecv = append(w.m.toRecv, super{fr.AppendTo(nil), fr.SegSize})
		w.arrived = append(w.arrived, psns...)
	} else if w.f.Send(now, fr) == nil {
		w.sent = append(w.sent, psns...)
	}
}

// left returns the PSNs that the port has sent.
func (w *traffic) left() (out []uint32) {
	for _, b := range w.m.sent {
		for i := range link.Segments(b, 20) {
			out = append(out, psnOf(link.Segment(nil, b, 20, i)))
		}
	}
	return out
}

// TestFaultyConserves sends frames and super-frames through lossless rules over a port with little room.
func TestFaultyConserves(t *testing.T) {
	pool := []string{"both delay 1ms p=0.3", "both reorder 2 p=0.3 seed=3", "tx delay 10us", "rx ecn", "rx reorder 7 100us psn=+1..5"}
	rapid.Check(t, func(t *rapid.T) {
		m := &memPort{}
		w := &traffic{f: NewFaulty(m, nil), m: m}
		rules := rapid.SliceOfN(rapid.SampledFrom(pool), 0, 3).Draw(t, "rules")
		if err := w.f.SetRules(parseRules(t, rules...)); err != nil {
			t.Fatal(err)
		}
		var now mono.Time
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			m.room = rapid.IntRange(0, 4).Draw(t, "room")
			w.step(now, rapid.Bool().Draw(t, "send"), rapid.IntRange(1, 5).Draw(t, "segments"))
			now += mono.Time(rapid.IntRange(0, 2000).Draw(t, "us") * 1000)
			if rapid.Bool().Draw(t, "recv") {
				w.got = append(w.got, drainPSNs(w.f, now)...)
			}
		}
		m.room = -1
		for range 1000 {
			w.got = append(w.got, drainPSNs(w.f, now)...)
			if w.f.NextTimeout() == mono.Never {
				break
			}
			now = max(now, w.f.NextTimeout())
		}
		sameSet(t, "sent", w.sent, w.left())
		sameSet(t, "received", w.arrived, w.got)
	})
}

func sameSet(t *rapid.T, what string, want, got []uint32) {
	seen := map[uint32]int{}
	for _, p := range got {
		seen[p]++
	}
	for _, p := range want {
		if seen[p] != 1 {
			t.Fatalf("%s: PSN %d %d times", what, p, seen[p])
		}
	}
	if len(want) != len(got) {
		t.Fatalf("%s: %d of %d", what, len(got), len(want))
	}
}

func TestFaultyAllocations(t *testing.T) {
	for _, rules := range [][]string{nil, {"both drop p=0.1", "both duplicate p=0.1", "tx delay 1us p=0.1"}} {
		f, m, _ := faulty(t, rules...)
		fr, raw := roce(1, 0, 1000), roce(1, 0, 1000).AppendTo(nil)
		f.SetObserver(nil)
		f.inner = NewBacklog(quiet{m, raw})
		buf := make([]byte, 1<<17)
		now := mono.Time(0)
		run := func() {
			now += 1000
			if err := f.Send(now, fr); err != nil {
				t.Error(err)
			}
			for range 4 {
				f.Recv(now, buf)
			}
		}
		for range 1000 {
			run()
		}
		if n := testing.AllocsPerRun(500, run); n != 0 {
			t.Errorf("%v: %v allocations", rules, n)
		}
	}
}

// quiet is a port that accepts all frames and always has a frame to receive.
type quiet struct {
	*memPort
	frame []byte
}

func (quiet) Send(mono.Time, *link.Frame) error { return nil }

func (q quiet) Recv(mono.Time, []byte) ([]byte, int, error) { return q.frame, 0, nil }
