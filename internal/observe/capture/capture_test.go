package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"roced.io/roced/internal/observe/pcapng"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// frames reads all frames of a file.
func frames(t testing.TB, r io.Reader) (out []pcapng.Frame) {
	t.Helper()
	rd, err := pcapng.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	for {
		var f pcapng.Frame
		err := rd.Next(&f)
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		f.Data = bytes.Clone(f.Data)
		out = append(out, f)
	}
}

func frameOf(n int, tag byte) []byte { return bytes.Repeat([]byte{tag}, n) }

func TestCaptureFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pcapng")
	c, err := Start(Config{File: path, Interface: "roce_a", SnapLen: 100, WallOffset: 1000 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	c.Frame(1, link.Rx, frameOf(60, 1), "")
	c.Frame(2, link.Tx, frameOf(4000, 2), "fault: drop (x)")
	waitFor(t, "the file", func() bool { return c.Stats().Written == 2 && c.Stats().Bytes > 200 })
	c.Frame(3, link.Tx, frameOf(100, 3), "")
	s, err := c.Stop()
	if err != nil || s.Written != 3 || s.Lost != 0 || s.Err != nil {
		t.Fatalf("%+v, %v", s, err)
	}
	c.Frame(4, link.Tx, frameOf(100, 3), "after the end")
	if s2, err := c.Stop(); s2 != s || err != nil {
		t.Fatal("a second Stop differs")
	}
	data, err := os.ReadFile(path)
	if err != nil || int64(len(data)) != s.Bytes {
		t.Fatalf("%d bytes, stats say %d, %v", len(data), s.Bytes, err)
	}
	got := frames(t, bytes.NewReader(data))
	want := []struct {
		n, length int
		dir       pcapng.Direction
		comment   string
	}{{60, 60, pcapng.Inbound, ""}, {100, 4000, pcapng.Outbound, "fault: drop (x)"}, {100, 100, pcapng.Outbound, ""}}
	if len(got) != len(want) {
		t.Fatalf("%d frames", len(got))
	}
	for i, w := range want {
		g := got[i]
		if !bytes.Equal(g.Data, frameOf(w.n, byte(i+1))) || g.Length != w.length || g.Direction != w.dir || g.Comment != w.comment || g.Time != 1000e9+int64(i+1) {
			t.Errorf("frame %d: %d of %d bytes, %v %q at %d", i, len(g.Data), g.Length, g.Direction, g.Comment, g.Time)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm()&0o077 != 0 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

// TestKeep: of many frames, a bounded capture keeps the newest ones in two complete files.
func TestKeep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pcapng")
	const keep, size, count = 1 << 20, 4096, 1000
	c, err := Start(Config{File: path, Interface: "roce_a", Keep: keep})
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(count) {
		c.Frame(mono.Time(i), link.Rx, frameOf(size, byte(i)), "")
		waitFor(t, "the frame", func() bool { return c.Stats().Written == i+1 })
	}
	if s, err := c.Stop(); err != nil || s.Written != count || s.Lost != 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	var kept []pcapng.Frame
	for _, name := range []string{Older(path), path} {
		data, err := os.ReadFile(name)
		if err != nil || len(data) > keep/2+1024 {
			t.Fatalf("%s: %d bytes, %v", name, len(data), err)
		}
		kept = append(kept, frames(t, bytes.NewReader(data))...)
	}
	for i, f := range kept {
		if want := int64(count - len(kept) + i); f.Time != want {
			t.Fatalf("frame %d of %d has time %d, want %d", i, len(kept), f.Time, want)
		}
	}
	if len(kept) < keep/2/(size+100) {
		t.Errorf("%d frames are kept", len(kept))
	}
}

func waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// slowFile is a file whose writes block until it is opened.
type slowFile struct {
	bytes.Buffer
	gate sync.Mutex
	fail error
}

func (f *slowFile) Write(b []byte) (int, error) {
	f.gate.Lock()
	defer f.gate.Unlock()
	if f.fail != nil {
		return 0, f.fail
	}
	return f.Buffer.Write(b)
}

func (f *slowFile) Close() error { return nil }

// TestCaptureLosesLoudly blocks the file until the ring is full.
func TestCaptureLosesLoudly(t *testing.T) {
	f := &slowFile{}
	c, err := start(Config{RingBytes: minRing, Interface: "a"}, f)
	if err != nil {
		t.Fatal(err)
	}
	f.gate.Lock()
	n := 0
	for ; c.Stats().Lost < 10; n++ {
		c.Frame(mono.Time(n), link.Tx, frameOf(9000, 7), "x")
	}
	f.gate.Unlock()
	waitFor(t, "room", func() bool { return c.ring.used() == 0 })
	c.Frame(99, link.Tx, frameOf(60, 8), "y")
	c.Frame(99, link.Tx, frameOf(60, 9), "")
	s, err := c.Stop()
	if err != nil || s.Lost < 10 || s.Written+s.Lost != uint64(n+2) {
		t.Fatalf("%+v of %d, %v", s, n+2, err)
	}
	got := frames(t, bytes.NewReader(f.Bytes()))
	lost := 0
	for _, g := range got {
		var k int
		if _, err := fmt.Sscanf(g.Comment, "capture: %d frames lost before this one; ", &k); err == nil {
			lost += k
		}
	}
	if uint64(len(got)) != s.Written || uint64(lost) != s.Lost {
		t.Errorf("file has %d frames and tells of %d lost; %+v", len(got), lost, s)
	}
	if !strings.Contains(f.String(), fmt.Sprintf("%d of %d frames were lost by the capture", s.Lost, n+2)) {
		t.Error("no statistics in the file")
	}
}

func TestCaptureWriteError(t *testing.T) {
	f := &slowFile{}
	told := make(chan error, 2)
	c, err := start(Config{Failed: func(err error) { told <- err }}, f)
	if err != nil {
		t.Fatal(err)
	}
	f.gate.Lock()
	f.fail = errors.New("disk full")
	f.gate.Unlock()
	c.Frame(1, link.Tx, frameOf(60, 1), "")
	if err := <-told; !errors.Is(err, f.fail) { // before the capture is stopped
		t.Errorf("told %v", err)
	}
	waitFor(t, "the error", func() bool { return c.Stats().Err != nil })
	c.Frame(2, link.Tx, frameOf(60, 1), "")
	s, err := c.Stop()
	if !errors.Is(err, f.fail) || s.Lost != 2 || s.Written != 0 || len(told) != 0 {
		t.Errorf("%+v, %v, told %d times more", s, err, len(told))
	}
	if _, err := start(Config{}, f); err == nil {
		t.Error("started on a file that takes nothing")
	}
	if _, err := Start(Config{File: "/none/x"}); err == nil {
		t.Error("started without a file")
	}
}

// TestFullDisk: the file of a capture on a full disk ends with a complete packet, and the counters are those of the file.
func TestFullDisk(t *testing.T) {
	for _, room := range []int64{500, 1000, 3210} {
		name := filepath.Join(t.TempDir(), "full.pcapng")
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		c, err := start(Config{}, &fullFile{f, room})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			c.Frame(mono.Time(i), link.Tx, frameOf(60+i, 1), "")
		}
		s, err := c.Stop()
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("room for %d: %v", room, err)
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := pcapng.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		n := uint64(0)
		for f := (pcapng.Frame{}); err == nil; n++ {
			err = r.Next(&f)
		}
		if n--; err != io.EOF || n != s.Written || s.Bytes != int64(len(b)) || s.Written+s.Lost != 100 {
			t.Errorf("room for %d: %d packets in %d bytes, %v; %+v", room, n, len(b), err, s)
		}
	}
}

// fullFile is a file on a disk with room for so many bytes.
type fullFile struct {
	*os.File
	room int64
}

func (f *fullFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b[:min(int64(len(b)), f.room)])
	if f.room -= int64(n); err == nil && n < len(b) {
		err = unix.ENOSPC
	}
	return n, err
}

func TestCaptureLimit(t *testing.T) {
	f := &slowFile{}
	c, err := start(Config{MaxBytes: 10000}, f)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		c.Frame(mono.Time(i), link.Rx, frameOf(1000, 1), "")
	}
	s, err := c.Stop()
	if err != nil || !errors.Is(s.Err, ErrFull) || s.Written+s.Lost != 20 || s.Bytes > 10200 || s.Written < 8 {
		t.Fatalf("%+v, %v", s, err)
	}
	if n := len(frames(t, &f.Buffer)); uint64(n) != s.Written {
		t.Errorf("%d frames", n)
	}
}

