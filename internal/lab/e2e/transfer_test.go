package e2e

import (
	"strconv"
	"strings"
	"testing"

	"roced.io/roced/internal/lab/netlab"
)

// verified are runs that compare every byte, or number every atomic.
var verified = []string{
	"send-bw -s 64k -n 20",
	"write-bw -s 64k -n 20",
	"read-bw -s 64k -n 20",
	"write-bw -s 1 -n 50",
	"read-bw -s 4097 -n 20",
	"send-bw -s 1m -n 4",
	"send-bw -s 1000 -n 20 -m 256",
	"write-bw -s 64k -n 8 -q 16",
	"send-bw -s 8k -n 8 -q 16",
	"read-bw -s 8k -n 8 -q 16",
	"send-bw -s 64k -n 20 --events",
	"write-lat -n 20",
	"send-lat -n 20",
	"send-lat -n 20 --events",
	"read-lat -n 20",
	"atomic-lat -n 20",
	"write-lat -s 64k -n 20",
	"send-bw -c uc -s 64k -n 20",
	"write-bw -c uc -s 64k -n 20",
	"send-lat -c uc -n 20",
	"write-lat -c uc -n 20",
	"send-bw -c ud -s 1k -n 20",
	"send-bw -c ud -s 1k -n 8 -q 16",
	"send-lat -c ud -n 20",
}

// TestEveryOperation moves data by every operation and service over every kind of link.
func TestEveryOperation(t *testing.T) {
	for _, link := range []struct {
		name     string
		options  netlab.LabOptions
		segments bool
	}{{"tap", onTAP, true}, {"tap without offload", onFrames, false}, {"unix", onUnix, false}, {"switch", onSwitch, false}, {"shards", onShards, false}} {
		t.Run(link.name, func(t *testing.T) {
			l := newLab(t, link.options)
			for i := range l.Host {
				if n := l.Link(i).Segments; n > 0 != link.segments {
					t.Errorf("%s takes super-frames of %d segments", l.Host[i].Device, n)
				}
			}
			for _, args := range verified {
				t.Run(args, func(t *testing.T) { l.at(t).verify(args + longTimeout) })
			}
			for _, args := range []string{"write-bw", "read-bw", "send-bw", "send-bw -c uc -s 4k", "send-bw -c ud"} {
				t.Run(args+" -b", func(t *testing.T) { l.at(t).bidirectional(args + longTimeout) })
			}
		})
	}
}

// longTimeout is for tests without losses, and for transports with their own timeouts. With roceperf's default timeout,
// half a second of delay on a loaded machine exhausts the retries.
const longTimeout = " --timeout=18"

// verify runs roceperf and checks the number of messages.
func (l *rig) verify(args string) {
	l.T.Helper()
	words := strings.Fields(args)
	r := l.perf(append(words, "--verify")...)
	if !r.Verified {
		l.T.Errorf("not verified: %+v", r)
	}
	want := uint64(option(words, "-n", 0) * option(words, "-q", 1))
	if r.Messages != want {
		l.T.Errorf("%d messages, want %d", r.Messages, want)
	}
}

// option returns the number after an option.
func option(words []string, name string, def int) int {
	for i, w := range words[:len(words)-1] {
		if n, err := strconv.Atoi(words[i+1]); w == name && err == nil {
			return n
		}
	}
	return def
}

// bidirectional checks the NICs' counters: both sides have sent.
func (l *rig) bidirectional(args string) {
	l.T.Helper()
	const n = 100
	var before, after [2]map[string]uint64
	for i := range before {
		before[i] = l.counters(i)
	}
	r := l.perf(append(strings.Fields(args), "-b", "-n", strconv.Itoa(n))...)
	for i := range after {
		after[i] = l.counters(i)
	}
	if r.Messages != n {
		l.T.Errorf("%d messages of ours, want %d", r.Messages, n)
	}
	for i := range after {
		if sent := after[i]["sent_pkts"] - before[i]["sent_pkts"]; sent < n {
			l.T.Errorf("%s has sent %d packets, fewer than messages", l.Host[i].Device, sent)
		}
	}
}

// TestIPv6 uses the IPv6 address of the NICs.
func TestIPv6(t *testing.T) {
	for name, o := range map[string]netlab.LabOptions{"tap": onTAP, "unix": onUnix, "switch": onSwitch, "shards": onShards} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, o)
			gid := -1
			for i, g := range l.Link(0).GIDs {
				if g == "fd00::1" {
					gid = i
				}
			}
			if gid < 0 || l.Link(1).GIDs[gid] != "fd00::2" {
				t.Fatalf("GIDs are %v and %v", l.Link(0).GIDs, l.Link(1).GIDs)
			}
			stop := l.capture(0)
			for _, args := range []string{"write-bw -n 10", "read-bw -n 10 -q 4", "send-bw -c uc -n 10",
				"send-bw -c ud -s 1k -n 10", "atomic-lat -n 10"} {
				l.verify(args + " --gid-index " + strconv.Itoa(gid) + longTimeout)
			}
			records := l.decoded(stop())
			if len(records) == 0 {
				t.Error("nothing was captured")
			}
			for _, r := range records {
				if !strings.HasPrefix(r.Src, "fd00::") || !strings.HasPrefix(r.Dst, "fd00::") || r.ICRC != "ok" {
					t.Fatalf("not a good IPv6 frame: %+v", r)
				}
			}
		})
	}
}
