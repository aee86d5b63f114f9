package ccalgo

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"roced.io/roced/internal/base/registry"
	"roced.io/roced/plugin/mono"
)

// bounds are the limits of a controller's window and rate with default parameters, for a path MTU of 1024.
var bounds = map[string]struct{ minWindow, maxWindow, minRate, maxRate uint64 }{
	"none":    {Unlimited, Unlimited, Unlimited, Unlimited},
	"static":  {Unlimited, Unlimited, Unlimited, Unlimited},
	"dcqcn":   {Unlimited, Unlimited, 10e6, 40e9},
	"timely":  {Unlimited, Unlimited, 10e6, 40e9},
	"swift":   {1024, 1024 * 1024, 1, Unlimited},
	"dctcp":   {1024, 4096 * 1024, Unlimited, Unlimited},
	"mp-rdma": {1024, 4096 * 1024, Unlimited, Unlimited},
	"reno":    {1024, 4096 * 1024, Unlimited, Unlimited},
	"nscc":    {1024, 225_000, Unlimited, Unlimited},
	"hpcc":    {162, 162_500, 99e6, 100e9}, // [W_init] is 100 Gb/s for 13 us
}

// event draws an event and applies it to each of cs.
func event(t *rapid.T, now mono.Time, cs ...Controller) {
	bytes := rapid.Uint32Range(0, 1<<20).Draw(t, "bytes")
	inflight := rapid.Uint32Range(0, 1<<24).Draw(t, "inflight")
	flag := rapid.Bool().Draw(t, "flag")
	kind := rapid.IntRange(0, 4).Draw(t, "kind")
	s := Sample{Bytes: bytes, InFlight: inflight, ECN: flag,
		RTT: time.Duration(rapid.Int64Range(0, int64(20*time.Millisecond)).Draw(t, "rtt"))}
	if rapid.Bool().Draw(t, "report") {
		s.Receiver = Receiver{Reported: true, Restore: rapid.Bool().Draw(t, "restore"), Penalty: rapid.Uint8Range(0, 127).Draw(t, "penalty"),
			Reason: rapid.Uint8Range(0, 2).Draw(t, "reason"), Received: rapid.Uint32Range(0, 1<<24-1).Draw(t, "received")}
	}
	hops := Telemetry{N: rapid.Uint8Range(0, MaxHops).Draw(t, "hops")}
	for i := range hops.N {
		hops.Hops[i] = Hop{At: now, Sent: rapid.Uint64().Draw(t, "sent"), Rate: rapid.Uint64Range(0, 1e12).Draw(t, "rate"), Queued: bytes}
	}
	for _, c := range cs {
		if r, ok := c.(Telemetered); ok {
			r.OnTelemetry(now, &hops)
		}
		switch kind {
		case 0:
			c.OnSent(now, bytes, inflight)
		case 1:
			c.OnAck(now, s)
		case 2:
			c.OnCNP(now)
		case 3:
			c.OnLoss(now, bytes, flag)
		case 4:
			c.Reset(1024)
		}
	}
}

// TestLimitsStayInBounds: after any events, limits stay in bounds, one call serves the timers, and the same calls
// have the same outcome.
func TestLimitsStayInBounds(t *testing.T) {
	for name, b := range bounds {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				c, _ := New(name, nil)
				twin, _ := New(name, nil)
				c.Reset(1024)
				twin.Reset(1024)
				now := mono.Time(1)
				for range rapid.IntRange(1, 200).Draw(t, "events") {
					now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Millisecond)).Draw(t, "after")))
					if now >= c.Deadline() {
						c.OnTimeout(now)
						twin.OnTimeout(now)
					}
					if c.Deadline() <= now {
						t.Fatalf("deadline %d at %d, after it was served", c.Deadline(), now)
					}
					event(t, now, c, twin)
					w, r := c.Limits()
					if w < b.minWindow || w > b.maxWindow || r < b.minRate || r > b.maxRate {
						t.Fatalf("window %d, rate %d", w, r)
					}
					if w2, r2 := twin.Limits(); w2 != w || r2 != r {
						t.Fatalf("the same calls gave %d, %d and %d, %d", w, r, w2, r2)
					}
				}
			})
		})
	}
	for _, name := range Names() {
		if _, ok := bounds[name]; !ok && Source(name) != registry.Own {
			t.Errorf("%s has no bounds", name)
		}
	}
}

// TestDCQCNTimerEnds: a rate-limited controller always returns to line rate, and its timer then stops. An idle queue
// pair must not keep its NIC awake.
func TestDCQCNTimerEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, _ := New("dcqcn", nil)
		now := mono.Time(1)
		for range rapid.IntRange(1, 300).Draw(t, "CNPs") {
			now = now.Add(50 * time.Microsecond)
			c.OnCNP(now)
		}
		end := now.Add(200 * time.Millisecond)
		for c.Deadline() != mono.Never && now < end {
			now = c.Deadline()
			c.OnTimeout(now)
		}
		if _, r := c.Limits(); r != 40e9 || c.Deadline() != mono.Never {
			t.Fatalf("%d bit/s, deadline %d, %v after the last CNP", r, c.Deadline(), now)
		}
	})
}

// TestNSCCWithAnyParameters: whatever the parameters and the events are, the window has room for a packet and keeps to its maximum.
func TestNSCCWithAnyParameters(t *testing.T) {
	known := Parameters("nscc")
	rapid.Check(t, func(t *rapid.T) {
		p := Params{}
		for _, k := range known {
			switch rapid.IntRange(0, 3).Draw(t, k.Name) {
			case 0:
				p[k.Name] = k.Min
			case 1:
				p[k.Name] = k.Max
			case 2:
				p[k.Name] = float64(int64(rapid.Float64Range(k.Min, k.Max).Draw(t, "value")))
				p[k.Name] = max(p[k.Name], k.Min)
			}
		}
		c, err := New("nscc", p)
		if err != nil {
			t.Fatal(err)
		}
		n := c.(*NSCC)
		c.Reset(1024)
		most := max(n.givenMax, 1024)
		now := mono.Time(1)
		for range rapid.IntRange(1, 100).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(20*time.Millisecond)).Draw(t, "after")))
			event(t, now, c)
			if w, _ := c.Limits(); w < 1024 || !(n.cwnd <= most) {
				t.Fatalf("window %d of %v, at most %v", w, n.cwnd, most)
			}
		}
	})
}
