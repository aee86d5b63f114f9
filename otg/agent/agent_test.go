package agent

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"roced.io/roced/otg/api"
	"roced.io/roced/otg/engine"
)

// fake is an engine that records its calls.
type fake struct {
	engine.Engine
	mu     sync.Mutex
	calls  []any
	closed chan bool
}

func (f *fake) record(v ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, v...)
	return nil
}

func (f *fake) Apply(c engine.Config) ([]string, error) {
	if len(c.Peers) > 0 {
		return nil, errors.Join(errors.New("one"), errors.New("two"))
	}
	return []string{"warning"}, f.record(c)
}
func (f *fake) Protocols(p []string, s engine.ProtocolState) error { return f.record(p, s) }
func (f *fake) Traffic(p []string, s engine.TrafficState) error    { return f.record(p, s) }
func (f *fake) SetLink(p []string, up bool) error                  { return f.record(p, up) }
func (f *fake) UpdateRawFlows(r []engine.RawFlow) error            { return f.record(r) }
func (f *fake) AddRawFlows(r []engine.RawFlow) error               { return f.record(r) }
func (f *fake) RemoveRawFlows(r []string) error                    { return f.record(r) }
func (f *fake) StartCapture(p []string) error                      { return f.record("start", p) }
func (f *fake) StopCapture(p []string) error                       { return f.record("stop", p) }
func (f *fake) Captured(p string) ([]byte, error)                  { return make([]byte, 5<<20), f.record(p) }
func (f *fake) PortMetrics() []engine.PortMetric                   { return []engine.PortMetric{{Name: "p"}} }
func (f *fake) PeerMetrics() []engine.PeerMetric                   { return []engine.PeerMetric{{Name: "r"}} }
func (f *fake) FlowMetrics() []engine.FlowMetric {
	return []engine.FlowMetric{{Name: "f", Source: netip.MustParseAddr("198.18.0.1"), First: time.Unix(1, 2).UTC(), FramesTx: 1 << 60}}
}
func (f *fake) RawFlowMetrics() []engine.RawFlowMetric { return []engine.RawFlowMetric{{Name: "w"}} }
func (f *fake) Neighbors() []engine.Neighbor {
	return []engine.Neighbor{{Interface: "i", Addr: netip.MustParseAddr("198.18.0.2"), MAC: [6]byte{2, 1}}}
}
func (f *fake) Ping(p []engine.Ping) ([]engine.Ping, error) { return p, nil }
func (f *fake) Err() error                                  { return nil }
func (f *fake) Close() error                                { f.closed <- true; return nil }

