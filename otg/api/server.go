// Package api serves Open Traffic Generator's API by gRPC and by HTTPS with JSON. Both call the same operations.
package api

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/open-traffic-generator/snappi/gosnappi/otg"
	"google.golang.org/protobuf/proto"

	"roced.io/roced/internal/base/version"
	"roced.io/roced/otg/engine"
	"roced.io/roced/otg/model"
)

// Server has the operations of the API. It runs one configuration at a time.
type Server struct {
	engine  engine.Engine
	allowed []string

	mu     sync.Mutex // one request changes the configuration at a time
	config *otg.Config
	parts  engine.Config // the translation of config
}

// New returns a server that uses the interfaces that match the patterns.
func New(e engine.Engine, allowed []string) *Server {
	return &Server{engine: e, allowed: allowed, config: &otg.Config{}}
}

// failure is an error of an operation in OTG's form.
type failure struct {
	kind   otg.Error_Kind_Enum
	errors []string
}

func (f *failure) Error() string { return f.message(0).String() }

// message returns OTG's error with the code of the transport.
func (f *failure) message(code int32) *otg.Error {
	return &otg.Error{Code: &code, Kind: f.kind.Enum(), Errors: f.errors}
}

// refused returns an error of a request that is wrong.
func refused(err error) error { return fail(otg.Error_Kind_validation, err) }

// failed returns an error of the engine.
func failed(err error) error { return fail(otg.Error_Kind_internal, err) }

func fail(kind otg.Error_Kind_Enum, err error) error {
	if err == nil {
		return nil
	}
	f := &failure{kind: kind}
	var all model.Errors
	if errors.As(err, &all) {
		f.errors = all
		return f
	}
	f.errors = causes(err)
	return f
}

// causes returns the errors that errors.Join has joined, in order.
func causes(err error) (all []string) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []string{err.Error()}
	}
	for _, e := range joined.Unwrap() {
		all = append(all, causes(e)...)
	}
	return all
}

func warning(list []string) *otg.Warning { return &otg.Warning{Warnings: list} }

// SetConfig replaces the configuration.
func (s *Server) SetConfig(c *otg.Config) (*otg.Warning, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts, warnings, err := model.Translate(c, s.allowed)
	if err != nil {
		return nil, refused(err)
	}
	more, err := s.engine.Apply(parts)
	if err != nil {
		s.config, s.parts = &otg.Config{}, engine.Config{}
		return nil, failed(err)
	}
	s.config, s.parts = c, parts
	return warning(append(warnings, more...)), nil
}

// GetConfig returns the configuration with its defaults.
func (s *Server) GetConfig() *otg.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return proto.Clone(s.config).(*otg.Config)
}

// change translates a changed copy of the configuration, lets apply change the engine, and keeps the copy.
func (s *Server) change(edit func(*otg.Config) error, apply func(engine.Config) error) (*otg.Warning, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := proto.Clone(s.config).(*otg.Config)
	if err := edit(c); err != nil {
		return nil, refused(err)
	}
	parts, warnings, err := model.Translate(c, s.allowed)
	if err != nil {
		return nil, refused(err)
	}
	if err := apply(parts); err != nil {
		return nil, failed(err)
	}
	s.config, s.parts = c, parts
	return warning(warnings), nil
}

// UpdateConfig replaces rate and size of flows, also while they run.
func (s *Server) UpdateConfig(u *otg.ConfigUpdate) (*otg.Warning, error) {
	if err := model.Check(u); err != nil {
		return nil, refused(err)
	}
	if len(u.GetFlows().GetPropertyNames()) == 0 {
		return nil, refused(errors.New("flows.property_names: is empty; name rate, size, or both"))
	}
	updated := map[string]bool{}
	return s.change(func(c *otg.Config) error {
		var unknown model.Errors
		for _, f := range u.GetFlows().GetFlows() {
			i := slices.IndexFunc(c.Flows, func(old *otg.Flow) bool { return old.GetName() == f.GetName() })
			if i < 0 {
				unknown = append(unknown, unknownFlow(f.GetName()))
				continue
			}
			updated[f.GetName()] = true
			for _, p := range u.GetFlows().GetPropertyNames() {
				if p == otg.FlowsUpdate_PropertyNames_rate {
					c.Flows[i].Rate = f.Rate
				} else {
					c.Flows[i].Size = f.Size
				}
			}
		}
		return unknown.OrNil()
	}, func(parts engine.Config) error {
		return s.engine.UpdateRawFlows(slices.DeleteFunc(slices.Clone(parts.RawFlows), func(f engine.RawFlow) bool { return !updated[f.Name] }))
	})
}

