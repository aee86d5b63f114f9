package shard

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/plugin/mono"
)

// exchange is a turn with a small message, its answer and its acknowledgement.
var exchange = turn{received: 1, rung: 1, sent: 1, bytes: 100}

// exchanges makes n exchanges whose frames arrive at once.
func exchanges(p *pingPong, now mono.Time, n int) {
	for range n {
		p.note(now, &exchange, time.Millisecond)
	}
}

// TestPingPong: after some exchanges of small messages the loop polls without yields for a limited time. Acknowledgements
// change nothing. Any other traffic ends it.
func TestPingPong(t *testing.T) {
	const now = mono.Time(time.Second)
	for _, c := range []struct {
		name string
		turn turn
		want bool
	}{
		{"an exchange", exchange, true},
		{"a message beside acknowledgements", turn{received: exchangeFrames, rung: 1, sent: 1, bytes: 100}, true},
		{"an acknowledgement", turn{sent: 1, bytes: 62}, true},
		{"a message that answers none", turn{rung: 1, sent: 1, bytes: 100}, false},
		{"a long message", turn{received: 1, rung: 1, sent: 1, bytes: 4096}, false},
		{"two messages", turn{received: 1, rung: 1, sent: 2, bytes: 200}, false},
		{"many frames", turn{received: exchangeFrames + 1, rung: 1, sent: 1, bytes: 100}, false},
		{"READ responses", turn{received: 1, sent: 1, bytes: 4096}, false},
	} {
		var p pingPong
		if exchanges(&p, now, fewExchanges-1); p.polls(now) || p.on() {
			t.Fatal("a ping-pong is recognised too early")
		}
		exchanges(&p, now, 1)
		if p.note(now, &c.turn, time.Millisecond); p.on() != c.want {
			t.Errorf("%s: ping-pong %v", c.name, p.on())
		}
		if polls := p.polls(now + 1); polls != c.want {
			t.Errorf("%s: polls without yields %v", c.name, polls)
		}
	}
	var p pingPong
	exchanges(&p, now, fewExchanges)
	if p.polls(now.Add(pollAlone)) {
		t.Error("the poll without yields has no end")
	}
	p = pingPong{}
	if exchanges(&p, now, fewExchanges); !p.polls(now.Add(pollAlone - 1)) {
		t.Error("the poll without yields is too short")
	}
	p = pingPong{}
	for range fewExchanges {
		p.note(now, &exchange, 0)
	}
	if p.polls(now) {
		t.Error("a loop that sleeps at once polls")
	}
}

// TestPingPongBacksOff: polls without yields that find nothing become rare. They become frequent again when they find
// frames.
func TestPingPongBacksOff(t *testing.T) {
	var p pingPong
	now := mono.Time(time.Second)
	misses := 0
	for range 10_000 {
		exchanges(&p, now, 1)
		if now = now.Add(2 * pollAlone); p.until != 0 {
			misses++
			p.polls(now)
		}
	}
	if misses < 8 || misses > 12 {
		t.Errorf("%d polls of 10000 find nothing", misses)
	}
	exchanges(&p, now, p.needed+maxCredit)
	if !p.on() || p.needed != fewExchanges {
		t.Errorf("polls that find frames do not restore the credit: %+v", p)
	}
}

// TestPollsAlone: in a ping-pong an idle loop neither yields nor sleeps, unless its core is contended.
func TestPollsAlone(t *testing.T) {
	s := idleShard(t)
	s.poll, s.lastWork = time.Hour, Now()
	s.nics[0].scanned = mono.Never
	s.pong = pingPong{credit: maxCredit, until: mono.Never}
	if s.idle(Now()); s.yields != 0 || s.sleeps != 0 {
		t.Errorf("%d yields, %d sleeps", s.yields, s.sleeps)
	}
	s.pong = pingPong{}
	if s.idle(Now()); s.yields != 1 {
		t.Errorf("%d yields without a ping-pong", s.yields)
	}
}

