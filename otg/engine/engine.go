package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/daemon/shard"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// engine implements Engine. All NICs are on one shard, so that their counters need no locks and have one clock.
type engine struct {
	mu  sync.Mutex
	run *running // nil: nothing is configured
}

// running is an applied configuration.
type running struct {
	cfg      Config
	ports    map[string]*testPort
	hosts    []*host
	nics     []*shard.NIC
	peers    []*peer
	pairs    map[string]*pair
	flows    []*flow
	raws     map[string]*rawFlow
	rawOrder []string
}

// ErrNothing is the error of commands before a configuration.
var ErrNothing = errors.New("nothing is configured: apply a configuration first")

// New returns an engine without a configuration.
func New() Engine { return &engine{} }

// wallOffset is the wall clock at time 0 of the shards.
var wallOffset = time.Now().Add(-time.Duration(shard.Now()))

// wall converts a time of the shards. The zero Time stays zero.
func wall(t mono.Time) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return wallOffset.Add(time.Duration(t))
}

// do runs f on the shard.
func (e *engine) do(f func(now mono.Time) error) (err error) {
	if e.run == nil || len(e.run.nics) == 0 {
		return ErrNothing
	}
	derr := e.run.nics[0].Do(context.Background(), func(now mono.Time, _ *rocev2.NIC) { err = f(now) })
	return cmp.Or(derr, err)
}

// Apply implements Engine.
func (e *engine) Apply(c Config) (warnings []string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.stop(); err != nil {
		return nil, err
	}
	e.run = &running{cfg: c, ports: map[string]*testPort{}, pairs: map[string]*pair{}, raws: map[string]*rawFlow{}}
	warnings, err = e.start()
	if err != nil {
		return nil, errors.Join(err, e.stop())
	}
	if c.AutoStart {
		err = e.protocols(nil, Connect)
	}
	return warnings, err
}

// start makes the objects of the configuration.
func (e *engine) start() (warnings []string, err error) {
	r := e.run
	for _, f := range []func() error{r.openPorts, r.makeHosts, r.makePeers, r.makeFlows, r.startNICs, e.makePairs, e.makeRaws} {
		if err := f(); err != nil {
			return nil, err
		}
	}
	for _, p := range r.order() {
		warnings = append(warnings, p.mapped...)
	}
	for _, h := range r.hosts {
		warnings = append(warnings, h.unused()...)
	}
	return warnings, nil
}

func (r *running) openPorts() error {
	var errs []error
	for i := range r.cfg.Ports {
		p, err := openPort(&r.cfg.Ports[i], r.cfg.addrs(r.cfg.Ports[i].Name))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		r.ports[p.cfg.Name] = p
	}
	for _, c := range r.cfg.Captures {
		for _, n := range c.Ports {
			if p := r.ports[n]; p != nil {
				p.cap = &recording{cfg: c}
			} else {
				errs = append(errs, fmt.Errorf("capture: no port %q", n))
			}
		}
	}
	return errors.Join(errs...)
}

// addrs returns the addresses of the interfaces of a port.
func (c *Config) addrs(port string) (all []netip.Addr) {
	for i := range c.Interfaces {
		if c.Interfaces[i].Port != port {
			continue
		}
		for _, a := range c.Interfaces[i].Addresses {
			all = append(all, a.Prefix.Addr())
		}
	}
	return all
}

func (r *running) makeHosts() error {
	var errs []error
	for i := range r.cfg.Interfaces {
		c := &r.cfg.Interfaces[i]
		p := r.ports[c.Port]
		if p == nil {
			errs = append(errs, fmt.Errorf("interface %s: no port %q", c.Name, c.Port))
			continue
		}
		if err := c.Check(p.cfg.Kind); err != nil {
			errs = append(errs, err)
			continue
		}
		h, err := newHost(c, p)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		r.hosts = append(r.hosts, h)
	}
	return errors.Join(errs...)
}

// address returns the address of a name with its interface.
func (r *running) address(name string) (*host, Address, bool) {
	for _, h := range r.hosts {
		for _, a := range h.cfg.Addresses {
			if a.Name == name {
				return h, a, true
			}
		}
	}
	return nil, Address{}, false
}

