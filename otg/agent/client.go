package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"roced.io/roced/internal/base/bounded"
	"roced.io/roced/internal/base/version"
	"roced.io/roced/otg/api"
	"roced.io/roced/otg/engine"
	"roced.io/roced/otg/fleet"
)

// Identity has the files in PEM of a controller: its certificate and key, and the authority of agents' certificates. All are empty
// for agents without TLS.
type Identity struct{ Certificate, Key, CA string }

// credentials returns the security of connections.
func (i *Identity) credentials() (credentials.TransportCredentials, error) {
	if *i == (Identity{}) {
		return insecure.NewCredentials(), nil
	}
	if i.Certificate == "" || i.Key == "" || i.CA == "" {
		return nil, errors.New("TLS with agents needs -agent-cert, -agent-key and -agent-ca together")
	}
	own, err := api.KeyPair(i.Certificate, i.Key)
	if err != nil {
		return nil, err
	}
	pem, err := bounded.ReadFile(i.CA, bounded.Text)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: has no certificate in PEM", i.CA)
	}
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}, RootCAs: pool}), nil
}

// Dialer returns a function that connects to agents.
func (i *Identity) Dialer() (fleet.Dial, error) {
	security, err := i.credentials()
	if err != nil {
		return nil, err
	}
	return func(address string) (engine.Engine, error) { return dial(address, security) }, nil
}

// connectTime bounds an attempt to connect.
const connectTime = 5 * time.Second

// client is the engine of an agent.
type client struct {
	address string
	conn    *grpc.ClientConn
	end     context.CancelFunc

	mu     sync.Mutex
	stream grpc.ClientStream
	lost   error
}

// dial begins a session.
func dial(address string, security credentials.TransportCredentials) (engine.Engine, error) {
	c := &client{address: address}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(security), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(codec{}), grpc.MaxCallRecvMsgSize(maxReply), grpc.MaxCallSendMsgSize(maxRequest)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTime}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: alive, Timeout: aliveTimeout}))
	if err != nil {
		return nil, c.named(err)
	}
	var ctx context.Context
	ctx, c.end = context.WithCancel(context.Background())
	c.conn = conn
	c.stream, err = conn.NewStream(ctx, &description.Streams[0], "/"+service+"/"+stream)
	if err == nil {
		var a *reply
		a, err = c.exchange(&request{Method: "hello", Version: version.Number})
		if err == nil {
			err = a.failure()
		}
	}
	if err != nil {
		c.end()
		_ = conn.Close()
		return nil, c.named(errors.New(status.Convert(err).Message()))
	}
	return c, nil
}

// exchange sends a request and receives the reply.
func (c *client) exchange(r *request) (*reply, error) {
	var a reply
	err := c.stream.SendMsg(r)
	if err == nil || err == io.EOF { // RecvMsg has the reason of EOF
		err = c.stream.RecvMsg(&a)
	}
	return &a, err
}

// call runs a method of the agent.
func (c *client) call(r *request) (*reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost != nil {
		return &reply{}, c.lost
	}
	a, err := c.exchange(r)
	if err != nil {
		c.lost = fmt.Errorf("the session is lost: %s; set the configuration again", status.Convert(err).Message())
		return &reply{}, c.lost
	}
	return a, a.failure()
}

// do runs a method without results.
func (c *client) do(r *request) error {
	_, err := c.call(r)
	return c.named(err)
}

// named names the agent in each error.
func (c *client) named(err error) error {
	var errs []error
	for _, t := range texts(err) {
		errs = append(errs, fmt.Errorf("agent %s: %s", c.address, t))
	}
	return errors.Join(errs...)
}

// Apply implements engine.Engine.
func (c *client) Apply(config engine.Config) ([]string, error) {
	a, err := c.call(&request{Method: "apply", Config: &config})
	for i, w := range a.Warnings {
		a.Warnings[i] = fmt.Sprintf("agent %s: %s", c.address, w)
	}
	return a.Warnings, c.named(err)
}

// Protocols implements engine.Engine.
func (c *client) Protocols(peers []string, state engine.ProtocolState) error {
	return c.do(&request{Method: "protocols", Names: peers, Connect: state})
}

// Traffic implements engine.Engine.
func (c *client) Traffic(flows []string, state engine.TrafficState) error {
	return c.do(&request{Method: "traffic", Names: flows, Traffic: state})
}

// SetLink implements engine.Engine.
func (c *client) SetLink(ports []string, up bool) error {
	return c.do(&request{Method: "link", Names: ports, Up: up})
}

// UpdateRawFlows implements engine.Engine.
func (c *client) UpdateRawFlows(all []engine.RawFlow) error {
	return c.do(&request{Method: "update", Raw: all})
}

// AddRawFlows implements engine.Engine.
func (c *client) AddRawFlows(all []engine.RawFlow) error {
	return c.do(&request{Method: "add", Raw: all})
}

// RemoveRawFlows implements engine.Engine.
func (c *client) RemoveRawFlows(names []string) error {
	return c.do(&request{Method: "remove", Names: names})
}

// StartCapture implements engine.Engine.
func (c *client) StartCapture(ports []string) error {
	return c.do(&request{Method: "capture", Names: ports})
}

// StopCapture implements engine.Engine.
func (c *client) StopCapture(ports []string) error {
	return c.do(&request{Method: "end capture", Names: ports})
}

// Captured implements engine.Engine.
func (c *client) Captured(port string) ([]byte, error) {
	a, err := c.call(&request{Method: "captured", Names: []string{port}})
	return a.File, c.named(err)
}

// Ping implements engine.Engine.
func (c *client) Ping(all []engine.Ping) ([]engine.Ping, error) {
	a, err := c.call(&request{Method: "ping", Pings: all})
	return a.Pings, c.named(err)
}

// metrics returns all metrics. Err has the error.
func (c *client) metrics() *reply {
	a, _ := c.call(&request{Method: "metrics"})
	return a
}

// PortMetrics implements engine.Engine.
func (c *client) PortMetrics() []engine.PortMetric { return c.metrics().Ports }

// PeerMetrics implements engine.Engine.
func (c *client) PeerMetrics() []engine.PeerMetric { return c.metrics().Peers }

// FlowMetrics implements engine.Engine.
func (c *client) FlowMetrics() []engine.FlowMetric { return c.metrics().Flows }

// RawFlowMetrics implements engine.Engine.
func (c *client) RawFlowMetrics() []engine.RawFlowMetric { return c.metrics().Raw }

// Neighbors implements engine.Engine.
func (c *client) Neighbors() []engine.Neighbor { return c.metrics().Neighbors }

// Err implements engine.Engine.
func (c *client) Err() error {
	_, err := c.call(&request{Method: "metrics"})
	return c.named(err)
}

// Close implements engine.Engine. It returns when the agent has stopped everything, or is lost.
func (c *client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost == nil && c.stream.CloseSend() == nil {
		_ = c.stream.RecvMsg(&reply{}) // io.EOF
	}
	c.end()
	return c.conn.Close()
}
