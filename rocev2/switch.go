package rocev2

import (
	"errors"
	"fmt"
	"slices"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/mapped"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/memory"
	"roced.io/roced/rocev2/stack"
)

// ErrSwitchAddr says that two NICs of a switch have an address in common.
var ErrSwitchAddr = errors.New("rocev2: another NIC of the switch has this address")

// Switch connects NICs of one owner. Packets to an address of another NIC of the switch do not leave through the port:
// PollTransmit passes them to the other NIC as values, whose payload is a view of the sender's memory. There is no ICRC
// and no copy but the one to the receiver's memory. All else is as on a link: counters, timers, windows, checks.
//
// A Switch also knows the members that other owners serve, with Switches of their own: packets to them are frames that
// the port passes on (Frame.Across).
//
// Management datagrams, multicast, ARP and neighbour discovery use the port.
type Switch struct {
	nics   []*NIC   // nil where a NIC has left
	remote []Member // members of other owners
	epoch  uint32   // changes with the members and their addresses
}

// Member describes a NIC of a switch to the owners of the other NICs.
type Member struct {
	Name string
	MAC  inet.MAC
	GIDs []GIDEntry
	Port any // that of Join
}

// maxBurst bounds the bytes of UDP payload that one PollTransmit carries; the last packet may exceed it. Like a
// super-frame they come from one queue pair.
const maxBurst = 64 << 10

// Join makes n a member of s. port identifies n's port in frames to it.
func (s *Switch) Join(n *NIC, port any) error {
	for _, e := range n.net.GIDs() {
		for i := range s.size() {
			if name, ok := s.owns(i, &e.GID, e.VLAN); ok {
				return fmt.Errorf("%w: %s on %s and %s", ErrSwitchAddr, e.GID.Addr(), name, n.cfg.Name)
			}
		}
	}
	s.nics = append(s.nics, n)
	n.sw, n.swPort = s, port
	s.changed()
	return nil
}

// Member returns the description of n, which Join has made a member, for the other owners.
func (n *NIC) Member() Member {
	return Member{Name: n.cfg.Name, MAC: n.MAC(), GIDs: n.GIDs(), Port: n.swPort}
}

// SetRemote replaces the members that other owners serve. s keeps the list.
func (s *Switch) SetRemote(list []Member) {
	s.remote = list
	s.changed()
}

// size returns the number of members: the NICs, including those that have left, then the remote ones.
func (s *Switch) size() int { return len(s.nics) + len(s.remote) }

// owns reports whether member i, counted from 0, has an address, and returns the member's name.
func (s *Switch) owns(i int, g *inet.GID, vlan uint16) (name string, ok bool) {
	if i < len(s.nics) {
		o := s.nics[i]
		if o == nil || !o.net.Owns(g, vlan) {
			return "", false
		}
		return o.cfg.Name, true
	}
	m := &s.remote[i-len(s.nics)]
	return m.Name, *g != inet.GID{} && slices.ContainsFunc(m.GIDs, func(e GIDEntry) bool { return e.GID == *g && e.VLAN == vlan })
}

// LeaveSwitch undoes Join. It does nothing without one.
func (n *NIC) LeaveSwitch() {
	s := n.sw
	if s == nil {
		return
	}
	s.nics[slices.Index(s.nics, n)], n.sw = nil, nil
	s.changed()
}

// changed makes paths look for their member again.
func (s *Switch) changed() {
	if s != nil {
		s.epoch++
	}
}

// find returns the number, counted from 1, of the only member other than n with an address. It is 0 if there is none.
func (s *Switch) find(n *NIC, g *inet.GID, vlan uint16) (member uint32) {
	for i := range s.size() {
		if i < len(s.nics) && s.nics[i] == n {
			continue
		}
		if _, ok := s.owns(i, g, vlan); !ok {
			continue
		}
		if member != 0 {
			return 0
		}
		member = uint32(i + 1)
	}
	return member
}

// local returns a member, nil if another owner serves it.
func (s *Switch) local(member uint32) *NIC {
	if member == 0 || int(member) > len(s.nics) {
		return nil
	}
	return s.nics[member-1]
}