func (r *running) makePeers() error {
	var errs []error
	for i := range r.cfg.Peers {
		c := r.cfg.Peers[i]
		h, a, ok := r.address(c.Address)
		if !ok {
			errs = append(errs, fmt.Errorf("peer %s: no address %q", c.Name, c.Address))
			continue
		}
		if most := h.core.PortAttr().ActiveMTU.Bytes(); c.PathMTU > most {
			h.port.mapped = append(h.port.mapped, fmt.Sprintf("peer %s: path MTU %d: using %d, which fits into %s", c.Name, c.PathMTU, most, h.cfg.Name))
			c.PathMTU = most
		}
		p := &peer{cfg: c, host: h, address: a}
		h.peers, r.peers = append(h.peers, p), append(r.peers, p)
		for _, q := range c.QueuePairs {
			if r.pairs[q.Name] != nil {
				errs = append(errs, fmt.Errorf("queue pair %s: a name of two queue pairs", q.Name))
			}
			x := &pair{cfg: q, peer: p, host: h}
			r.pairs[q.Name], p.pairs = x, append(p.pairs, x)
		}
	}
	for _, q := range r.pairs {
		if q.cfg.Elsewhere {
			continue
		}
		if q.remote = r.pairs[q.cfg.Remote]; q.remote == nil && q.cfg.Remote != "" {
			errs = append(errs, fmt.Errorf("queue pair %s: no queue pair %q at the other end", q.cfg.Name, q.cfg.Remote))
		}
	}
	return errors.Join(errs...)
}

func (r *running) makeFlows() error {
	var errs []error
	for _, c := range r.cfg.Flows {
		bad := func(format string, a ...any) {
			errs = append(errs, fmt.Errorf("flow %s: %s", c.Name, fmt.Sprintf(format, a...)))
		}
		q := r.pairs[c.QueuePair]
		switch {
		case q == nil:
			bad("no queue pair %q", c.QueuePair)
			continue
		case c.Port != "" && c.Port != q.host.cfg.Port:
			bad("port %s: queue pair %s is on port %s", c.Port, c.QueuePair, q.host.cfg.Port)
		case c.Size < 1 || c.Size > maxMessage:
			bad("message of %d bytes: must have 1 to %d", c.Size, uint32(maxMessage))
		case c.LineRate < 0:
			bad("rate %v: must not be negative", c.LineRate)
		case !c.Far && len(q.flows) > 0 && q.read != (c.Verb == Read):
			bad("queue pair %s has flows that read and others: use another queue pair", c.QueuePair)
		}
		f := &flow{cfg: c, port: q.host.port, pair: q}
		r.flows = append(r.flows, f)
		if c.Far {
			q.incoming = append(q.incoming, f)
			continue
		}
		q.read = c.Verb == Read
		q.flows = append(q.flows, f)
		if data := q.sender(); data != nil && data.stamps == nil && q.remote != nil {
			data.stamps = make([]stamp, stampsKept)
		}
	}
	type key struct {
		port  *testPort
		group int
	}
	groups := map[key][]*flow{}
	for _, f := range r.flows {
		if k := (key{f.port, f.cfg.Group}); !f.cfg.Far {
			groups[k] = append(groups[k], f)
		}
	}
	for _, f := range r.flows {
		if !f.cfg.Far {
			f.group = groups[key{f.port, f.cfg.Group}]
		}
	}
	return errors.Join(errs...)
}

// sender returns the queue pair that sends the data of the flows of q, nil if it is elsewhere.
func (q *pair) sender() *pair {
	if q.read {
		return q.remote
	}
	return q
}

// startNICs starts the NICs of interfaces, and one without addresses for each port without interfaces.
func (r *running) startNICs() error {
	var beside *shard.NIC
	for _, p := range r.order() {
		if len(p.faces) > 0 {
			continue
		}
		f := p.addFace(inet.MAC{2, 0, 0, 0, 0, 1}, nil)
		core, err := rocev2.New(rocev2.Config{Name: p.cfg.Name, MAC: f.mac, MTU: cmp.Or(p.link.State().MTU, p.cfg.MTU, 1500)})
		if err != nil {
			return fmt.Errorf("port %s: %w", p.cfg.Name, err)
		}
		n, err := shard.New(shard.Config{NIC: core, Port: f, Beside: beside})
		if err != nil {
			return fmt.Errorf("port %s: %w", p.cfg.Name, err)
		}
		beside = cmp.Or(beside, n)
		r.nics = append(r.nics, n)
	}
	for _, h := range r.hosts {
		if err := h.start(beside); err != nil {
			return err
		}
		beside = cmp.Or(beside, h.nic)
		r.nics = append(r.nics, h.nic)
	}
	return nil
}

