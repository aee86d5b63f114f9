package api

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/open-traffic-generator/snappi/gosnappi/otg"

	"roced.io/roced/otg/engine"
	"roced.io/roced/otg/model"
)

// TestAccess: an address that other hosts can reach needs networks or certificates.
func TestAccess(t *testing.T) {
	for _, c := range []struct {
		access Access
		want   string
	}{
		{Access{GRPC: "0.0.0.0:0", HTTPS: "127.0.0.1:0"}, "other hosts can reach 0.0.0.0"},
		{Access{GRPC: "127.0.0.1:0", HTTPS: "[::]:0"}, "other hosts can reach"},
		{Access{GRPC: "127.0.0.1", HTTPS: "127.0.0.1:0"}, "write ADDRESS:PORT"},
		{Access{GRPC: "127.0.0.1:0", HTTPS: "127.0.0.1:0", Certificate: "x"}, "--cert and --key together"},
		{Access{GRPC: "127.0.0.1:0", HTTPS: "127.0.0.1:0", ClientCA: "listen.go"}, "no certificate in PEM"},
		{Access{GRPC: "0.0.0.0:0", HTTPS: "127.0.0.1:0", Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, ""},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		err := New(engine.New(), nil).Serve(ctx, c.access, func(net.Addr, net.Addr) { cancel() })
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.access, err, c.want)
		}
		cancel()
	}
}

// fakeConn and fakeListener give connections from chosen addresses.
type fakeConn struct {
	net.Conn
	from   netip.Addr
	closed bool
}

func (c *fakeConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.from, 1))
}
func (c *fakeConn) Close() error { c.closed = true; return nil }

type fakeListener struct {
	net.Listener
	all []*fakeConn
}

func (l *fakeListener) Accept() (net.Conn, error) {
	if len(l.all) == 0 {
		return nil, io.EOF
	}
	c := l.all[0]
	l.all = l.all[1:]
	return c, nil
}

