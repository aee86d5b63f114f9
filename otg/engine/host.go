package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/daemon/cm"
	"roced.io/roced/internal/daemon/shard"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// host is an interface of the configuration: a NIC with its connection manager. Its fields belong to the shard.
type host struct {
	cfg   Interface
	port  *testPort
	face  *face
	core  *rocev2.NIC
	nic   *shard.NIC
	agent *cm.Agent
	cq    *rocev2.CQ
	vias  []netip.Addr      // gateways in use
	pairs map[bth.QPN]*pair // by number
	peers []*peer
	byEnd map[end]*pair // connected ones, by their remote end
}

// end is a queue pair of a peer.
type end struct {
	addr inet.GID
	num  bth.QPN
}

// peer is a peer of the configuration with its counters.
type peer struct {
	cfg     Peer
	host    *host
	address Address
	pairs   []*pair
	tx, rx  messages
	lastErr string
}

// messages counts connection messages of a direction.
type messages struct{ req, rep, rtu, dreq, drep, rej, other uint64 }

// vlan returns the VLAN of the interface, 0 for none.
func (h *host) vlan() uint16 {
	if len(h.cfg.VLANs) == 0 {
		return 0
	}
	return h.cfg.VLANs[0].ID
}

// Check returns an error for settings that the NIC of a port does not have.
func (c *Interface) Check(kind LinkKind) error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("interface %s: %s", c.Name, fmt.Sprintf(format, a...))
	}
	if len(c.VLANs) > 0 && kind == XDP {
		return bad("VLAN tags need a packet socket or a TAP device: port %s uses XDP", c.Port)
	}
	if len(c.VLANs) > 1 {
		return bad("%d VLAN tags: the NIC has at most one", len(c.VLANs))
	}
	for _, v := range c.VLANs {
		if v.TPID != 0x8100 || v.ID < 1 || v.ID > 4094 {
			return bad("VLAN %d of type %#x: must be 1 to 4094 of type 0x8100", v.ID, v.TPID)
		}
	}
	if c.MAC == (inet.MAC{}) || c.MAC[0]&1 != 0 {
		return bad("MAC %s: must be a unicast address", c.MAC)
	}
	return nil
}

// nicLimits of a port's NIC: many queue pairs, also additional ones, each with a protection domain and two regions.
var nicLimits = rocev2.Limits{QPs: 1 << 14, PDs: 1 << 14, MRs: 1<<15 + 1}

// newHost makes the NIC of an interface, without a shard.
func newHost(c *Interface, p *testPort) (*host, error) {
	h := &host{cfg: *c, port: p, pairs: map[bth.QPN]*pair{}, byEnd: map[end]*pair{}}
	s := &p.cfg.RoCE
	cfg := rocev2.Config{Name: c.Name, MAC: c.MAC, MTU: cmp.Or(c.MTU, p.cfg.MTU), Limits: nicLimits, OwnECN: true, Bucket: &p.bucket,
		CNPInterval: s.CNPInterval, CNPClass: classOf(s.CNP), ACKClass: classOf(s.ACK), NAKClass: classOf(s.NAK), NewProfile: p.profile}
	if m := p.link.State().MTU; cfg.MTU == 0 {
		cfg.MTU = m
	} else if m > 0 {
		cfg.MTU = min(cfg.MTU, m)
	}
	var addrs []netip.Prefix
	for _, a := range c.Addresses {
		addrs = append(addrs, a.Prefix)
		if a.Gateway.IsValid() && !a.Gateway.IsUnspecified() && a.Prefix.Contains(a.Gateway) {
			cfg.Gateways = append(cfg.Gateways, a.Gateway)
		}
	}
	if v := h.vlan(); v != 0 {
		cfg.VLANs = []rocev2.VLAN{{ID: v, Addrs: addrs}}
	} else {
		cfg.Addrs = addrs
	}
	cfg.Gateways = uniqueFamilies(cfg.Gateways)
	h.vias = cfg.Gateways
	_, _ = rand.Read(cfg.Seed[:])
	var err error
	if h.core, err = rocev2.New(cfg); err != nil {
		return nil, fmt.Errorf("interface %s: %w", c.Name, err)
	}
	h.agent = cm.New(cm.Config{Port: h.core, Seed: cfg.Seed})
	h.core.SetGSI(h.agent)
	h.face = p.addFace(c.MAC, h)
	return h, nil
}

// unused returns a warning for each setting of the interface that the NIC does not use.
func (h *host) unused() (warnings []string) {
	warn := func(format string, a ...any) { warnings = append(warnings, fmt.Sprintf(format, a...)) }
	if m := h.port.link.State().MTU; m > 0 && h.cfg.MTU > m {
		warn("%s: MTU %d: using %d, the MTU of %s", h.cfg.Name, h.cfg.MTU, m, h.port.cfg.Location)
	}
	for _, a := range h.cfg.Addresses {
		if a.GatewayMAC != (inet.MAC{}) {
			warn("%s: gateway MAC %s: not used, the NIC resolves the address of the gateway", a.Name, a.GatewayMAC)
		}
		switch {
		case !a.Gateway.IsValid() || a.Gateway.IsUnspecified() || slices.Contains(h.vias, a.Gateway):
		case a.Prefix.Contains(a.Gateway):
			warn("%s: gateway %s: not used, another address of %s has one of this family", a.Name, a.Gateway, h.cfg.Name)
		default:
			warn("%s: gateway %s: not used, it is outside of %s", a.Name, a.Gateway, a.Prefix.Masked())
		}
	}
	return warnings
}

