package perf

import (
	"bytes"
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"roced/internal/test/lab"
)

// TestFlor measures calls of all sizes by Flor over UC and RC, and by plain RC.
func TestFlor(t *testing.T) {
	l := newNICs(t)
	at := netip.MustParseAddrPort("198.18.0.2:7471")
	for _, connection := range []string{"uc", "rc", "plain"} {
		t.Run(connection, func(t *testing.T) {
			o := florOptions{RunDir: l.RunDir, Connection: connection, Port: 7471, AckWQEs: 32, Duration: 50 * time.Millisecond, JSON: true}
			server := o
			o.Device, server.Device = "rxe_a", "rxe_b"
			n, err := server.open()
			lab.Must(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ready, ended := make(chan struct{}), make(chan error, 1)
			go func() { ended <- n.serve(ctx, at, func() { close(ready) }) }()
			<-ready
			for _, size := range []int{128, 32 << 10, 100_000, 1 << 20} {
				o.Size, o.Conns, o.Depth = size, 2, 3
				var out bytes.Buffer
				lab.Must(t, florClient(t.Context(), "bw", at, &o, &out))
				var r FlorResult
				lab.Must(t, json.Unmarshal(out.Bytes(), &r))
				if r.Calls == 0 || r.Least == 0 || r.Latency.P50 <= 0 || r.Size != size || r.Connection != connection {
					t.Errorf("%s", out.String())
				}
			}
			cancel()
			lab.Must(t, <-ended)
			lab.Must(t, n.close())
		})
	}
}

// TestFlorOptions: words that are wrong are refused before anything is opened.
func TestFlorOptions(t *testing.T) {
	for _, line := range []string{"flor nonsense", "flor bw", "flor bw host", "flor bw 198.18.0.2 -c ud", "flor bw 198.18.0.2 -s 2m", "flor rate 198.18.0.2 --ack-wqes 33",
		"flor lat 198.18.0.2 -q 0", "flor serve 1", "flor serve -p 0", "flor bw 198.18.0.2 -D 0s"} {
		if code := Main(strings.Fields(line)); code != 2 {
			t.Errorf("roceperf %s: exit code %d", line, code)
		}
	}
}