func unknownFlow(name string) string {
	return fmt.Sprintf("flow %q: is not a configured flow of plain frames", name)
}

// AppendConfig adds flows of plain frames.
func (s *Server) AppendConfig(a *otg.ConfigAppend) (*otg.Warning, error) {
	if err := model.Check(a); err != nil {
		return nil, refused(err)
	}
	old := 0
	return s.change(func(c *otg.Config) error {
		old = len(c.Flows)
		for _, r := range a.GetConfigAppendList() {
			c.Flows = append(c.Flows, r.GetFlows()...)
		}
		return nil
	}, func(parts engine.Config) error { return s.engine.AddRawFlows(parts.RawFlows[old:]) })
}

// DeleteConfig removes flows of plain frames.
func (s *Server) DeleteConfig(d *otg.ConfigDelete) (*otg.Warning, error) {
	if err := model.Check(d); err != nil {
		return nil, refused(err)
	}
	var gone []string
	return s.change(func(c *otg.Config) error {
		var unknown model.Errors
		for _, r := range d.GetConfigDeleteList() {
			for _, name := range r.GetFlows() {
				n := len(c.Flows)
				c.Flows = slices.DeleteFunc(c.Flows, func(f *otg.Flow) bool { return f.GetName() == name })
				if len(c.Flows) == n {
					unknown = append(unknown, unknownFlow(name))
				}
				gone = append(gone, name)
			}
		}
		return unknown.OrNil()
	}, func(engine.Config) error { return s.engine.RemoveRawFlows(gone) })
}