// order returns the ports in the order of the configuration.
func (r *running) order() (all []*testPort) {
	for _, c := range r.cfg.Ports {
		if p := r.ports[c.Name]; p != nil {
			all = append(all, p)
		}
	}
	return all
}

// makePairs makes the queue pairs.
func (e *engine) makePairs() error {
	if len(e.run.pairs) == 0 {
		return nil
	}
	return e.do(func(mono.Time) error {
		var errs []error
		for _, p := range e.run.peers {
			for _, q := range p.pairs {
				errs = append(errs, q.create())
			}
		}
		return errors.Join(errs...)
	})
}

func (e *engine) makeRaws() error {
	var errs []error
	for i := range e.run.cfg.RawFlows {
		errs = append(errs, e.addRaw(&e.run.cfg.RawFlows[i]))
	}
	return errors.Join(errs...)
}

// stop ends everything that runs.
func (e *engine) stop() error {
	r := e.run
	if r == nil {
		return nil
	}
	var errs []error
	if len(r.nics) > 0 {
		_ = e.do(func(now mono.Time) error {
			for _, q := range r.pairs {
				if q.q != nil {
					q.up = false
					q.disconnect(now)
				}
			}
			return nil
		})
		_ = e.do(func(mono.Time) error { return nil }) // the requests to disconnect leave
	}
	for _, n := range slices.Backward(r.nics) {
		errs = append(errs, n.Close())
	}
	for _, p := range r.ports {
		errs = append(errs, p.close())
	}
	e.run = nil
	return errors.Join(errs...)
}

// Close implements Engine.
func (e *engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stop()
}

// Protocols implements Engine.
func (e *engine) Protocols(peers []string, state ProtocolState) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.protocols(peers, state)
}

// Err implements Engine.
func (e *engine) Err() error { return nil }

func (e *engine) protocols(names []string, state ProtocolState) error {
	if e.run == nil {
		return ErrNothing
	}
	errs := missing("peer", names, func(n string) bool {
		return slices.ContainsFunc(e.run.peers, func(p *peer) bool { return p.cfg.Name == n })
	})
	if errs != nil || len(e.run.nics) == 0 {
		return errs
	}
	return e.do(func(now mono.Time) error {
		var chosen []*pair
		for _, p := range e.run.peers {
			if len(names) == 0 || slices.Contains(names, p.cfg.Name) {
				chosen = append(chosen, p.pairs...)
			}
		}
		for _, q := range chosen {
			if state == Disconnect {
				q.up = false
				q.disconnect(now)
			} else {
				q.accept(now)
			}
		}
		if state == Connect {
			for _, q := range chosen {
				q.connect(now)
			}
		}
		return nil
	})
}

// missing returns an error for each name that does not exist.
func missing(kind string, names []string, exists func(string) bool) error {
	var errs []error
	for _, n := range names {
		if !exists(n) {
			errs = append(errs, fmt.Errorf("no %s %q", kind, n))
		}
	}
	return errors.Join(errs...)
}

// SetLink implements Engine.
func (e *engine) SetLink(names []string, up bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	ports, err := e.portsBy(names)
	if err != nil || len(e.run.nics) == 0 {
		return err
	}
	return e.do(func(mono.Time) error {
		for _, p := range ports {
			p.down = !up
		}
		return nil
	})
}

// portsBy returns ports by name, all without names.
func (e *engine) portsBy(names []string) ([]*testPort, error) {
	if e.run == nil {
		return nil, ErrNothing
	}
	err := missing("port", names, func(n string) bool { return e.run.ports[n] != nil })
	var ports []*testPort
	for _, p := range e.run.order() {
		if len(names) == 0 || slices.Contains(names, p.cfg.Name) {
			ports = append(ports, p)
		}
	}
	return ports, err
}
