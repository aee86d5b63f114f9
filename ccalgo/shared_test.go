package ccalgo

import (
	"testing"
	"time"

	"roced.io/roced/plugin/mono"
)

// members returns n controllers that use s.
func members(t *testing.T, s *Shares, n int) (out []Controller) {
	t.Helper()
	for range n {
		c, err := s.New()
		if err != nil {
			t.Fatal(err)
		}
		c.Reset(1000)
		out = append(out, c)
	}
	return out
}

func rateOf(c Controller) uint64 {
	_, rate := c.Limits()
	return rate
}

// TestSharedByDestination: controllers with one destination split a rate and a window evenly among the active
// senders. A notification to one slows all of them. Other destinations have their own rate and window.
func TestSharedByDestination(t *testing.T) {
	s := NewShares("dcqcn", Params{"line_rate_bps": 8e9, "window_us": 100}, PerDestination)
	c := members(t, s, 4)
	here, there := Flow{Port: 1}, Flow{Dst: [16]byte{1}}
	for i, f := range []Flow{here, {Port: 2}, here, there} {
		c[i].(Bound).Bind(f)
		c[i].Reset(1000)
	}
	now := mono.Time(time.Second)
	for range 3 {
		for _, x := range c {
			x.OnSent(now, 1000, 1000)
		}
		now = now.Add(time.Microsecond)
	}
	for i, want := range []uint64{8e9 / uint64(3), 8e9 / uint64(3), 8e9 / uint64(3), 8e9} {
		window, rate := c[i].Limits()
		if rate != want || window != want/8/10000 {
			t.Errorf("queue pair %d has %d bit/s and %d bytes, want %d", i, rate, window, want)
		}
	}
	c[1].OnCNP(now)
	for i, want := range []uint64{4e9 / uint64(3), 4e9 / uint64(3), 4e9 / uint64(3), 8e9} {
		if got := rateOf(c[i]); got != want {
			t.Errorf("after a notification queue pair %d has %d bit/s, want %d", i, got, want)
		}
	}

	// An idle member leaves its rate to the others after a while. A member that leaves does not change the rate.
	for range 5 {
		now = now.Add(sendingFor)
		c[0].OnSent(now, 1000, 1000)
	}
	if got := rateOf(c[0]); got < 4e9 {
		t.Errorf("the only one that sends has %d bit/s", got)
	}
	before := rateOf(c[0])
	c[1].(Bound).Unbind()
	if got := rateOf(c[0]); got != before {
		t.Errorf("%d bit/s when another one has gone, %d before", got, before)
	}
	if got := rateOf(c[1]); got != 8e9 {
		t.Errorf("who has gone has %d bit/s", got)
	}
	for _, x := range c {
		x.(Bound).Unbind()
	}
	if len(s.groups) != 0 {
		t.Errorf("%d groups are left", len(s.groups))
	}
}

// TestSharedByFiveTuple: with the five-tuple as key, the UDP source port matters, too.
func TestSharedByFiveTuple(t *testing.T) {
	c := members(t, NewShares("static", Params{"rate_bps": 1e9}, PerFiveTuple), 3)
	for i, f := range []Flow{{Port: 1}, {Port: 2}, {Port: 1}} {
		c[i].(Bound).Bind(f)
		c[i].OnSent(1, 1000, 0) // as in UC: the data in flight are unknown
	}
	for i, want := range []uint64{5e8, 1e9, 5e8} {
		if got := rateOf(c[i]); got != want {
			t.Errorf("queue pair %d has %d bit/s, want %d", i, got, want)
		}
	}
}

// TestSharedInFlight: the data in flight of all members count, each member once.
func TestSharedInFlight(t *testing.T) {
	c := members(t, NewShares("dctcp", nil, PerDestination), 2)
	for _, x := range c {
		x.(Bound).Bind(Flow{})
	}
	c[0].OnSent(1, 1000, 5000)
	c[1].OnSent(1, 1000, 7000)
	c[0].OnSent(1, 1000, 6000)
	g := c[0].(*member).share
	if g.inflight != 13000 {
		t.Errorf("%d bytes in flight", g.inflight)
	}
	c[1].(Bound).Unbind()
	if g.inflight != 6000 {
		t.Errorf("%d bytes in flight when one has gone", g.inflight)
	}
}

func TestSplitSharing(t *testing.T) {
	for _, c := range []struct {
		p    Params
		want Sharing
		ok   bool
	}{
		{nil, PerQueuePair, true}, {Params{"per_destination": 1, "g": 0.5}, PerDestination, true},
		{Params{"per_five_tuple": 1}, PerFiveTuple, true}, {Params{"per_five_tuple": 0, "per_destination": 0}, PerQueuePair, true},
		{Params{"per_five_tuple": 1, "per_destination": 1}, 0, false}, {Params{"per_destination": 2}, 0, false},
	} {
		own, got, err := SplitSharing(c.p)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%v: %d, %v", c.p, got, err)
		}
		if _, has := own["per_destination"]; has || c.p["g"] != own["g"] {
			t.Errorf("%v leaves %v", c.p, own)
		}
		if _, err := New("dcqcn", c.p); (err == nil) != c.ok {
			t.Errorf("%v: %v", c.p, err)
		}
	}
}