// smallFrames is a link with endless small frames.
type smallFrames struct{ nullPort }

func (smallFrames) Recv(_ mono.Time, buf []byte) ([]byte, int, error) { return buf[:60], 0, nil }

// TestAnswerGoesFirst: in a ping-pong the loop takes one small frame and leaves others to the next turn.
func TestAnswerGoesFirst(t *testing.T) {
	s := idleShard(t)
	s.nics[0].port = smallFrames{}
	for credit, want := range map[int]int{0: rxBudget, 1: 1} {
		s.turn, s.pong = turn{}, pingPong{credit: credit}
		if s.nics[0].receive(); s.turn.received != want {
			t.Errorf("credit %d: %d frames in a turn, want %d", credit, s.turn.received, want)
		}
	}
}

// TestTogether: during a ping-pong the thread stays on the core that its client names, if threads outnumber the cores. Its
// affinity is restored afterwards, and before the loop sleeps.
func TestTogether(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	var own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil {
		t.Fatal(err)
	}
	if own.Count() < 2 {
		t.Skip("this test needs two cores")
	}
	core := 0
	for !own.IsSet(core) {
		core++
	}
	bell := &Bell{mem: make([]byte, uverbs.DoorbellSize)}
	s := idleShard(t)
	if err := s.ep.open(); err != nil {
		t.Fatal(err)
	}
	defer s.ep.close()
	busy := true
	s.oversubscribed = func() bool { return busy }
	play := func(answer uint32) {
		s.pong.exchanges = togetherFrom
		for range 2 { // asks and looks
			s.turn = exchange
			s.turn.bell = bell
			s.play(Now().Add(time.Hour))
			if atomic.LoadUint32(bell.coreWord()) == uverbs.CoreAsked {
				atomic.StoreUint32(bell.coreWord(), answer)
			}
		}
		s.together.next = 0
	}
	affinity := func() (set unix.CPUSet) {
		if err := unix.SchedGetaffinity(0, &set); err != nil {
			t.Fatal(err)
		}
		return set
	}
	var only unix.CPUSet
	only.Set(core)
	for _, c := range []struct {
		name   string
		answer uint32
		busy   bool
		want   unix.CPUSet
	}{
		{"a core", uint32(core) + 1, true, only}, {"the same core", uint32(core) + 1, true, only}, {"idle cores", uint32(core) + 1, false, own},
		{"a core again", uint32(core) + 1, true, only}, {"no answer", uverbs.CoreAsked, true, own}, {"an absurd answer", 1 << 31, true, own},
	} {
		busy = c.busy
		if play(c.answer); affinity() != c.want {
			t.Errorf("%s: bound %v", c.name, s.together.bound)
		}
	}
	play(uint32(core) + 1)
	s.turn = turn{received: 1, rung: 1, sent: 1, bytes: 4096}
	if s.play(Now()); affinity() != own {
		t.Error("the thread is bound after the ping-pong")
	}
	play(uint32(core) + 1)
	s.poll = 0
	s.nics[0].calls <- nil // pending: sleep does not wait
	if s.sleep(0); affinity() != own {
		t.Error("the thread is bound while it sleeps")
	}
	play(uint32(core) + 1)
	both := own
	both.Clear(core)
	if err := unix.SchedSetaffinity(0, &both); err != nil {
		t.Fatal(err)
	}
	if s.together.unbind(); affinity() != both {
		t.Error("the affinity of the administrator is changed")
	}
}

// TestRunnable: the number of threads that want to run is the fourth field of /proc/loadavg.
func TestRunnable(t *testing.T) {
	for line, want := range map[string]int{"0.20 0.18 0.12 3/80 11206\n": 3, "0.20 0.18": 0, "": 0, "a b c d e": 0} {
		if n := runnable(line); n != want {
			t.Errorf("%q: %d, want %d", line, n, want)
		}
	}
}