// serve starts an agent with a fake engine, and returns its address. stop ends it.
func serve(t *testing.T, a api.Access) (f *fake, address string, stop func()) {
	t.Helper()
	f = &fake{closed: make(chan bool, 10)}
	ctx, cancel := context.WithCancel(context.Background())
	addr, ended := make(chan string, 1), make(chan error, 1)
	a.GRPC = "127.0.0.1:0"
	go func() { ended <- Serve(ctx, a, f, []string{"eth*"}, func(a net.Addr) { addr <- a.String() }) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	select {
	case s := <-addr:
		return f, s, stop
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	return nil, "", nil
}

func dialer(t *testing.T, i Identity) func(string) (engine.Engine, error) {
	t.Helper()
	d, err := i.Dialer()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestMethods: each method reaches the engine with its arguments, and its results return.
func TestMethods(t *testing.T) {
	f, address, _ := serve(t, api.Access{})
	e, err := dialer(t, Identity{})(address)
	if err != nil {
		t.Fatal(err)
	}
	c := engine.Config{Ports: []engine.Port{{Name: "p", Device: "eth1", RoCE: engine.PortSettings{Timeout: 5}}},
		Interfaces: []engine.Interface{{MAC: [6]byte{2, 3}, Addresses: []engine.Address{{Prefix: netip.MustParsePrefix("fd00::1/64")}}}}}
	if w, err := e.Apply(c); err != nil || len(w) != 1 || w[0] != "agent "+address+": warning" {
		t.Errorf("%q, %v", w, err)
	}
	raw := []engine.RawFlow{{Name: "w", Frame: []byte{1, 2}, Resolve: netip.MustParseAddr("198.18.0.1")}}
	names := []string{"a", "b"}
	b, err := e.Captured("p")
	pings, pingErr := e.Ping([]engine.Ping{{Source: "a", Destination: netip.MustParseAddr("198.18.0.1"), OK: true}})
	if err := errors.Join(err, pingErr, e.Protocols(names, engine.Connect), e.Traffic(names, engine.Pause), e.SetLink(names, true), e.UpdateRawFlows(raw),
		e.AddRawFlows(raw), e.RemoveRawFlows(names), e.StartCapture(names), e.StopCapture(names), e.Err()); err != nil {
		t.Error(err)
	}
	want := []any{c, "p", names, engine.Connect, names, engine.Pause, names, true, raw, raw, names, "start", names, "stop", names}
	if !reflect.DeepEqual(f.calls, want) || len(b) != 5<<20 || len(pings) != 1 || !pings[0].OK {
		t.Errorf("calls %+v\nwant %+v", f.calls, want)
	}
	if !reflect.DeepEqual(e.PortMetrics(), f.PortMetrics()) || !reflect.DeepEqual(e.PeerMetrics(), f.PeerMetrics()) ||
		!reflect.DeepEqual(e.FlowMetrics(), f.FlowMetrics()) || !reflect.DeepEqual(e.RawFlowMetrics(), f.RawFlowMetrics()) ||
		!reflect.DeepEqual(e.Neighbors(), f.Neighbors()) {
		t.Errorf("metrics %+v, %+v", e.FlowMetrics(), e.Neighbors())
	}
	c.Peers = []engine.Peer{{}}
	if _, err := e.Apply(c); len(texts(err)) != 2 || texts(err)[1] != "agent "+address+": two" {
		t.Errorf("error %v", err)
	}
	c.Ports = append(c.Ports, engine.Port{Name: "q", Device: "lo", Location: "lo"}, engine.Port{Name: "r", Device: "eth1", Agent: "x:1"})
	if _, err := e.Apply(c); len(texts(err)) != 2 || !strings.Contains(err.Error(), "port q: location lo: the agent was not started for this interface") {
		t.Errorf("error %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	<-f.closed
}

// TestOneController: a second controller is refused until the first one has ended its session. An agent of another version is refused.
func TestOneController(t *testing.T) {
	f, address, _ := serve(t, api.Access{})
	dial := dialer(t, Identity{})
	e, err := dial(address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dial(address); err == nil || !strings.Contains(err.Error(), "agent "+address+": the agent has a controller, at 127.0.0.1:") {
		t.Errorf("error %v", err)
	}
	if err := e.Close(); err != nil || !<-f.closed {
		t.Error(err)
	}
	if e, err = dial(address); err != nil {
		t.Fatal(err)
	}
	for r, want := range map[*request]string{{Method: "hello", Version: "0"}: "the agent has version", {Method: "x"}: "is not a method", {Method: "apply"}: "no configuration"} {
		if _, err := e.(*client).call(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", r.Method, err)
		}
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestLost: an agent learns at once that its controller is gone, and a controller that its agent is. The error stays until the next
// session.
func TestLost(t *testing.T) {
	f, address, stop := serve(t, api.Access{})
	dial := dialer(t, Identity{})
	e, err := dial(address)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.(*client).conn.Close(); err != nil { // without an end of the session
		t.Error(err)
	}
	<-f.closed
	if e, err = dial(address); err != nil {
		t.Fatal(err)
	}
	stop()
	<-f.closed
	for range 2 {
		if err := e.Err(); err == nil || !strings.Contains(err.Error(), "agent "+address+": the session is lost: ") {
			t.Errorf("error %v", err)
		}
	}
	if m := e.FlowMetrics(); m != nil {
		t.Errorf("%+v", m)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if _, err := dial(address); err == nil || !strings.Contains(err.Error(), "agent "+address+": ") {
		t.Errorf("error %v", err)
	}
}

// certificates writes the certificate of an authority, and one for 127.0.0.1 that the authority has signed. It returns the files.
func certificates(t *testing.T) Identity {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := write("cert.pem", "CERTIFICATE", der)
	return Identity{Certificate: cert, Key: write("key.pem", "PRIVATE KEY", private), CA: cert}
}

// TestTLS: an agent with an authority accepts controllers with its certificate only, and controllers check the agent's certificate.
func TestTLS(t *testing.T) {
	good, other := certificates(t), certificates(t)
	_, address, _ := serve(t, api.Access{Certificate: good.Certificate, Key: good.Key, ClientCA: good.CA})
	e, err := dialer(t, good)(address)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	for _, i := range []Identity{{}, other, {Certificate: other.Certificate, Key: other.Key, CA: good.CA}, {Certificate: good.Certificate, Key: good.Key, CA: other.CA}} {
		if e, err := dialer(t, i)(address); err == nil {
			t.Errorf("%+v is accepted", i)
			_ = e.Close()
		}
	}
	for _, i := range []Identity{{Certificate: "x"}, {Certificate: good.Certificate, Key: good.Key, CA: "agent_test.go"}, {Certificate: "x", Key: "y", CA: "z"}} {
		if _, err := i.Dialer(); err == nil {
			t.Errorf("%+v is accepted", i)
		}
	}
	if err := Serve(context.Background(), api.Access{GRPC: "0.0.0.0:0"}, nil, nil, nil); err == nil || !strings.Contains(err.Error(), "other hosts can reach") {
		t.Errorf("error %v", err)
	}
}