// target returns Ethernet address and port of a member.
func (s *Switch) target(member uint32) (mac inet.MAC, port any) {
	if o := s.local(member); o != nil {
		return o.MAC(), o.swPort
	}
	m := &s.remote[int(member)-1-len(s.nics)]
	return m.MAC, m.Port
}

// Across returns the port of the NIC of the switch that gets a frame of n, nil if the frame takes the link.
func (n *NIC) Across(frame []byte) (port any) {
	dst, vlan, qpn, ok := link.Destination(frame)
	if n.sw == nil || !ok || qpn <= 1 {
		return nil
	}
	if member := n.sw.find(n, &dst, vlan); member != 0 {
		_, port = n.sw.target(member)
	}
	return port
}

// memberOf returns the number of the switch member that p leads to, 0 if there is none.
func (n *NIC) memberOf(p *stack.Path) uint32 {
	s := n.sw
	if s == nil || p.Next == nil {
		return 0
	}
	if p.Epoch != s.epoch {
		p.Epoch, p.Member = s.epoch, s.find(n, &p.Dst, p.VLAN())
	}
	return p.Member
}

// across returns the NIC of the same owner that p leads to over the switch, nil if there is none.
func (n *NIC) across(p *stack.Path) *NIC {
	if member := n.memberOf(p); member != 0 {
		return n.sw.local(member)
	}
	return nil
}

// plain reports whether packets from n to to need no frames: there is no observer and no fault rule, and the links are up.
func (n *NIC) plain(to *NIC) bool {
	return n.obs == nil && to.obs == nil && n.up && to.up && !n.cfg.Offload.Faults && !to.cfg.Offload.Faults
}

// shortcut returns the NIC that takes the latest packet without a frame, nil if there is none.
func (n *NIC) shortcut() *NIC {
	if n.sw == nil {
		return nil
	}
	if to := n.across(n.tx.to); to != nil && n.tx.t.Packet.DestQP > 1 && n.plain(to) {
		return to
	}
	return nil
}

// forward passes the latest packet to another NIC of the switch. It returns false if the data of the packet, which is lost,
// have gone.
func (n *NIC) forward(now mono.Time, to *NIC, size int) bool {
	b := &n.tx
	p, path := &b.t.Packet, b.to
	src := b.source.part(p.Payload)
	switch {
	case src.mem != nil:
	case len(p.Payload) < viewMin: // a fault ends here, not in the receiver
		m := copy(b.scrap[:], p.Payload)
		p.Payload, src = b.scrap[:m:m], origin{}
	case src.of == nil:
		src = origin{of: n, buf: p.Payload}
	}
	to.rx.origin = src
	n.ctr.xmit.count(false, 1, path.Len()+size)
	n.ctr.countPacket(p.Opcode)
	b.forwarded += size
	var l3 []byte
	if b.queue.typ == qp.UD { // its receiver gets the header
		h := b.seg[:copy(b.seg[:], path.Headers())]
		l3 = h[path.L2():path.L4()]
		inet.SetLengths(l3, h[path.L4():], n.net.TakeID(1), size)
	}
	if !to.receiveForwarded(now, path, path.Entropy(b.t.Path), p, l3, size) {
		b.queue.wary = true
		return false
	}
	return true
}

// receiveForwarded takes a packet from another NIC of the switch. It returns false if the data of the packet have gone.
func (n *NIC) receiveForwarded(now mono.Time, path *stack.Path, entropy uint32, p *bth.Packet, l3 []byte, size int) bool {
	n.now = now
	n.ctr.rcv.count(false, 1, path.Len()+size)
	rx := &n.rx
	rx.in, rx.pkt = &rx.forwarded, *p
	rx.in.Src, rx.in.Dst, rx.in.V6 = path.Src, path.Dst, !path.IPv4()
	rx.in.ECN = path.ECN()
	q, r := n.accept(now, l3, nil, qp.RxMeta{Path: entropy})
	if q != nil {
		n.sch.settle(q)
	}
	rx.origin, rx.gone = origin{}, false
	if r != rxOK {
		n.ctr.drops[min(r, numRxReasons-1)]++
	}
	return r != rxGone
}

// deliver passes a frame to another NIC of the switch.
func (n *NIC) deliver(now mono.Time, to *NIC, f *link.Frame) {
	b := &n.tx
	size := f.SegSize
	b.loop = f.AppendTo(b.loop[:0])
	n.left(now)
	if to.up {
		to.Receive(now, b.loop, size)
	}
}

