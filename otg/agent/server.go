package agent

import (
	"context"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"roced.io/roced/internal/base/version"
	"roced.io/roced/otg/api"
	"roced.io/roced/otg/engine"
)

// server serves one controller at a time.
type server struct {
	engine    engine.Engine
	permitted []string // patterns of interfaces

	mu         sync.Mutex
	controller string // its address; empty: none
}

// Serve serves controllers until ctx is done. The engine uses only interfaces that match the patterns. ready is called with the address.
func Serve(ctx context.Context, a api.Access, e engine.Engine, permitted []string, ready func(net.Addr)) error {
	l, err := a.Listen(a.GRPC)
	if err != nil {
		return err
	}
	defer l.Close()
	options := []grpc.ServerOption{grpc.ForceServerCodec(codec{}), grpc.MaxRecvMsgSize(maxRequest), grpc.MaxSendMsgSize(maxReply),
		grpc.MaxConcurrentStreams(1), grpc.KeepaliveParams(keepalive.ServerParameters{Time: alive, Timeout: aliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: alive / 2})}
	if a.ClientCA != "" {
		config, err := a.TLS()
		if err != nil {
			return err
		}
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	g := grpc.NewServer(options...)
	g.RegisterService(&description, &server{engine: e, permitted: permitted})
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(l) }()
	ready(l.Addr())
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	g.Stop()
	return err
}

// begin makes a controller the only one.
func (s *server) begin(controller string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.controller != "" {
		return status.Errorf(codes.FailedPrecondition, "the agent has a controller, at %s; end its session first", s.controller)
	}
	s.controller = controller
	return nil
}

// end stops everything that the controller has configured.
func (s *server) end() {
	err := s.engine.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.controller = ""
	_ = err // nobody is left to learn it
}

// session serves a controller until its stream ends.
func (s *server) session(stream grpc.ServerStream) error {
	from := "an unknown address"
	if p, ok := peer.FromContext(stream.Context()); ok {
		from = p.Addr.String()
	}
	if err := s.begin(from); err != nil {
		return err
	}
	defer s.end()
	for {
		var r request
		if err := stream.RecvMsg(&r); err != nil {
			return nil // the controller is gone, or has ended the session
		}
		if err := stream.SendMsg(s.serve(&r)); err != nil {
			return err
		}
	}
}

// serve runs a method.
func (s *server) serve(r *request) *reply {
	var a reply
	var err error
	e := s.engine
	switch r.Method {
	case "hello":
		if r.Version != version.Number {
			err = fmt.Errorf("the agent has version %s, and the controller %s; use equal ones", version.Number, r.Version)
		}
	case "apply":
		if err = s.check(r.Config); err == nil {
			a.Warnings, err = e.Apply(*r.Config)
		}
	case "protocols":
		err = e.Protocols(r.Names, r.Connect)
	case "traffic":
		err = e.Traffic(r.Names, r.Traffic)
	case "link":
		err = e.SetLink(r.Names, r.Up)
	case "update":
		err = e.UpdateRawFlows(r.Raw)
	case "add":
		err = e.AddRawFlows(r.Raw)
	case "remove":
		err = e.RemoveRawFlows(r.Names)
	case "capture":
		err = e.StartCapture(r.Names)
	case "end capture":
		err = e.StopCapture(r.Names)
	case "captured":
		if len(r.Names) == 1 {
			a.File, err = e.Captured(r.Names[0])
		}
	case "ping":
		a.Pings, err = e.Ping(r.Pings)
	case "metrics":
		a.Ports, a.Peers, a.Flows, a.Raw, a.Neighbors = e.PortMetrics(), e.PeerMetrics(), e.FlowMetrics(), e.RawFlowMetrics(), e.Neighbors()
		err = e.Err()
	default:
		err = fmt.Errorf("%q: is not a method of agents", r.Method)
	}
	a.Errors = texts(err)
	return &a
}

// check refuses ports that the agent was not started for.
func (s *server) check(c *engine.Config) error {
	var refused reply
	if c == nil {
		return fmt.Errorf("the request has no configuration")
	}
	for i := range c.Ports {
		if p := &c.Ports[i]; p.Agent != "" || !p.Permitted(s.permitted) {
			refused.Errors = append(refused.Errors, fmt.Sprintf("port %s: location %s: the agent was not started for this interface; "+
				"start it with this interface", p.Name, p.Location))
		}
	}
	return refused.failure()
}
