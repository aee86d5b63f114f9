package perf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"roced.io/roced/internal/lab"
)

// TestFlor measures calls of all sizes over UC and RC. Each connection makes calls, however short the time.
func TestFlor(t *testing.T) {
	l := newNICs(t)
	at := netip.MustParseAddrPort("198.18.0.2:7471")
	for _, c := range []struct {
		connection string
		verify     bool
	}{{"uc", false}, {"rc", false}, {"uc", true}, {"rc", true}} {
		connection := c.connection
		t.Run(fmt.Sprint(connection, c.verify), func(t *testing.T) {
			o := florOptions{RunDir: l.RunDir, Connection: connection, Port: 7471, AckWQEs: 32, JSON: true, Verify: c.verify}
			server := o
			o.Device, server.Device = "rxe_a", "rxe_b"
			n, err := openFlor(&server)
			lab.Must(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ready, ended := make(chan struct{}), make(chan error, 1)
			go func() { ended <- n.serve(ctx, at, func() { close(ready) }) }()
			<-ready
			for i, size := range []int{128, 32 << 10, 100_000, 1 << 20} {
				o.Size, o.Conns, o.Depth, o.Duration = size, 2, 3, 50*time.Millisecond
				if i == 0 {
					o.Duration = 1
				}
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

// TestFlorVerify checks that each side detects one wrong byte of the other.
func TestFlorVerify(t *testing.T) {
	l := newNICs(t)
	at := netip.MustParseAddrPort("198.18.0.2:7471")
	o := florOptions{RunDir: l.RunDir, Connection: "uc", Port: 7471, AckWQEs: 32, Verify: true}
	o.Device = "rxe_b"
	server, err := openFlor(&o)
	lab.Must(t, err)
	o.Device = "rxe_a"
	client, err := openFlor(&o)
	lab.Must(t, err)
	defer func() { lab.Must(t, errors.Join(client.close(), server.close())) }()
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- server.serve(ctx, at, func() { close(ready) }) }()
	<-ready
	c, err := client.dial(ctx, at)
	lab.Must(t, err)
	conn := c.Conn
	m, err := conn.NewMessage(ctx, 100)
	lab.Must(t, err)
	fillFrom(m.Data, 5)
	m.Data[99] ^= 1
	answer, err := conn.Call(ctx, m)
	lab.Must(t, err)
	if len(answer.Data) != 0 {
		t.Error("the server has not noticed")
	}
	cancel()
	lab.Must(t, <-ended)

	server.verify = false // answers are then 8 uninitialized bytes
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	ready = make(chan struct{})
	go func() { ended <- server.serve(ctx, at, func() { close(ready) }) }()
	<-ready
	if c, err = client.dial(ctx, at); err != nil {
		t.Fatal(err)
	}
	if err := c.call(ctx, 8); !errors.Is(err, errSpoiltAnswer) {
		t.Errorf("the client has not noticed: %v", err)
	}
}

// TestFlorOptions checks that invalid options are rejected before a device is opened.
func TestFlorOptions(t *testing.T) {
	for _, line := range []string{"flor nonsense", "flor bw", "flor bw host", "flor bw 198.18.0.2 -c ud", "flor bw 198.18.0.2 -s 2m", "flor rate 198.18.0.2 --ack-wqes 33",
		"flor lat 198.18.0.2 -q 0", "flor serve 1", "flor serve -p 0", "flor bw 198.18.0.2 -c plain", "flor bw 198.18.0.2 --verify -s 7", "flor bw 198.18.0.2 -D 0s"} {
		if code := Main(strings.Fields(line)); code != 2 {
			t.Errorf("roceperf %s: exit code %d", line, code)
		}
	}
}