// origin tells where the data of a forwarded packet are.
type origin struct {
	of  *NIC   // the sender; nil: the data are in memory of a NIC
	buf []byte // a view of the sender's memory
	// mem has the data at off. Nothing has read them to buf yet. nil: they are in buf.
	mem Distant
	off uint64
	// ahead is the number of bytes that later packets of the burst probably have, behind the data and, without mem, within
	// the capacity of buf.
	ahead int
}

// part returns the source of p, a part of buf. It is zero for other memory.
func (s *origin) part(p []byte) origin {
	at, ok := mapped.Within(s.buf, p)
	if !ok || s.of == nil || len(p) == 0 {
		return origin{}
	}
	return origin{s.of, s.buf[at : at+len(p)], s.mem, s.off + uint64(at), len(s.buf) - at - len(p) + s.ahead}
}

// follows reports whether o continues s by n bytes.
func (s *origin) follows(o *origin, n int) bool {
	if s.mem != o.mem || n > s.ahead {
		return false
	}
	if s.mem != nil {
		return o.off == s.off+uint64(len(s.buf))
	}
	_, ok := mapped.Join(s.buf, o.buf)
	return ok
}

// copyTo copies n bytes to off of r. It returns gone if the sender's memory has gone.
func (s *origin) copyTo(r *memory.Region, off uint64, n int, scratch *[]byte) (ok, gone bool) {
	if s.mem == nil {
		v := s.buf[:n]
		ok = r.Mem.Write(off, v)
		return ok, !ok && !mapped.Present(v)
	}
	if r.Distant == nil {
		if dst, ok := r.Mem.View(off, n); ok && s.mem.Read(s.off, dst) {
			return true, false
		}
	}
	*scratch = slices.Grow((*scratch)[:0], n)[:n]
	if !s.mem.Read(s.off, *scratch) {
		return false, true
	}
	return r.Mem.Write(off, *scratch), false
}

// pulled describes data of a burst that the receiver has placed before their packets.
type pulled struct {
	q      *QueuePair // nil: none
	region *memory.Region
	off    uint64 // of the next packet in the region
	from   origin // the packet before it
}

// pull places the data of p, which are in the memory of the sender, at off of r. It also places those of the packets
// behind it, as far as their place is known: at most ahead bytes.
func (h *host) pull(r *memory.Region, off uint64, p []byte, from *origin, ahead uint32) bool {
	q, n := (*QueuePair)(h), h.nic
	w := &n.pulled
	if w.q == q && w.region == r && w.off == off && w.from.follows(from, len(p)) {
		w.off += uint64(len(p))
		left := w.from.ahead - len(p)
		w.from = *from
		w.from.ahead = left
		return true
	}
	*w = pulled{}
	more := int(min(uint64(min(from.ahead, int(ahead))), r.Extent(off)-uint64(len(p))))
	ok, gone := from.copyTo(r, off, len(p)+more, &n.run.buf)
	if !ok && more > 0 {
		more = 0
		ok, gone = from.copyTo(r, off, len(p), &n.run.buf)
	}
	switch {
	case gone:
		n.rx.gone = true
		return false
	case more > 0:
		*w = pulled{q, r, off + uint64(len(p)), *from}
		w.from.ahead = more
	}
	return h.reached(ok)
}

// append appends p, a part of the payload of the packet that n receives, to b. It returns false if the sender's memory has
// gone.
func (n *NIC) append(b, p []byte) (out []byte, ok bool) {
	s := n.rx.origin.part(p)
	if s.of == nil {
		return append(b, p...), true
	}
	m := len(b)
	b = slices.Grow(b, len(p))[:m+len(p)]
	if s.mem != nil {
		ok = s.mem.Read(s.off, b[m:])
	} else {
		ok = mapped.Copy(b[m:], p)
	}
	if !ok {
		n.rx.gone = true
		return b[:m], false
	}
	return b, true
}

// readPayload reads the data of the latest packet, which needs a frame.
func (n *NIC) readPayload() bool {
	s := n.tx.source.part(n.tx.t.Packet.Payload)
	return s.mem == nil || s.mem.Read(s.off, s.buf)
}
