package bottleneck

import (
	"math"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// Length of the frames, and values of TOS.
const (
	frameLen = 1000
	ect0     = 2
	ce       = 3
	lost     = 7 // TC_ACT_REDIRECT, to an interface that does not exist
)

// frame returns a UDP datagram over IPv4. It is RoCEv2 if the port is 4791.
func frame(tos byte, port uint16) []byte {
	b := make([]byte, frameLen)
	b[12], b[14], b[15], b[22], b[23] = 8, 0x45, tos, 64, 17
	b[16], b[17] = (frameLen-14)>>8, (frameLen-14)&0xff
	b[36], b[37] = byte(port>>8), byte(port)
	b[38], b[39] = (frameLen-34)>>8, (frameLen-34)&0xff
	return b
}

// skb is the first part of struct __sk_buff in linux/bpf.h, up to the fields that a test can set.
type skb struct {
	_      [38]uint32
	Tstamp uint64
	Wire   uint32
	Segs   uint32
	_      [8]uint32
}

// bench is a program with a test clock.
type bench struct {
	t *testing.T
	*Program
}

func newBench(t *testing.T, words string) *bench {
	t.Helper()
	o, err := Parse(strings.Fields(words))
	if err != nil {
		t.Fatal(err)
	}
	set := o.compile()
	set.TestClock = 1
	p, err := load(&o, set)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return &bench{t, p}
}

// send passes a frame to the program at a time in nanoseconds.
func (b *bench) send(now uint64, data []byte) (dropped bool, tos byte) {
	b.t.Helper()
	opts := &ebpf.RunOptions{Data: data, DataOut: make([]byte, len(data)), Context: skb{Tstamp: now}}
	answer, err := b.objs.Bottleneck.Run(opts)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer == lost, opts.DataOut[15]
}

// put sets the length of the virtual queue at a time, in bytes. A byte takes 8 ns.
func (b *bench) put(now, bytes uint64) {
	b.t.Helper()
	var s bottleneckState
	if err := b.objs.States.LookupWithFlags(uint32(0), &s, ebpf.LookupLock); err != nil {
		b.t.Fatal(err)
	}
	s.Empty = now + 8*bytes
	if err := b.objs.States.Put(uint32(0), &s); err != nil {
		b.t.Fatal(err)
	}
}

// TestMarkingCurve measures the share of marked ECN-capable frames, and of dropped other frames, as a function of the queue
// length.
func TestMarkingCurve(t *testing.T) {
	const runs = 1500
	for _, c := range []struct {
		queue uint64
		want  float64
	}{{0, 0}, {39999, 0}, {40000, 0}, {80000, 0.05}, {120000, 0.1}, {160000, 0.15}, {199999, 0.2}, {200000, 1}, {300000, 1}} {
		marked, dropped := 0, 0
		b := newBench(t, "rate=1gbit burst=10k kmin=40000 kmax=200000 pmax=0.2 limit=400000 seed=11")
		now := uint64(1e12)
		for range runs {
			b.put(now, c.queue)
			if d, tos := b.send(now, frame(ect0, 4791)); d {
				t.Fatalf("queue %d: a frame that declares ECN is dropped", c.queue)
			} else if tos == ce {
				marked++
			}
			b.put(now, c.queue)
			if d, tos := b.send(now, frame(0, 4791)); d {
				dropped++
			} else if tos != 0 {
				t.Fatalf("queue %d: a frame without ECN leaves with TOS %d", c.queue, tos)
			}
		}
		// Five standard deviations; the seed is fixed, so this is stable.
		slack := 5 * math.Sqrt(c.want*(1-c.want)/runs)
		for what, n := range map[string]int{"marked": marked, "dropped": dropped} {
			if share := float64(n) / runs; math.Abs(share-c.want) > slack {
				t.Errorf("queue %d: %.3f are %s, want %.3f", c.queue, share, what, c.want)
			}
		}
		s, err := b.Stats()
		if err != nil {
			t.Fatal(err)
		}
		if s.Marked != uint64(marked) || s.Dropped != uint64(dropped) || s.Frames != uint64(2*runs-dropped) {
			t.Errorf("queue %d: counters %+v, want %d marked and %d dropped", c.queue, s, marked, dropped)
		}
	}
}

// TestQueue runs a script against the token bucket at 1 Gbit/s: 1000 bytes take 8 us.
func TestQueue(t *testing.T) {
	b := newBench(t, "rate=1gbit burst=10000 kmin=3000 kmax=3000 limit=6000")
	now := uint64(1e12)
	step := func(what string, want string, n int) {
		t.Helper()
		for i := range n {
			got := "pass"
			if d, tos := b.send(now, frame(ect0, 4791)); d {
				got = "drop"
			} else if tos == ce {
				got = "mark"
			}
			if got != want {
				t.Fatalf("%s: frame %d: %s, want %s", what, i, got, want)
			}
		}
	}
	step("the burst, and the queue up to kmin", "pass", 13)
	step("behind kmin", "mark", 3)
	step("behind the limit", "drop", 2)
	now += 8000
	step("one has left", "mark", 1)
	step("full again", "drop", 1)
	now += 4 * 8000
	step("below kmin", "pass", 1)
	step("at kmin", "mark", 1)
	now += 1e9
	step("a burst is all that a pause saves", "pass", 13)
	step("behind it", "mark", 1)
}

// TestLongRun sends for a second of the test clock, and compares the throughput with the rate.
func TestLongRun(t *testing.T) {
	b := newBench(t, "rate=100mbit burst=10000 kmin=20000 kmax=20000 limit=20001")
	now, passed := uint64(1e12), 0
	for range 20000 { // 160 Mbit/s
		if d, _ := b.send(now, frame(ect0, 4791)); !d {
			passed += frameLen
		}
		now += 50000
	}
	const want = 12500000 + 10000 + 20000
	if math.Abs(float64(passed-want)) > 2*frameLen {
		t.Errorf("%d bytes have passed in a second, want %d", passed, want)
	}
}

// TestRoCEOnly checks that the program does not mark or drop other traffic in the same queue.
func TestRoCEOnly(t *testing.T) {
	for _, c := range []struct {
		words string
		tos   byte
	}{{"", ce}, {" roce", ect0}} {
		b := newBench(t, "rate=1gbit kmin=1000 kmax=2000 limit=100000"+c.words)
		b.put(1e12, 5000)
		if _, tos := b.send(1e12, frame(ect0, 4790)); tos != c.tos {
			t.Errorf("%q: TOS of other traffic is %d, want %d", c.words, tos, c.tos)
		}
		if _, tos := b.send(1e12, frame(ect0, 4791)); tos != ce {
			t.Errorf("%q: TOS of RoCEv2 is %d", c.words, tos)
		}
		if s, err := b.Stats(); err != nil || s.Frames != 2 {
			t.Errorf("%q: %+v, %v", c.words, s, err)
		}
	}
}

func TestParse(t *testing.T) {
	o, err := Parse(strings.Fields("rate=1gbit"))
	want := Options{Rate: 1e9, Burst: 32 << 10, Kmin: 12500, Kmax: 62500, Limit: 625000, Pmax: 0.1}
	if err != nil || o != want {
		t.Errorf("%+v, %v, want %+v", o, err, want)
	}
	for text, says := range map[string]string{
		"":                               "rate",
		"rate=0mbit":                     "must not be zero",
		"rate=infgbit":                   "expected a rate",
		"rate=1tbit":                     "100gbit",
		"rate=200gbit":                   "100gbit",
		"rate=1gbit kmin=9k kmax=8k":     "ascending",
		"rate=1gbit pmax=1.5":            "probability",
		"rate=1gbit pmax=NaN":            "probability",
		"rate=1kbit limit=1m":            "must each take at most",
		"rate=1gbit colour=red":          "unknown word",
		"rate=1gbit kmin=9999999999999k": "must each take at most",
		"rate=1gbit kmin=9e99k":          "expected a size",
	} {
		if _, err := Parse(strings.Fields(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}