func TestNetworks(t *testing.T) {
	var all []*fakeConn
	for _, a := range []string{"192.0.2.1", "::ffff:192.0.2.2", "198.51.100.1", "127.0.0.1", "2001:db8::1"} {
		all = append(all, &fakeConn{from: netip.MustParseAddr(a)})
	}
	l := &listener{Listener: &fakeListener{all: all}, allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	accepted := 0
	for {
		if _, err := l.Accept(); err != nil {
			break
		}
		accepted++
	}
	if accepted != 3 || !all[2].closed || !all[4].closed || all[0].closed {
		t.Errorf("%d connections are accepted", accepted)
	}
}

// TestManyConnections: connections beyond the limit are closed, until others have ended.
func TestManyConnections(t *testing.T) {
	var all []*fakeConn
	for range maxConnections + 2 {
		all = append(all, &fakeConn{from: netip.IPv6Loopback()})
	}
	inner := &fakeListener{all: all[:maxConnections+1]}
	l := &listener{Listener: inner}
	var first net.Conn
	for i := range maxConnections {
		c, err := l.Accept()
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		first = c
	}
	if _, err := l.Accept(); err == nil || !all[maxConnections].closed {
		t.Error("a connection beyond the limit is accepted")
	}
	_, _ = first.Close(), first.Close()
	inner.all = all[maxConnections+1:]
	if _, err := l.Accept(); err != nil || l.open.Load() != maxConnections {
		t.Errorf("%v, %d open", err, l.open.Load())
	}
}

// TestHTTP: the form of errors and unknown paths, without a configuration.
func TestHTTP(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	addr, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- New(engine.New(), nil).Serve(ctx, Access{GRPC: "127.0.0.1:0", HTTPS: "127.0.0.1:0"}, func(_, h net.Addr) { addr <- h.String() })
	}()
	base := "https://" + <-addr
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for _, r := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", "/capabilities/version", "", 200, model.Version},
		{"GET", "/config", "", 200, "{}"},
		{"POST", "/config", `{"portz": []}`, 400, `"kind":"validation"`},
		{"POST", "/config", `{"ports": [{}, {"name": "a", "location": "eth0"}]}`, 400, "ports[0].location: is missing"},
		{"POST", "/config", `{"ports": [{"name": "a", "location": "eth0"}]}`, 400, "not started for this interface"},
		{"POST", "/control/state", ``, 400, "choice: is missing"},
		{"POST", "/monitor/metrics", `{"bgpv4": {}}`, 400, "bgpv4: roceotg supports only port"},
		{"POST", "/monitor/states", `{"bgp_prefixes": {}}`, 400, "bgp_prefixes: roceotg supports only ipv4_neighbors"},
		{"POST", "/monitor/capture", `{"port_name": "x"}`, 400, "is not configured"},
		{"PATCH", "/config/append", `{"config_append_list": [{"choice": "flows", "flows": [{"name": "x"}]}]}`, 400, "tx_rx: is missing"},
		{"PATCH", "/config/delete", `{"config_delete_list": [{"flows": ["x"]}]}`, 400, `is not a configured flow`},
		{"PATCH", "/config/delete", `{"config_delete_list": [{"flows": ["x", "y"]}]}`, 400, `flow \"y\": is not a configured flow`},
		{"PATCH", "/config", `{"flows": {"property_names": [77]}}`, 400, `flows.property_names[0]: 77: is not a value of the model`},
		{"POST", "/monitor/metrics", `{"rocev2_ipv4": {"per_peer": {"column_names": ["reject_rx"]}}}`, 400, "reject_rx: the model has no such metric"},
		{"POST", "/monitor/metrics", `{"flow": {"metric_names": ["rx_l1_rate_bps"]}}`, 200, "flow_metrics"},
		{"POST", "/control/state", `{"traffic": {"flow_transmit": {"state": "start"}}}`, 400, "nothing is configured"},
		{"PATCH", "/config", `{"flows": {}}`, 400, "property_names: is empty"},
		{"POST", "/monitor/states", `{"ipv4_neighbors": {"ethernet_names": ["x"]}}`, 400, `\"x\": is not configured; configured are none`},
		{"POST", "/control/state", `{"protocol": {"all": {"state": "start"}, "rocev2": {"peers": {"state": "up"}}}}`, 400, "all and rocev2 are set"},
		{"GET", "/nothing", "", 404, ""},
	} {
		q, err := http.NewRequest(r.method, base+r.path, strings.NewReader(r.body))
		if err != nil {
			t.Fatal(err)
		}
		a, err := c.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(a.Body)
		_ = a.Body.Close()
		if text := strings.ReplaceAll(string(b), `": "`, `":"`); err != nil || a.StatusCode != r.code || !strings.Contains(text, r.want) {
			t.Errorf("%s %s %s: %d %s, want %d %s", r.method, r.path, r.body, a.StatusCode, b, r.code, r.want)
		}
	}
	q, err := http.NewRequest("POST", base+"/config", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Origin", "https://192.0.2.1")
	a, err := c.Do(q)
	if err != nil || a.StatusCode != http.StatusForbidden {
		t.Errorf("a page of another site: %v, %v", a, err)
	}
	_ = a.Body.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestFailure: errors of the engine keep their causes apart.
func TestFailure(t *testing.T) {
	var f *failure
	if !errors.As(failed(errors.Join(errors.Join(errors.New("a"), errors.New("b")), errors.New("c"))), &f) || len(f.errors) != 3 || f.kind != otg.Error_Kind_internal {
		t.Errorf("%+v", f)
	}
	if !errors.As(refused(model.Errors{"a", "b", "c"}), &f) || len(f.errors) != 3 || f.kind != otg.Error_Kind_validation {
		t.Errorf("%+v", f)
	}
	if refused(nil) != nil {
		t.Error("no error is a failure")
	}
}