// uniqueFamilies keeps the first gateway of each family.
func uniqueFamilies(all []netip.Addr) (out []netip.Addr) {
	seen := map[bool]bool{}
	for _, a := range all {
		if !seen[a.Is4()] {
			seen[a.Is4()], out = true, append(out, a)
		}
	}
	return out
}

func classOf(m Marking) rocev2.Class { return rocev2.ClassOf(m.DSCP, uint8(m.ECN)) }

// profile makes the plug-ins of a queue pair with the congestion control of the port.
func (p *testPort) profile(name string) (qp.Profile, error) {
	prof, err := rocev2.NewProfile(name)
	if c := &p.cfg.RoCE.DCQCN; err == nil && c.Enable {
		prof.Controller, err = ccalgo.New("dcqcn", c.params(float64(p.speed)))
	}
	return prof, err
}

// params translates the parameters of DCQCN, at a line rate in bits per second.
func (c *DCQCN) params(line float64) ccalgo.Params {
	micros := func(d time.Duration) float64 { return float64(d) / 1e3 }
	rate := func(fraction float64) float64 { return max(fraction*line, 1e3) }
	p := ccalgo.Params{"line_rate_bps": line, "g": c.Gain, "alpha": c.InitialAlpha, "clamp_target": 0, "f": float64(c.IncreaseSteps),
		"min_rate_bps": rate(c.MinRate), "r_ai_bps": rate(c.AdditiveRate), "r_hai_bps": rate(c.HyperRate),
		"reduce_period_us": micros(c.DecreasePeriod), "first_rate_bps": c.FirstRate * line, "b_bytes": 1e12}
	if c.ClampTarget {
		p["clamp_target"] = 1
	}
	if c.AlphaPeriod > 0 {
		p["k_us"] = micros(c.AlphaPeriod)
	}
	if c.IncreaseTime > 0 {
		p["t_us"] = micros(c.IncreaseTime)
	}
	if c.IncreaseBytes > 0 {
		p["b_bytes"] = float64(c.IncreaseBytes)
	}
	if c.MaxDecrease > 0 {
		p["max_cut"] = c.MaxDecrease
	}
	return p
}

// start gives the NIC to a shard, and creates what queue pairs share. beside is a NIC of that shard, nil for the first one.
func (h *host) start(beside *shard.NIC) (err error) {
	if h.nic, err = shard.New(shard.Config{NIC: h.core, Port: h.face, Beside: beside}); err != nil {
		return fmt.Errorf("interface %s: %w", h.cfg.Name, err)
	}
	return h.do(func(mono.Time) (err error) {
		if h.cq, err = h.core.CreateCQ(rocev2.CQAttr{Entries: 1, Ring: &completions{host: h}}); err != nil {
			return err
		}
		return h.listen()
	})
}

// do runs f on the shard.
func (h *host) do(f func(now mono.Time) error) (err error) {
	derr := h.nic.Do(context.Background(), func(now mono.Time, _ *rocev2.NIC) { err = f(now) })
	return cmp.Or(derr, err)
}

// index returns the index of an address in the GID table.
func (h *host) index(a netip.Addr) (uint8, bool) {
	for _, e := range h.core.GIDs() {
		if e.GID == inet.GIDOf(a) && e.VLAN == h.vlan() {
			return e.Index, true
		}
	}
	return 0, false
}

// sent counts a packet that has left.
func (h *host) sent(now mono.Time, l layout, head []byte, p roceInfo) {
	src, dst := l.addresses(head)
	if p.dest == 1 {
		if q := h.peerOf(src, dst); q != nil {
			q.tx.count(p.attr)
		}
		return
	}
	q := h.byEnd[end{dst, p.dest}]
	if q == nil {
		return
	}
	switch op := p.op; {
	case op.IsCNP():
		q.cnpTx++
	case op.IsAck() && p.syndrome.IsACK():
		q.ackTx++
	case op.IsAck():
		q.nakTx++
	case op.IsReadResponse():
		q.stamp(now, &q.respTx, p)
	case op.IsSend() || op.IsWrite():
		q.stamp(now, &q.reqTx, p)
	case op.IsReadRequest():
		q.asked(now, p)
	}
}

// received counts a packet from the link.
func (h *host) received(now mono.Time, l layout, head []byte, p roceInfo) {
	if p.dest == 1 {
		src, dst := l.addresses(head)
		if q := h.peerOf(dst, src); q != nil {
			q.rx.count(p.attr)
		}
		return
	}
	q := h.pairs[p.dest]
	if q == nil {
		return
	}
	switch op := p.op; {
	case op.IsCNP():
		q.cnpRx++
	case op.IsAck() && p.syndrome.IsACK():
		q.ackRx++
	case op.IsAck():
		q.nakRx++
	case op.IsReadResponse():
		q.arrived(now, &q.respRx, p)
	case op.IsSend() || op.IsWrite():
		q.arrived(now, &q.reqRx, p)
	}
}

// peerOf returns the peer with a local and a remote address, or one that accepts any.
func (h *host) peerOf(own, remote inet.GID) (found *peer) {
	for _, p := range h.peers {
		if inet.GIDOf(p.address.Prefix.Addr()) != own {
			continue
		}
		if inet.GIDOf(p.cfg.Destination) == remote {
			return p
		}
		if p.cfg.Destination.IsUnspecified() && found == nil {
			found = p
		}
	}
	return found
}
