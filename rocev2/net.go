package rocev2

import (
	"encoding/binary"
	"errors"
	"fmt"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// netstack is the data path of a NIC: addresses, neighbours, and what is needed
// to take frames apart and to put them together.
type netstack struct {
	up    bool
	mtu   int    // largest IP packet of the link
	ipID  uint16 // of the next IPv4 packet
	addrs addrTable
	neigh neighTable
	ctl   controlRing
	rx    rxState
	tx    txState
	gsi   gsiState
	mcast multicast

	sockets sockets
}

// Limits of the link MTU: the smallest path MTU with its headers, and what an IP
// length can say.
const (
	MinLinkMTU = 256 + mtuOverhead
	MaxLinkMTU = maxIPTotal
	// mtuOverhead is what an IP packet may need besides the path MTU, counted as
	// rxe does so that both ends choose alike: IPv6, UDP, BTH, an XRC header, the
	// longest extension header and the ICRC.
	mtuOverhead = ipv6Len + udpLen + bth.BTHLen + 4 + bth.AtomicETHLen + bth.ICRCLen
)

// Errors of the configuration.
var (
	ErrMAC = errors.New("rocev2: not the Ethernet address of one station")
	ErrMTU = errors.New("rocev2: link MTU out of range")
)

// initNet prepares the data path from n.cfg. The link is up.
func (n *NIC) initNet() error {
	if !n.cfg.MAC.unicast() {
		return fmt.Errorf("%w: %x", ErrMAC, n.cfg.MAC[:])
	}
	if n.cfg.MTU < MinLinkMTU || n.cfg.MTU > MaxLinkMTU {
		return fmt.Errorf("%w: %d, want %d to %d", ErrMTU, n.cfg.MTU, MinLinkMTU, MaxLinkMTU)
	}
	t, err := n.net.addrs.from(&n.cfg)
	if err != nil {
		return err
	}
	n.net.addrs = t
	n.net.up, n.net.mtu = true, n.cfg.MTU
	n.net.ipID = binary.BigEndian.Uint16(n.cfg.Seed[:])
	n.net.neigh.init()
	n.net.mcast.init()
	n.net.tx.init()
	if n.cfg.Sockets {
		n.net.sockets.unwind = newUnwinder()
	}
	n.SetOffload(n.cfg.Offload)
	return nil
}

// SetOffload changes what the port takes in one super-frame.
func (n *NIC) SetOffload(o Offload) {
	n.cfg.Offload = o
	n.net.tx.setOffload(o)
}

// SetObserver makes o see every frame from now on; nil for none.
func (n *NIC) SetObserver(o Observer) { n.obs = o }

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
}

// PortAttr returns the attributes of the port.
func (n *NIC) PortAttr() PortAttr {
	a := PortAttr{State: PortDown, MaxMTU: 5, ActiveMTU: 1, LinkMTU: n.net.mtu, GIDs: len(n.net.addrs.gids), PKeys: 1}
	if n.net.up {
		a.State = PortActive
	}
	for a.ActiveMTU < a.MaxMTU && (a.ActiveMTU+1).Bytes()+mtuOverhead <= n.net.mtu {
		a.ActiveMTU++
	}
	return a
}

// SetLink tells the NIC that its link has gone up or down or changed its MTU; 0
// keeps the MTU. While the link is down, frames to send are discarded. A port that
// stays active but has another path MTU now is reported as active once more: there is no
// event of its own for that (IBTA vol.1 11.6.3), and programs query the port at this one.
func (n *NIC) SetLink(now mono.Time, up bool, mtu int) error {
	before := n.PortAttr().ActiveMTU
	if mtu != 0 {
		if mtu < MinLinkMTU || mtu > MaxLinkMTU {
			return fmt.Errorf("%w: %d, want %d to %d", ErrMTU, mtu, MinLinkMTU, MaxLinkMTU)
		}
		n.net.mtu, n.cfg.MTU = mtu, mtu
	}
	if up == n.net.up {
		if up && n.PortAttr().ActiveMTU != before {
			n.portEvent(qp.EventPortActive)
		}
		return nil
	}
	n.net.up = up
	if !up {
		n.ctr.LinkDowned++
		n.portEvent(qp.EventPortErr)
		return nil
	}
	n.forgetFailures(now)
	n.announce()
	n.portEvent(qp.EventPortActive)
	return nil
}

func (n *NIC) portEvent(e qp.Event) {
	if n.cfg.Events != nil {
		n.cfg.Events.PortEvent(e)
	}
}

// Doorbell tells that send work requests may have been posted to q. Before RTS they may
// not (IBTA vol.1 10.3.1), and are discarded.
func (n *NIC) Doorbell(now mono.Time, q *QueuePair) {
	n.now = now
	if q.node.replaced == nil && q.State() < qp.RTS {
		q.sq.Reset()
		return
	}
	n.prioritiseNext(q)
	q.machine().Doorbell(now)
	n.activate(q)
}

// RecvPosted tells that receive work requests may have been posted. Only a queue
// pair in the ERR state needs to hear of it, to flush them.
func (n *NIC) RecvPosted(now mono.Time, q *QueuePair) {
	n.now = now
	q.core.RecvPosted(now)
	n.settle(q)
}

// Advance fires the timers of queue pairs, of address resolution and of the GSI that
// are due.
func (n *NIC) Advance(now mono.Time) {
	n.now = now
	n.advanceNeighbours(now)
	n.advanceGroups(now)
	n.advanceQPs(now)
	if g := n.net.gsi.agent; g != nil && g.NextTimeout() <= now {
		g.Advance(now)
	}
}

// NextTimeout is when Advance is due; it is past when PollTransmit has stopped
// before everything was sent.
func (n *NIC) NextTimeout() mono.Time {
	if n.sch.again {
		return 0
	}
	t := n.sch.deadlines.Next().Min(n.net.neigh.next).Min(n.net.mcast.next)
	if g := n.net.gsi.agent; g != nil {
		t = t.Min(g.NextTimeout())
	}
	return t
}
