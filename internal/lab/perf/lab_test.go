package perf

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nics is a daemon with two connected NICs.
type nics struct {
	*lab.Within
	tests int
}

func newNICs(t testing.TB) *nics { return &nics{Within: lab.NewWithin(t, "perf")} }

// sides are the two ends of a test, the server first.
type sides struct {
	cancel [2]context.CancelFunc
	ended  [2]chan error
	out    [2]bytes.Buffer
}

// start runs both ends of a test.
func (l *nics) start(t testing.TB, test, line string) *sides {
	t.Helper()
	l.tests++
	path := filepath.Join(l.Dir, fmt.Sprint("oob", l.tests))
	s := &sides{}
	for i, device := range []string{"rxe_b", "rxe_a"} {
		o, err := options(test, line+fmt.Sprintf(" --json --run-dir %s -d %s --oob unix:%s", l.RunDir, device, path))
		if err != nil {
			t.Fatal(err)
		}
		run := Serve
		if i == 1 {
			o.Host, run = "peer", Client
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		s.cancel[i], s.ended[i] = cancel, make(chan error, 1)
		go func() { s.ended[i] <- run(ctx, o, &s.out[i], os.Stderr) }()
		if i == 1 {
			break // a short test can have ended, and the socket with it
		}
		lab.Eventually(t, lab.Limit, "the server listens", func() bool {
			select {
			case err := <-s.ended[0]:
				t.Fatalf("the server has ended before it listens: %v", err)
			default:
			}
			return exists(path)
		})
	}
	return s
}

// connected waits until there are n queue pairs, all in state RTS.
func (l *nics) connected(t testing.TB, n int) {
	t.Helper()
	c := api.NewClient(filepath.Join(l.RunDir, api.Socket))
	defer c.Close()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		var qps []api.Resource
		if err := c.Get(t.Context(), &qps, "res", "qp"); err != nil {
			t.Fatal(err)
		}
		ready := slices.IndexFunc(qps, func(r api.Resource) bool { return r.QP.State != "RTS" }) < 0
		if len(qps) == n && ready {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d queue pairs, not %d, or not all are ready", len(qps), n)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// results waits for both ends and returns the client's results.
func (s *sides) results(t testing.TB) (all []Result) {
	t.Helper()
	for i, name := range []string{"server", "client"} {
		if err := <-s.ended[i]; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for d := json.NewDecoder(&s.out[1]); d.More(); {
		var r Result
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// TestTransfers runs every test in its variants, with a fixed number of messages. All of them must arrive.
func TestTransfers(t *testing.T) {
	l := newNICs(t)
	for _, line := range []string{
		"write-bw -n 300 -s 64", "write-bw -n 20 -s 64k -q 4", "write-bw -n 30 -s 64k -b", "write-bw -n 20 -t 1 -e", "write-bw -c uc -n 50",
		"read-bw -n 20 -q 2", "read-bw -n 20 -e", "send-bw -n 300 -s 64", "send-bw -n 40 -b -e", "send-bw -n 20 -t 1 -r 1",
		"send-bw -c uc -n 20 -b", "send-bw -c ud -n 50 -r 64",
		"write-bw -n 100 --verify -s 9001", "write-bw -c uc -n 50 --verify", "read-bw -n 30 --verify -q 3", "send-bw -n 90 --verify -e",
		"send-bw -n 20 -t 1 -r 1 --verify", "send-bw -c ud -n 100 --verify -s 1001",
		"write-lat -n 50 --verify", "write-lat -n 20 -s 1 --verify", "write-lat -n 20 -s 5001 --verify -c uc", "send-lat -n 50 --verify",
		"send-lat -n 20 -e --verify", "send-lat -c ud -n 20 --verify", "read-lat -n 20 -s 9000 --verify", "atomic-lat -n 50 --verify",
		"atomic-lat -n 20 -e", "send-lat -n 20 -t 1 -r 1",
	} {
		t.Run(line, func(t *testing.T) {
			test, flags, _ := strings.Cut(line, " ")
			o, err := options(test, flags)
			if err != nil {
				t.Fatal(err)
			}
			r := l.start(t, test, flags).results(t)
			if len(r) != 1 || r[0].Messages != uint64(o.Iters*o.QPs) || r[0].Seconds <= 0 || r[0].MessagesPerSecond <= 0 {
				t.Fatalf("%+v", r)
			}
			if r[0].Verified != o.Verify || (r[0].Latency != nil) != o.latency() || r[0].MTU != 4096 {
				t.Errorf("%+v", r[0])
			}
			if l := r[0].Latency; l != nil && (l.Min <= 0 || l.Min > l.P50 || l.P50 > l.P99 || l.P99 > l.Max) {
				t.Errorf("%+v", l)
			}
		})
	}
}

// TestEndings limits tests by time instead of by messages. Each sends messages, however short the time.
func TestEndings(t *testing.T) {
	l := newNICs(t)
	for _, line := range []string{"write-bw -t 1", "write-bw -t 1 -e", "send-bw -b", "send-lat -e", "read-bw --verify", "send-bw -c ud"} {
		test, flags, _ := strings.Cut(line, " ")
		for _, duration := range []string{"200ms", "1ns"} {
			if r := l.start(t, test, flags+" -D "+duration).results(t); len(r) != 1 || r[0].Messages == 0 {
				t.Errorf("%s, %s: %+v", line, duration, r)
			}
		}
	}
}

func TestSweep(t *testing.T) {
	r := newNICs(t).start(t, "send-bw", "-c ud --all -n 20 -r 64").results(t)
	if len(r) != 12 || r[0].Size != 2 || r[11].Size != 4096 {
		t.Errorf("%d results: %+v", len(r), r)
	}
}

// TestOneSideEnds interrupts one side. The other side must end as well.
func TestOneSideEnds(t *testing.T) {
	l := newNICs(t)
	for _, line := range []string{"write-lat", "send-lat", "send-lat -e", "send-lat -c ud", "write-lat -c uc", "read-lat", "atomic-lat -e",
		"write-bw", "send-bw -c ud", "send-bw -b -e", "read-bw -u 0", "write-bw --verify", "send-bw --verify"} {
		for i, name := range []string{"server", "client"} {
			t.Run(line+" without "+name, func(t *testing.T) {
				test, flags, _ := strings.Cut(line, " ")
				l.connected(t, 0) // the queue pairs of the previous test are gone
				s := l.start(t, test, flags+" -D 10m")
				l.connected(t, 2)
				s.cancel[i]()
				start := time.Now()
				err := <-s.ended[1-i]
				if err == nil || !strings.Contains(err.Error(), "the other side") || time.Since(start) > 10*time.Second {
					t.Errorf("after %v: %v", time.Since(start), err)
				}
				if err := <-s.ended[i]; err == nil {
					t.Error("the side that was interrupted knows nothing of it")
				}
			})
		}
	}
}

// TestDaemonEnds stops the daemon during a test.
func TestDaemonEnds(t *testing.T) {
	for _, line := range []string{"write-bw", "send-lat", "send-lat -e", "read-lat"} {
		l := newNICs(t)
		test, flags, _ := strings.Cut(line, " ")
		s := l.start(t, test, flags+" -D 10m")
		l.connected(t, 2)
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
		said := ""
		for i := range s.ended {
			err := <-s.ended[i]
			if err == nil {
				t.Fatalf("%s: side %d goes on", line, i)
			}
			said += err.Error() + "\n"
		}
		if !strings.Contains(said, "the daemon is gone") {
			t.Errorf("%s:\n%s", line, said)
		}
	}
}

// TestCause cuts the link between the NICs. The error must be the missing answer, although flushed receives are often
// polled first.
func TestCause(t *testing.T) {
	l := newNICs(t)
	c := api.NewClient(filepath.Join(l.RunDir, api.Socket))
	defer c.Close()
	for range 8 {
		s := l.start(t, "send-lat", "-D 10m -u 8 --retry-cnt 1")
		if err := c.Do(t.Context(), "POST", api.RuleSet{Rules: []string{"both drop"}}, "faults", "rxe_a"); err != nil {
			t.Fatal(err)
		}
		said := fmt.Sprint(<-s.ended[0], "\n", <-s.ended[1])
		if strings.Contains(said, "flushed") || !strings.Contains(said, "did not answer") {
			t.Error(said)
		}
		if err := c.Do(t.Context(), "DELETE", nil, "faults", "rxe_a"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRefused checks the server's reason for a refused test.
func TestRefused(t *testing.T) {
	s := newNICs(t).start(t, "send-bw", "-c ud -s 8k -n 1")
	client, server := <-s.ended[1], <-s.ended[0]
	if client == nil || !strings.Contains(client.Error(), "does not fit into the path MTU") {
		t.Errorf("client: %v", client)
	}
	if server == nil || !strings.Contains(server.Error(), "the other side reports: a datagram of 8192 bytes") {
		t.Errorf("server: %v", server)
	}
}

// TestNothingIsAllocated checks that messages cause no heap allocations, on both sides and in the daemon. Other goroutines
// of the process allocate as well, so the fewest allocations of several rounds count.
func TestNothingIsAllocated(t *testing.T) {
	l := newNICs(t)
	count := func(test string, iters int) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if r := l.start(t, test, fmt.Sprintf("-s 64 -n %d --quiet", iters)).results(t); len(r) != 1 {
			t.Fatalf("%+v", r)
		}
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	for _, test := range []string{"write-bw", "send-bw"} {
		const n = 20000
		few, many := uint64(math.MaxUint64), uint64(math.MaxUint64)
		for range 5 {
			few, many = min(few, count(test, 100)), min(many, count(test, n))
		}
		if many > few+n/20 {
			t.Errorf("%s: %d allocations for %d messages, %d for 100", test, many, n, few)
		}
	}
}