// TestRing compares the ring with a list.
func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &ring{buf: make([]byte, 1024)}
		var model [][]byte
		var lost, seen uint64
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "put") {
				f := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "frame")
				before := r.lost.Load()
				r.put(1, link.Tx, f, 200, "c")
				if r.lost.Load() == before {
					model = append(model, f)
				} else {
					lost++
				}
				continue
			}
			var rec record
			if r.get(&rec) != (len(model) > 0) {
				t.Fatal("emptiness")
			}
			if len(model) == 0 {
				continue
			}
			f := model[0]
			model = model[1:]
			if !bytes.Equal(rec.frame, f[:min(len(f), 200)]) || rec.length != len(f) || string(rec.comment) != "c" || rec.kind != kindTx {
				t.Fatal("record differs")
			}
			seen += rec.lost
			r.release(&rec)
		}
		if r.lost.Load() != lost || seen > lost {
			t.Fatalf("lost %d, told %d, seen %d", lost, r.lost.Load(), seen)
		}
		if len(model) == 0 && lost > 0 && r.gap+seen != lost {
			t.Fatal("losses do not add up")
		}
	})
}

// TestCaptureUnderLoad runs the producer and the writer concurrently.
func TestCaptureUnderLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pcapng")
	c, err := Start(Config{File: path, RingBytes: minRing})
	if err != nil {
		t.Fatal(err)
	}
	const n = 20000
	b := make([]byte, 400)
	for i := range n {
		binary.BigEndian.PutUint32(b, uint32(i))
		c.Frame(mono.Time(i), link.Rx, b[:60+i%300], "")
	}
	s, err := c.Stop()
	if err != nil || s.Written+s.Lost != n {
		t.Fatalf("%+v, %v", s, err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	last := -1
	for _, g := range frames(t, f) {
		i := int(binary.BigEndian.Uint32(g.Data))
		if i <= last || len(g.Data) != 60+i%300 {
			t.Fatalf("frame %d after %d, %d bytes", i, last, len(g.Data))
		}
		last = i
	}
	t.Logf("%+v", s)
}

func TestFrameAllocations(t *testing.T) {
	c, err := start(Config{}, &slowFile{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	f := frameOf(1000, 1)
	if n := testing.AllocsPerRun(1000, func() { c.ring.put(1, link.Tx, f, c.snap, "x") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Close() error                { return nil }

func BenchmarkFrame(b *testing.B) {
	c, err := start(Config{}, discard{})
	if err != nil {
		b.Fatal(err)
	}
	f := frameOf(4194, 1)
	b.SetBytes(int64(len(f)))
	b.ReportAllocs()
	for b.Loop() {
		c.Frame(1, link.Tx, f, "")
	}
	s, _ := c.Stop()
	b.ReportMetric(100*float64(s.Lost)/float64(s.Lost+s.Written), "%lost")
}
