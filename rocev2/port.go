package rocev2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/stack"
)

// ErrMTU says that a link MTU is out of range.
var ErrMTU = errors.New("rocev2: link MTU out of range")

func checkMTU(mtu int) error {
	if mtu < link.MinMTU || mtu > link.MaxMTU {
		return fmt.Errorf("%w: %d, want %d to %d", ErrMTU, mtu, link.MinMTU, link.MaxMTU)
	}
	return nil
}

// initNet prepares the data path from n.cfg. The link is up.
func (n *NIC) initNet() (err error) {
	c := &n.cfg
	if err := checkMTU(c.MTU); err != nil {
		return err
	}
	n.net, err = stack.New(stack.Config{
		MAC: c.MAC, MTU: c.MTU, Addrs: c.Addrs, VLANs: c.VLANs, PairedGIDs: c.PairedGIDs, Gateways: c.Gateways, Shared: c.Shared, Routes: c.Routes,
		Sockets: c.Sockets, Translated: c.Translated, Group: c.Group, FirstID: binary.BigEndian.Uint16(c.Seed[:]), UDPPort: c.UDPPort,
	})
	if err != nil {
		return err
	}
	n.up = true
	n.mcast.groups = map[inet.GID]*group{}
	n.peers = map[inet.GID]*peer{}
	n.tx.init()
	n.SetOffload(c.Offload)
	return nil
}

// SetOffload changes the bounds of a super-frame.
func (n *NIC) SetOffload(o link.Offload) {
	n.cfg.Offload = o
	n.tx.setOffload(o)
}

// SetObserver makes o see every frame from now on; nil for none.
func (n *NIC) SetObserver(o link.Observer) { n.obs = o }

// PortState is the state of a port, numbered as ibv_port_state.
type PortState uint8

// Port states.
const (
	PortDown   PortState = 1
	PortActive PortState = 4
)

// PortAttr describes the NIC's port (ibv_port_attr).
type PortAttr struct {
	State     PortState
	MaxMTU    qp.MTU
	ActiveMTU qp.MTU // the largest path MTU that fits the link
	LinkMTU   int    // bytes of an IP packet
	GIDs      int
	PKeys     int
	// Dropped packets with another P_Key or Q_Key, at most 65,535 as with rxe (IBTA vol.1 14.2.5.6).
	BadPKeys, BadQKeys uint32
}

// PortAttr returns the attributes of the port.
func (n *NIC) PortAttr() PortAttr {
	a := PortAttr{State: PortDown, MaxMTU: 5, ActiveMTU: 1, LinkMTU: n.net.MTU(), GIDs: stack.GIDTableLen, PKeys: 1,
		BadPKeys: violations(n.ctr.drops[rxPKey]), BadQKeys: violations(n.ctr.drops[rxCore+rxReason(qp.DropQKey)])}
	if n.up {
		a.State = PortActive
	}
	for a.ActiveMTU < a.MaxMTU && (a.ActiveMTU+1).Bytes()+link.MTUOverhead <= a.LinkMTU {
		a.ActiveMTU++
	}
	return a
}

// violations limits a counter of violations to its 16 bits.
func violations(n uint64) uint32 { return uint32(min(n, math.MaxUint16)) }

// SetLink reports that the link has gone up or down or changed its MTU; 0 keeps the MTU. While the link is down, the
// NIC discards frames to send. A port that stays active but has another path MTU now is reported as active once more:
// there is no event for that (IBTA vol.1 11.6.3), and programs query the port on this one.
func (n *NIC) SetLink(now mono.Time, up bool, mtu int) error {
	before := n.PortAttr().ActiveMTU
	if mtu != 0 {
		if err := checkMTU(mtu); err != nil {
			return err
		}
		n.net.SetMTU(mtu)
		n.cfg.MTU = mtu
	}
	active := n.PortAttr().ActiveMTU
	if active != before {
		for q := range n.obj.qps.All {
			q.core.SetMTU(active)
		}
	}
	switch {
	case up && !n.up:
		n.up = true
		n.net.LinkUp(now)
		fallthrough
	case up && active != before:
		n.cfg.Events.PortEvent(qp.EventPortActive)
	case !up && n.up:
		n.up = false
		n.ctr.LinkDowned++
		n.cfg.Events.PortEvent(qp.EventPortErr)
	}
	return nil
}

