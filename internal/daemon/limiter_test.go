package daemon

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// busyServer serves on a TCP port, as for metrics and the page. Requests for /hold block until hold is closed.
func busyServer(t *testing.T, trusted func(*http.Request) bool) (address string, hold chan struct{}, held *atomic.Int32) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hold, held = make(chan struct{}), new(atomic.Int32)
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "here") })
	mux.HandleFunc("/hold", func(http.ResponseWriter, *http.Request) {
		held.Add(1)
		<-hold
	})
	d := &Daemon{ending: make(chan struct{})}
	d.serveTCP(mux, ln, trusted, 0)
	t.Cleanup(func() {
		close(d.ending)
		d.served.Wait()
	})
	return "http://" + ln.Addr().String(), hold, held
}

// fetch sends a request over a new connection.
func fetch(t *testing.T, url, token string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", token)
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Errorf("%s: %v", url, err)
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestIdleConnections: idle connections starve no other client.
func TestIdleConnections(t *testing.T) {
	address, _, _ := busyServer(t, nil)
	for range limiterPlaces + 8 {
		c, err := net.Dial("tcp", address[len("http://"):])
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	for range 5 {
		if code := fetch(t, address, ""); code != http.StatusOK {
			t.Errorf("a request beside idle connections is answered with %d", code)
		}
	}
}

// TestBusyConnections: requests without a right hold at most their share of the places; a request with a right finds a
// place.
func TestBusyConnections(t *testing.T) {
	hasToken := func(r *http.Request) bool { return r.Header.Get("Authorization") == "token" }
	for _, c := range []struct {
		name    string
		trusted func(*http.Request) bool
		share   int
	}{{"page", hasToken, limiterPlaces / 2}, {"metrics", nil, limiterPlaces / 4}} {
		t.Run(c.name, func(t *testing.T) {
			address, hold, held := busyServer(t, c.trusted)
			var slow sync.WaitGroup
			defer slow.Wait()
			defer close(hold)
			for range c.share {
				slow.Go(func() { fetch(t, address+"/hold", "") })
			}
			for held.Load() < int32(c.share) {
				time.Sleep(time.Millisecond)
			}
			if code := fetch(t, address, ""); code != http.StatusServiceUnavailable {
				t.Errorf("request %d without a right is answered with %d", c.share+1, code)
			}
			if c.trusted != nil {
				if code := fetch(t, address, "token"); code != http.StatusOK {
					t.Errorf("a request with the token is answered with %d", code)
				}
			}
		})
	}
}

// countedGatherer counts its calls.
type countedGatherer struct{ calls atomic.Int32 }

func (g *countedGatherer) Gather() ([]*dto.MetricFamily, error) {
	g.calls.Add(1)
	name := strconv.Itoa(int(g.calls.Load()))
	return []*dto.MetricFamily{{Name: &name}}, nil
}

// TestScrapersShare: scrapers share one collection in each interval.
func TestScrapersShare(t *testing.T) {
	from := &countedGatherer{}
	var g prometheus.Gatherer = &gatherer{from: from}
	start := time.Now()
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 100 {
				if _, err := g.Gather(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n, most := from.calls.Load(), int32(time.Since(start)/gatherEvery)+1; n > most {
		t.Errorf("%d collections, more than %d", n, most)
	}
}
