package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/rocev2"
	"roced.io/roced/rocev2/stack"
)

// rawFlow is a raw flow of the configuration. Its fields belong to the shard.
type rawFlow struct {
	cfg      RawFlow
	id       uint32
	from     *testPort
	to       []*testPort
	frame    link.Frame
	state    FlowState
	host     *host // resolves the destination
	resolved bool

	next     mono.Time // of the next frame
	began    mono.Time
	fraction float64 // of a nanosecond, in next
	paused   mono.Time
	tx, rx   uint64
	txBytes  uint64
	rxBytes  uint64
	first    mono.Time
	last     mono.Time
	txm, rxm meter
	rxAt     string // receiving port
}

// The signature at the end of a raw frame names its flow.
const (
	signatureMagic = 0x72636f74
	signatureLen   = 8
)

// rawBudget limits the raw frames that one turn of the loop sends.
const rawBudget = 32

// newRaw prepares a raw flow. The signature is the same in all engines, since it comes from the name.
func (e *engine) newRaw(c *RawFlow) (*rawFlow, error) {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("flow %s: %s", c.Name, fmt.Sprintf(format, a...))
	}
	r := &rawFlow{cfg: *c, id: uint32(identity(c.Name)), from: e.run.ports[c.Tx]}
	for _, o := range e.run.raws {
		if o.id == r.id && o.cfg.Name != c.Name {
			return nil, bad("has the signature of flow %s; rename one of them", o.cfg.Name)
		}
	}
	if r.from == nil && c.Tx != "" {
		return nil, bad("no port %q", c.Tx)
	}
	for _, n := range c.Rx {
		p := e.run.ports[n]
		if p == nil {
			return nil, bad("no port %q", n)
		}
		r.to = append(r.to, p)
	}
	if r.from == nil {
		return r, nil
	}
	if len(c.Frame) < inet.EthernetLen || len(c.Frame) > inet.EthernetLen+inet.VLANLen+link.MaxMTU {
		return nil, bad("frame of %d bytes: must have an Ethernet header and at most %d bytes", len(c.Frame), link.MaxMTU)
	}
	if _, l2, _ := inet.EtherType(c.Frame); r.from.link.State().MTU > 0 && len(c.Frame)-l2 > r.from.link.State().MTU {
		return nil, bad("frame of %d bytes: port %s has an MTU of %d", len(c.Frame)+fcsLen, c.Tx, r.from.link.State().MTU)
	}
	if !(c.Rate.Value > 0) || math.IsInf(c.Rate.Value, 0) {
		return nil, bad("rate %v: must be positive", c.Rate.Value)
	}
	if c.Resolve.IsValid() {
		if r.host = e.hostFor(c); r.host == nil {
			return nil, bad("destination MAC: no interface of port %s has an address in the network of %s", c.Tx, c.Resolve)
		}
	}
	b := slices.Clone(c.Frame)
	if c.Metrics {
		if !sign(b, r.id) {
			return nil, bad("metrics need a payload of at least %d bytes", signatureLen)
		}
	}
	r.frame = link.Frame{Bufs: [][]byte{b}, Len: len(b)}
	return r, nil
}

// hostFor returns the interface that resolves the destination of a raw flow.
func (e *engine) hostFor(c *RawFlow) *host {
	for _, h := range e.run.hosts {
		if h.cfg.Port != c.Tx {
			continue
		}
		for _, a := range h.cfg.Addresses {
			if a.Prefix.Contains(c.Resolve) || a.Gateway == c.Resolve {
				return h
			}
		}
	}
	return nil
}

// signature returns the end of a frame's UDP payload, or of the frame without UDP, nil if there is no room.
func signature(b []byte) []byte {
	_, body, end, ok := inet.UDPBody(b)
	if !ok {
		body, end = inet.EthernetLen, len(b)
	}
	if end-body < signatureLen {
		return nil
	}
	return b[end-signatureLen : end]
}

