package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/verbs"
)

// nics implements Engine for NICs of a daemon, as a program of verbs and of the daemon's connection manager. Its peers, flows and
// metrics are those that verbs have; package model refuses all other settings.
type nics struct {
	mu    sync.Mutex
	cfg   Config
	ports []*nic
	peers []*nicPeer
	pairs map[string]*nicPair
	flows []*nicFlow
	ctx   context.Context // of the configuration
	end   context.CancelFunc
	work  sync.WaitGroup
}

// NewNICs returns an engine without a configuration. All its ports are of kind Verbs.
func NewNICs() Engine { return &nics{} }

// nic is a port: an open NIC.
type nic struct {
	cfg    Port
	speed  uint64
	ctx    *verbs.Context
	cm     *verbs.CM
	pd     *verbs.PD
	cq     *verbs.CQ
	mr     *verbs.MR
	attr   verbs.PortAttr
	byQPN  map[uint32]*nicPair
	failed error
	was    struct {
		up bool
		at time.Time
	}
	tx, rx portCount
}

// nicPeer is a peer with its address in the NIC's table.
type nicPeer struct {
	cfg     Peer
	port    *nic
	addr    netip.Addr
	index   int // of the GID
	pairs   []*nicPair
	lastErr string
}

// Depths of a queue pair and of a port's completion queue.
const (
	nicDepth   = 16
	nicCQDepth = 16384
	nicMemory  = 1 << 20 // at least
)

// Apply implements Engine.
func (n *nics) Apply(c Config) (warnings []string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.stop(); err != nil {
		return nil, err
	}
	n.cfg, n.pairs = c, map[string]*nicPair{}
	n.ctx, n.end = context.WithCancel(context.Background())
	warnings, err = n.start()
	if err != nil {
		return nil, errors.Join(err, n.stop())
	}
	if c.AutoStart {
		err = n.protocols(nil, Connect)
	}
	return warnings, err
}