// SetAddrs replaces the NIC's addresses and gateways and announces the new ones. Existing paths keep their source
// address and next hop.
func (n *NIC) SetAddrs(_ mono.Time, addrs []netip.Prefix, gateways []netip.Addr) error {
	err := n.net.SetAddrs(addrs, gateways)
	n.sw.changed()
	if err == nil {
		n.cfg.Events.PortEvent(qp.EventGIDChange)
	}
	return err
}

// SetInterface makes a shared NIC follow its interface. An address keeps its place in the GID table while it is
// present, and gets it again when it returns. Existing paths keep their source address and take over a new MAC.
func (n *NIC) SetInterface(i *Interface) error {
	changed, err := n.net.SetInterface(i)
	n.sw.changed()
	if err != nil {
		return err
	}
	for q := range n.obj.qps.All {
		q.path.SetSource(i.MAC)
	}
	for a := range n.obj.ahs.All {
		a.path.SetSource(i.MAC)
	}
	if changed {
		n.cfg.Events.PortEvent(qp.EventGIDChange)
	}
	return nil
}

// RoCE has no LIDs, and Linux refuses paths without a global route header. Programs without a GID index still request
// such paths and exchange only LIDs with their peer (ibv_rc_pingpong without -g). So a port has a LID here: the lower
// half of its first IPv4 address. A path to a LID goes to the address with this lower half and our own upper half. That
// is right between stations that have the upper half in common.

// LID returns the port's LID, 0 if it has no IPv4 address.
func (n *NIC) LID() uint16 {
	if e := n.net.FirstIPv4(); e != nil {
		return binary.BigEndian.Uint16(e.GID[14:])
	}
	return 0
}

// LIDVector returns the address vector of a path to a LID; ok is false if there is none.
func (n *NIC) LIDVector(dlid uint16) (av AddressVector, ok bool) {
	e := n.net.FirstIPv4()
	if e == nil || dlid == 0 {
		return AddressVector{}, false
	}
	av = AddressVector{DGID: e.GID, SGIDIndex: e.Index}
	binary.BigEndian.PutUint16(av.DGID[14:], dlid)
	return av, true
}

// Doorbell reports that send work requests may have been posted to q. Before RTS that is not allowed (IBTA vol.1
// 10.3.1), and the NIC discards them.
func (n *NIC) Doorbell(now mono.Time, q *QueuePair) {
	n.now = now
	if q.node.replaced == nil && q.State() < qp.RTS {
		q.sq.Reset()
		return
	}
	n.prioritiseNext(q)
	q.machine().Doorbell(now)
	n.sch.activate(q)
}

// RecvPosted reports that receive work requests may have been posted. Only a queue pair in the ERR state needs the
// call, to flush them.
func (n *NIC) RecvPosted(now mono.Time, q *QueuePair) {
	n.now = now
	q.core.RecvPosted(now)
	n.sch.settle(q)
}

// Received reports that all frames which had arrived at an instant have been received. Before, an acknowledgement may wait among
// them, and the timers of losses do not fire.
func (n *NIC) Received(at mono.Time) { n.temp.Late.Received = at }

// Delayed reports that the owner was away for d until now, while it sent. Timers of losses get as much time in addition.
func (n *NIC) Delayed(now mono.Time, d time.Duration) {
	n.temp.Late.Until = max(n.temp.Late.Until, now.Add(d))
}

// Advance fires the timers of queue pairs, of the network stack and of the GSI that are due.
func (n *NIC) Advance(now mono.Time) {
	n.now = now
	n.net.Advance(now)
	n.sch.advance(now)
	if g := n.gsi.agent; g != nil && g.NextTimeout() <= now {
		g.Advance(now)
	}
}

// NextTimeout returns when Advance is due. It is past when PollTransmit has stopped before all was sent.
func (n *NIC) NextTimeout() mono.Time {
	if n.sch.again {
		return 0
	}
	t := n.sch.next().Min(n.net.NextTimeout())
	if n.tx.shaped {
		t = t.Min(n.cfg.Bucket.Next())
	}
	if g := n.gsi.agent; g != nil {
		t = t.Min(g.NextTimeout())
	}
	return t
}