// sign writes the signature, and corrects the checksum of UDP. It returns false if there is no room.
func sign(b []byte, id uint32) bool {
	s := signature(b)
	if s == nil {
		return false
	}
	binary.BigEndian.PutUint32(s, signatureMagic)
	binary.BigEndian.PutUint32(s[4:], id)
	l4, _, end, ok := inet.UDPBody(b)
	if !ok || b[l4+6]|b[l4+7] == 0 {
		return true // no checksum
	}
	udp := b[l4:end]
	src, dst := addressesOf(b)
	udp[6], udp[7] = 0, 0
	inet.PutChecksum(udp[6:], inet.PseudoSum(&src, &dst, inet.ProtoUDP, len(udp)), udp)
	if udp[6]|udp[7] == 0 {
		udp[6], udp[7] = 0xff, 0xff
	}
	return true
}

// addressesOf returns the addresses of a frame of IP.
func addressesOf(b []byte) (src, dst inet.GID) {
	typ, l3, _ := inet.EtherType(b)
	l := layout{l3: l3, v6: typ == inet.TypeIPv6}
	return l.addresses(b)
}

// interval returns the time between two frames in nanoseconds. Bits per second count frames with FCS, a part of the line also
// preamble and gap.
func (r *rawFlow) interval() float64 {
	n := float64(r.frame.Len)
	switch v := r.cfg.Rate.Value; r.cfg.Rate.Unit {
	case BitsPerSecond:
		return (n + fcsLen) * 8e9 / v
	case LineFraction:
		return (n + link.Overhead) * 8e9 / (v * float64(r.from.speed))
	default:
		return 1e9 / v
	}
}

// command starts, stops, pauses or resumes a raw flow.
func (r *rawFlow) command(now mono.Time, s TrafficState) {
	switch {
	case s == Start:
		r.tx, r.rx, r.txBytes, r.rxBytes, r.first, r.last, r.fraction = 0, 0, 0, 0, 0, 0, 0
		r.txm, r.rxm = meter{}, meter{}
		r.began = now.Add(r.cfg.Delay)
		r.next, r.state, r.resolved = r.began, Started, false
	case s == Stop:
		r.state = Stopped
	case s == Pause && r.state == Started:
		r.state, r.paused = Paused, now
	case s == Resume && r.state == Paused:
		d := now.Sub(r.paused)
		r.state, r.began, r.next = Started, r.began.Add(d), r.next.Add(d)
	}
}

// sendRaws sends the raw frames that are due.
func (p *testPort) sendRaws(now mono.Time) {
	sent := 0
	for _, r := range p.raws {
		for r.state == Started && now >= r.next && sent < rawBudget {
			if r.done(now) {
				r.state = Stopped
				break
			}
			if !r.ready(now) || !p.bucket.Ready(now) || p.down {
				r.next = max(r.next, now).Add(retryRaw)
				break
			}
			if p.link.Send(now, &r.frame) != nil {
				r.next = max(r.next, now).Add(retryRaw)
				break
			}
			p.bucket.Charge(now, r.frame.WireLen(1))
			p.sent(now, &r.frame)
			r.tx++
			r.txBytes += uint64(r.frame.Len + fcsLen)
			sent++
			step := r.interval() + r.fraction
			r.next = r.next.Add(time.Duration(step))
			r.fraction = step - math.Floor(step)
			if late := now.Sub(r.next); late > maxLate {
				r.next = now // the port cannot reach the rate
			}
		}
	}
}

// Times of raw flows: retryRaw is the pause after a frame that could not leave, and maxLate the time that a late loop makes up
// for.
const (
	retryRaw = 20 * time.Microsecond
	maxLate  = 20 * time.Millisecond
)

// done reports whether the flow has reached its end.
func (r *rawFlow) done(now mono.Time) bool {
	return r.cfg.Packets > 0 && r.tx >= r.cfg.Packets || r.cfg.Duration > 0 && now.Sub(r.began) >= r.cfg.Duration
}

// ready reports whether the destination has an Ethernet address, and writes it.
func (r *rawFlow) ready(now mono.Time) bool {
	if r.host == nil || r.resolved {
		return true
	}
	mac, ok := r.host.neighbour(now, r.cfg.Resolve)
	if ok {
		copy(r.frame.Bufs[0], mac[:])
		r.resolved = true
	}
	return ok
}

// nextRaw returns when the next raw frame is due.
func (p *testPort) nextRaw() mono.Time {
	t := mono.Never
	for _, r := range p.raws {
		if r.state == Started {
			t = t.Min(r.next)
		}
	}
	return t
}