// start makes the objects of the configuration.
func (n *nics) start() (warnings []string, err error) {
	var errs []error
	for i := range n.cfg.Ports {
		p, err := n.open(&n.cfg.Ports[i])
		if err != nil {
			errs = append(errs, fmt.Errorf("port %s: NIC %s: %w", n.cfg.Ports[i].Name, n.cfg.Ports[i].Device, err))
			continue
		}
		n.ports = append(n.ports, p)
		warnings = append(warnings, fmt.Sprintf("port %s: the NIC %s decides on numbers and keys of queue pairs, ECN, CNPs, congestion control, "+
			"and acknowledgements; its host decides on MAC addresses, VLANs and routes", p.cfg.Name, p.cfg.Device))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i := range n.cfg.Peers {
		w, err := n.addPeer(&n.cfg.Peers[i])
		errs, warnings = append(errs, err), append(warnings, w...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, c := range n.cfg.Flows {
		errs = append(errs, n.addFlow(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, p := range n.ports {
		n.work.Go(func() { n.poll(p) })
	}
	return warnings, n.listen()
}

// open opens a NIC, with memory for the longest message of its flows.
func (n *nics) open(c *Port) (*nic, error) {
	p := &nic{cfg: *c, speed: cmp.Or(c.Speed, defaultSpeed), byQPN: map[uint32]*nicPair{}}
	p.was.at = time.Now()
	if err := p.open(n.longest(c.Name)); err != nil {
		_ = p.close()
		return nil, err
	}
	return p, nil
}

// open opens the NIC and makes the objects that queue pairs share.
func (p *nic) open(memory int) (err error) {
	if p.ctx, err = verbs.Open(p.cfg.Device); err != nil {
		return err
	}
	if p.cm, err = verbs.OpenCM(p.cfg.Device); err != nil {
		return err
	}
	if p.attr, err = p.ctx.QueryPort(1); err != nil {
		return err
	}
	if p.pd, err = p.ctx.AllocPD(); err != nil {
		return err
	}
	channel, err := p.ctx.CreateCompChannel()
	if err != nil {
		return err
	}
	if p.cq, err = p.ctx.CreateCQ(nicCQDepth, channel); err != nil {
		return err
	}
	p.mr, err = p.pd.AllocMR(memory, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead)
	return err
}

// close closes the NIC. The daemon destroys its objects.
func (p *nic) close() error {
	var errs []error
	if p.cm != nil {
		errs = append(errs, p.cm.Close())
	}
	if p.ctx != nil {
		errs = append(errs, p.ctx.Close())
	}
	return errors.Join(errs...)
}

// longest returns the length of the longest message of flows at a port.
func (n *nics) longest(port string) int {
	most := nicMemory
	ports := map[string]string{} // by queue pair
	for _, p := range n.cfg.Peers {
		for _, q := range p.QueuePairs {
			ports[q.Name] = n.cfg.portOf(p.Address)
		}
	}
	remote := map[string]string{}
	for _, p := range n.cfg.Peers {
		for _, q := range p.QueuePairs {
			remote[q.Name] = q.Remote
		}
	}
	for _, f := range n.cfg.Flows {
		if ports[f.QueuePair] == port || ports[remote[f.QueuePair]] == port {
			most = max(most, int(f.Size))
		}
	}
	return most
}

// portOf returns the port of an address by name.
func (c *Config) portOf(address string) string {
	for _, i := range c.Interfaces {
		for _, a := range i.Addresses {
			if a.Name == address {
				return i.Port
			}
		}
	}
	return ""
}

// port returns the port with a name, nil without one.
func (n *nics) port(name string) *nic {
	for _, p := range n.ports {
		if p.cfg.Name == name {
			return p
		}
	}
	return nil
}

// addPeer makes a peer with its queue pairs, which get a queue pair of the NIC when they connect.
func (n *nics) addPeer(c *Peer) (warnings []string, err error) {
	p := &nicPeer{cfg: *c}
	for _, i := range n.cfg.Interfaces {
		for _, a := range i.Addresses {
			if a.Name == c.Address {
				p.addr = a.Prefix.Addr()
				p.port = n.port(i.Port)
			}
		}
	}
	if p.port == nil {
		return nil, fmt.Errorf("peer %s: no address %q", c.Name, c.Address)
	}
	var have []string
	p.index = -1
	for i := range p.port.attr.GIDs {
		g, err := p.port.ctx.QueryGID(1, i)
		if err != nil || g == (verbs.GID{}) {
			continue // an empty entry
		}
		if g == verbs.GIDOf(p.addr) {
			p.index = i
			break
		}
		have = append(have, g.String())
	}
	if p.index < 0 {
		return nil, fmt.Errorf("peer %s: NIC %s has no address %s; use one of %s", c.Name, p.port.cfg.Device, p.addr, strings.Join(have, ", "))
	}
	if most := p.port.attr.ActiveMTU.Bytes(); p.cfg.PathMTU > most {
		warnings = append(warnings, fmt.Sprintf("peer %s: path MTU %d: using %d, that of NIC %s", c.Name, c.PathMTU, most, p.port.cfg.Device))
		p.cfg.PathMTU = most
	}
	for _, q := range c.QueuePairs {
		x := &nicPair{cfg: q, peer: p, port: p.port}
		n.pairs[q.Name], p.pairs = x, append(p.pairs, x)
	}
	n.peers = append(n.peers, p)
	return warnings, nil
}

// stop ends everything that runs. Connections end before their NICs.
func (n *nics) stop() error {
	if n.ctx == nil {
		return nil
	}
	n.end()
	for _, q := range n.pairs {
		q.up = false
		q.disconnect(pairDown, "")
	}
	n.mu.Unlock() // goroutines end
	n.work.Wait()
	n.mu.Lock()
	var errs []error
	for _, p := range n.ports {
		if p.failed == nil {
			errs = append(errs, p.close())
		} else {
			_ = p.close() // of a lost daemon
		}
	}
	n.ports, n.peers, n.pairs, n.flows, n.ctx = nil, nil, nil, nil, nil
	return errors.Join(errs...)
}

// Close implements Engine.
func (n *nics) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stop()
}

// lost records that a daemon has ended, or that a NIC failed otherwise.
func (n *nics) lost(p *nic, err error) {
	if n.ctx.Err() != nil || p.failed != nil {
		return
	}
	p.failed = fmt.Errorf("port %s: NIC %s is lost: %w; set the configuration again", p.cfg.Name, p.cfg.Device, err)
	for _, q := range n.pairs {
		if q.port == p {
			q.disconnect(pairFailed, p.failed.Error())
		}
	}
}

// Err implements Engine.
func (n *nics) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for _, p := range n.ports {
		errs = append(errs, p.failed)
	}
	return errors.Join(errs...)
}

// Protocols implements Engine.
func (n *nics) Protocols(names []string, state ProtocolState) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.protocols(names, state)
}

func (n *nics) protocols(names []string, state ProtocolState) error {
	if n.ctx == nil {
		return ErrNothing
	}
	if err := missing("peer", names, func(s string) bool {
		return slices.ContainsFunc(n.peers, func(p *nicPeer) bool { return p.cfg.Name == s })
	}); err != nil {
		return err
	}
	for _, p := range n.peers {
		if len(names) > 0 && !slices.Contains(names, p.cfg.Name) {
			continue
		}
		for _, q := range p.pairs {
			if q.up = state != Disconnect; !q.up {
				q.disconnect(pairDown, "")
			} else if state == Connect {
				n.connect(q)
			}
		}
	}
	return nil
}

// refuse returns an error for an operation that NICs of a daemon do not have.
func (n *nics) refuse(what string, ports []string) error {
	if len(ports) == 0 && len(n.cfg.Ports) == 0 {
		return nil
	}
	return fmt.Errorf("%s: NICs of a daemon do not have it; use an interface as the location", what)
}

// SetLink implements Engine.
func (n *nics) SetLink(ports []string, _ bool) error { return n.refuse("state of a link", ports) }

// UpdateRawFlows implements Engine.
func (n *nics) UpdateRawFlows([]RawFlow) error { return n.refuse("flow of plain frames", nil) }

// AddRawFlows implements Engine.
func (n *nics) AddRawFlows([]RawFlow) error { return n.refuse("flow of plain frames", nil) }

// RemoveRawFlows implements Engine.
func (n *nics) RemoveRawFlows([]string) error { return n.refuse("flow of plain frames", nil) }

// StartCapture implements Engine.
func (n *nics) StartCapture(ports []string) error { return n.refuse("capture", ports) }

// StopCapture implements Engine.
func (n *nics) StopCapture(ports []string) error { return n.refuse("capture", ports) }

// Captured implements Engine.
func (n *nics) Captured(port string) ([]byte, error) {
	return nil, n.refuse("capture", []string{port})
}

// Ping implements Engine.
func (n *nics) Ping([]Ping) ([]Ping, error) { return nil, n.refuse("ping", nil) }

// PortMetrics implements Engine. The counters are those of the NIC, with packets of its other users, since the daemon's start.
func (n *nics) PortMetrics() (all []PortMetric) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.ports {
		all = append(all, p.metric(mono.Time(p.ctx.Now())))
	}
	return all
}

func (p *nic) metric(now mono.Time) PortMetric {
	attr, err := p.ctx.QueryPort(1)
	if up := err == nil && attr.State == verbs.PortActive; up != p.was.up {
		p.was.up, p.was.at = up, time.Now()
	}
	if stats, err := p.ctx.Stats(); err == nil {
		for _, s := range stats {
			switch s.Name {
			case "port_xmit_packets":
				p.tx.frames = s.Value
			case "port_rcv_packets":
				p.rx.frames = s.Value
			case "port_xmit_data": // words of four bytes
				p.tx.bytes = 4 * s.Value
			case "port_rcv_data":
				p.rx.bytes = 4 * s.Value
			}
		}
	}
	m := PortMetric{Name: p.cfg.Name, Location: p.cfg.Location, Up: p.was.up, LastChange: p.was.at,
		FramesTx: p.tx.frames, FramesRx: p.rx.frames, BytesTx: p.tx.bytes, BytesRx: p.rx.bytes}
	m.FramesTxPerSecond, m.BytesTxPerSecond = p.tx.rates(now)
	m.FramesRxPerSec, m.BytesRxPerSecond = p.rx.rates(now)
	for _, q := range p.byQPN {
		m.Transmitting = m.Transmitting || len(q.posted) > 0
	}
	return m
}

// PeerMetrics implements Engine.
func (n *nics) PeerMetrics() (all []PeerMetric) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.peers {
		m := PeerMetric{Name: p.cfg.Name, Configured: len(p.pairs), LastError: p.lastErr}
		for _, q := range p.pairs {
			if q.state == pairUp {
				m.Up++
			}
		}
		m.Down = m.Configured - m.Up
		all = append(all, m)
	}
	return all
}

// FlowMetrics implements Engine.
func (n *nics) FlowMetrics() (all []FlowMetric) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.flows {
		all = append(all, f.metric(n))
	}
	return all
}

// RawFlowMetrics implements Engine.
func (n *nics) RawFlowMetrics() []RawFlowMetric { return nil }

// Neighbors implements Engine. Those of the daemon are not visible to its clients.
func (n *nics) Neighbors() []Neighbor { return nil }
