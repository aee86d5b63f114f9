package nic

import (
	"roced.io/roced/bth"
	"roced.io/roced/internal/base/ring"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/path"
)

// port is one of several ports of a NIC. Each is a host of the network, in a plane of its own.
type port struct {
	n     *NIC
	link  *fabric.Link
	queue ring.Ring[*fabric.Packet] // packets for this port that the NIC has built for another one
}

// maxPortQueue limits the queue of a port. If it is full, the NIC builds no packet.
const maxPortQueue = 16

// attach attaches all ports.
func (n *NIC) attach() {
	n.ports = make([]port, n.k.cfg.Planes)
	for i := range n.ports {
		p := &n.ports[i]
		p.n = n
		p.link = n.k.all.net.Attach(i*len(n.k.all.nics)+int(n.host), p)
	}
	n.link = n.ports[0].link
}

// place makes d take the plane of its entropy value. If the port there is down, it takes the next one that is up; EV probes
// do not.
func (n *NIC) place(d *fabric.Packet, p *parcel) {
	if n.ports == nil {
		return
	}
	i := path.EVPlane(p.entropy, len(n.ports))
	for range n.ports {
		if !n.ports[i].link.Down() || p.opcode == bth.OpcodeMRCEndpointRequest {
			break
		}
		i = (i + 1) % len(n.ports)
	}
	first := uint32(i * len(n.k.all.nics))
	d.Src += first
	d.Dst += first
}

// Next implements fabric.Source. Packets for other ports wait there.
func (p *port) Next(now engine.Time, paused uint8) (d *fabric.Packet, more bool) {
	n := p.n
	if p.queue.Len() > 0 {
		d := *p.queue.Oldest()
		if paused>>d.Class&1 != 0 {
			return nil, false
		}
		if p.queue.Head++; p.queue.Len() == maxPortQueue-1 {
			n.wakeLinks(now)
		}
		return d, true
	}
	for !n.stalled() {
		d, _ := n.Next(now, paused)
		if d == nil {
			return nil, false
		}
		to := &n.ports[int(d.Src)/len(n.k.all.nics)]
		if to == p {
			return d, true
		}
		*to.queue.Push() = d
		to.link.Wake(now)
	}
	return nil, false
}

// stalled reports whether a port has too many packets.
func (n *NIC) stalled() bool {
	for i := range n.ports {
		if n.ports[i].queue.Len() >= maxPortQueue {
			return true
		}
	}
	return false
}

// queued returns the number of packets that wait at ports.
func (n *NIC) queued() (sum int) {
	for i := range n.ports {
		sum += n.ports[i].queue.Len()
	}
	return sum
}

// Arrive implements fabric.Sink.
func (p *port) Arrive(now engine.Time, from int32, d *fabric.Packet) { p.n.Arrive(now, from, d) }

// Soon implements fabric.Sink.
func (p *port) Soon(d *fabric.Packet) { p.n.Soon(d) }

// LinkChanged implements fabric.Watcher: the queue pairs stop using the plane, and tell their peers.
func (p *port) LinkChanged() {
	for _, q := range p.n.qps {
		if q != nil {
			p.n.reportPorts(q)
			p.n.wake(q)
		}
	}
	p.n.wakeLinks(p.n.k.eng.Now())
}

// reportPorts tells q which ports are up, if q does not expect it.
func (n *NIC) reportPorts(q *QP) {
	if up := n.portsUp(); n.ports != nil && up != q.ports {
		q.ports = up
		q.core.SetPorts(n.k.eng.Now().Mono(), up)
	}
}

// portsUp returns a bit for each port that is up.
func (n *NIC) portsUp() (mask uint32) {
	for i := range n.ports {
		if !n.ports[i].link.Down() {
			mask |= 1 << i
		}
	}
	return mask
}

// wakeLinks notifies the links that the NIC may have a packet.
func (n *NIC) wakeLinks(now engine.Time) {
	if n.ports == nil {
		n.link.Wake(now)
		return
	}
	for i := range n.ports {
		n.ports[i].link.Wake(now)
	}
}