// catchRaw counts a received frame of a raw flow.
func (p *testPort) catchRaw(now mono.Time, b []byte) {
	s := signature(b)
	if s == nil || binary.BigEndian.Uint32(s) != signatureMagic {
		return
	}
	id := binary.BigEndian.Uint32(s[4:])
	for _, r := range p.catch {
		if r.id == id {
			r.rx++
			r.rxBytes += uint64(len(b) + fcsLen)
			r.rxAt = p.cfg.Name
			if r.first == 0 {
				r.first = now
			}
			r.last = now
			return
		}
	}
}

// neighbour returns the Ethernet address of a neighbour, and begins to resolve it.
func (h *host) neighbour(now mono.Time, a netip.Addr) (inet.MAC, bool) {
	for _, addr := range h.cfg.Addresses {
		if addr.Prefix.Contains(a) || addr.Gateway == a {
			if index, ok := h.index(addr.Prefix.Addr()); ok {
				return h.resolve(now, inet.GIDOf(a), index)
			}
		}
	}
	return inet.MAC{}, false
}

// resolve returns the Ethernet address of a station, if it is known. index is that of the source address.
func (h *host) resolve(now mono.Time, gid inet.GID, index uint8) (inet.MAC, bool) {
	for _, n := range h.core.Neighbours() {
		if n.Addr == gid && n.VLAN == h.vlan() && n.State != stack.Failed {
			return n.MAC, n.Usable()
		}
	}
	_ = h.core.ResolveNeighbour(now, gid, index, rocev2.Unlimited, func(mono.Time, error) {})
	return inet.MAC{}, false
}

// AddRawFlows implements Engine.
func (e *engine) AddRawFlows(all []RawFlow) error {
	return eachRaw(e, all, func(c RawFlow) error { return e.addRaw(&c) })
}

// eachRaw calls f for each flow, or name of one, and returns all errors.
func eachRaw[T any](e *engine, all []T, f func(T) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.run == nil {
		return ErrNothing
	}
	var errs []error
	for _, v := range all {
		errs = append(errs, f(v))
	}
	return errors.Join(errs...)
}

func (e *engine) addRaw(c *RawFlow) error {
	if e.run.raws[c.Name] != nil {
		return fmt.Errorf("flow %s exists", c.Name)
	}
	r, err := e.newRaw(c)
	if err != nil {
		return err
	}
	return e.do(func(mono.Time) error {
		e.run.raws[c.Name] = r
		e.run.rawOrder = append(e.run.rawOrder, c.Name)
		if r.from != nil {
			r.from.raws = append(r.from.raws, r)
		}
		for _, p := range r.to {
			p.catch = append(p.catch, r)
		}
		return nil
	})
}

// rawFlow returns the flow of that name.
func (e *engine) rawFlow(name string) (*rawFlow, error) {
	r := e.run.raws[name]
	if r == nil {
		return nil, fmt.Errorf("no flow %q", name)
	}
	return r, nil
}

// RemoveRawFlows implements Engine.
func (e *engine) RemoveRawFlows(names []string) error { return eachRaw(e, names, e.removeRaw) }

func (e *engine) removeRaw(name string) error {
	r, err := e.rawFlow(name)
	if err != nil {
		return err
	}
	return e.do(func(mono.Time) error {
		same := func(x *rawFlow) bool { return x == r }
		for _, p := range e.run.ports {
			p.raws, p.catch = slices.DeleteFunc(p.raws, same), slices.DeleteFunc(p.catch, same)
		}
		delete(e.run.raws, name)
		e.run.rawOrder = slices.DeleteFunc(e.run.rawOrder, func(x string) bool { return x == name })
		return nil
	})
}

// UpdateRawFlows implements Engine.
func (e *engine) UpdateRawFlows(all []RawFlow) error {
	return eachRaw(e, all, func(c RawFlow) error { return e.updateRaw(&c) })
}

func (e *engine) updateRaw(c *RawFlow) error {
	old, err := e.rawFlow(c.Name)
	if err != nil {
		return err
	}
	r, err := e.newRaw(c)
	if err != nil {
		return err
	}
	return e.do(func(mono.Time) error {
		old.cfg.Frame, old.cfg.Rate, old.frame, old.resolved = r.cfg.Frame, r.cfg.Rate, r.frame, false
		return nil
	})
}