// SetControlState starts and stops connections, flows and captures, and sets links.
func (s *Server) SetControlState(c *otg.ControlState) (*otg.Warning, error) {
	if err := model.Check(c); err != nil {
		return nil, refused(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var run func() error
	var wanted, known []string
	switch {
	case c.GetTraffic() != nil:
		t := c.GetTraffic().GetFlowTransmit()
		states := map[string]engine.TrafficState{"start": engine.Start, "stop": engine.Stop, "pause": engine.Pause, "resume": engine.Resume}
		var transmit []string
		wanted = t.GetFlowNames()
		transmit, known = s.flowNames()
		run = func() error { return s.traffic(wanted, transmit, states[t.GetState().String()]) }
	case c.GetProtocol().GetRocev2() != nil && c.GetProtocol().GetAll() != nil:
		return nil, refused(errors.New("protocol: all and rocev2 are set; remove one of them"))
	case c.GetProtocol().GetRocev2() != nil:
		p := c.GetProtocol().GetRocev2().GetPeers()
		wanted = p.GetPeerNames()
		for _, peer := range s.parts.Peers {
			known = append(known, peer.Name)
		}
		run = func() error {
			return s.engine.Protocols(wanted, connects(p.GetState() == otg.StateProtocolRocev2Peers_State_up))
		}
	case c.GetProtocol().GetAll() != nil:
		run = func() error {
			return s.engine.Protocols(nil, connects(c.GetProtocol().GetAll().GetState() == otg.StateProtocolAll_State_start))
		}
	case c.GetPort().GetLink() != nil:
		wanted, known = c.GetPort().GetLink().GetPortNames(), s.portNames()
		run = func() error {
			return s.engine.SetLink(wanted, c.GetPort().GetLink().GetState() == otg.StatePortLink_State_up)
		}
	case c.GetPort().GetCapture() != nil:
		wanted, known = c.GetPort().GetCapture().GetPortNames(), s.captured()
		run = func() error { return s.engine.StopCapture(wanted) }
		if c.GetPort().GetCapture().GetState() == otg.StatePortCapture_State_start {
			run = func() error { return s.engine.StartCapture(wanted) }
		}
	default:
		return nil, refused(errors.New("the request has no state; set port, protocol or traffic"))
	}
	if err := all(wanted, known); err != nil {
		return nil, refused(err)
	}
	if len(s.parts.Ports) == 0 {
		return nil, refused(errors.New("nothing is configured: set a configuration with ports first"))
	}
	if c.GetPort().GetLink() != nil {
		if err := model.CheckLinks(wanted, &s.parts); err != nil {
			return nil, refused(err)
		}
	}
	return warning(nil), failed(run())
}

// connects returns the command to queue pairs.
func connects(up bool) engine.ProtocolState {
	if up {
		return engine.Connect
	}
	return engine.Disconnect
}

// all returns an error for each wanted name that is not known.
func all(wanted, known []string) error {
	var unknown model.Errors
	for _, w := range wanted {
		if !slices.Contains(known, w) {
			unknown = append(unknown, fmt.Sprintf("%q: is not configured; configured are %s", w, model.ListOf(known)))
		}
	}
	return unknown.OrNil()
}

// flowNames returns the names of flows: of those that can transmit, and of all.
func (s *Server) flowNames() (transmit, all []string) {
	for _, f := range s.parts.Flows {
		transmit = append(transmit, f.Name)
	}
	for _, f := range s.parts.RawFlows {
		transmit = append(transmit, f.Name)
	}
	all = slices.Clone(transmit)
	for _, r := range s.config.GetStatefulFlows().GetRocev2() {
		for _, p := range r.GetTxPorts() {
			for _, f := range p.GetTransmitType().GetTargetLineRate().GetFlows() {
				all = append(all, f.GetName())
			}
		}
	}
	return transmit, all
}

// traffic commands the wanted flows, all without names. Flows that cannot transmit do nothing.
func (s *Server) traffic(wanted, transmit []string, state engine.TrafficState) error {
	able := slices.DeleteFunc(slices.Clone(wanted), func(n string) bool { return !slices.Contains(transmit, n) })
	if len(able) == 0 && len(wanted) > 0 {
		return nil
	}
	return s.engine.Traffic(able, state)
}

func (s *Server) portNames() (out []string) {
	for _, p := range s.parts.Ports {
		out = append(out, p.Name)
	}
	return out
}

// captured returns the ports that captures name.
func (s *Server) captured() (out []string) {
	for _, c := range s.parts.Captures {
		out = append(out, c.Ports...)
	}
	return out
}

// SetControlAction sends ICMP echoes, the only action of the model that concerns RoCEv2's networks.
func (s *Server) SetControlAction(a *otg.ControlAction) (*otg.ControlActionResponse, error) {
	if err := model.Check(a); err != nil {
		return nil, refused(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	pings, err := model.Pings(a, &s.parts)
	if err != nil {
		return nil, refused(err)
	}
	if len(pings) > 0 {
		if pings, err = s.engine.Ping(pings); err != nil {
			return nil, failed(err)
		}
	}
	return model.PingResponse(a, pings), nil
}

// GetMetrics returns metrics of ports, peers or flows.
func (s *Server) GetMetrics(r *otg.MetricsRequest) (*otg.MetricsResponse, error) {
	if err := model.Check(r); err != nil {
		return nil, refused(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.engine.Err(); err != nil {
		return nil, failed(err)
	}
	m, err := model.Metrics(r, &s.parts, s.engine)
	return m, refused(err)
}

// GetStates returns resolved addresses.
func (s *Server) GetStates(r *otg.StatesRequest) (*otg.StatesResponse, error) {
	if err := model.Check(r); err != nil {
		return nil, refused(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var interfaces []string
	for _, i := range s.parts.Interfaces {
		interfaces = append(interfaces, i.Name)
	}
	if err := all(append(r.GetIpv4Neighbors().GetEthernetNames(), r.GetIpv6Neighbors().GetEthernetNames()...), interfaces); err != nil {
		return nil, refused(err)
	}
	if err := s.engine.Err(); err != nil {
		return nil, failed(err)
	}
	return model.States(r, s.engine), nil
}

// GetCapture returns the capture of a port.
func (s *Server) GetCapture(r *otg.CaptureRequest) ([]byte, error) {
	if err := model.Check(r); err != nil {
		return nil, refused(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := all([]string{r.GetPortName()}, s.captured()); err != nil {
		return nil, refused(err)
	}
	b, err := s.engine.Captured(r.GetPortName())
	return b, failed(err)
}

// GetVersion returns the versions of the model and of roceotg.
func (s *Server) GetVersion() *otg.Version {
	return &otg.Version{ApiSpecVersion: proto.String(model.Version), SdkVersion: proto.String(model.Version),
		AppVersion: proto.String(version.Number)}
}
