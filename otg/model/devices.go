package model

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/open-traffic-generator/snappi/gosnappi/otg"

	"roced.io/roced/bth/inet"
	"roced.io/roced/otg/engine"
	"roced.io/roced/port/link"
)

func (t *translator) device(d *otg.Device, at string) {
	t.name(d.GetName(), "device", at)
	for i, e := range d.GetEthernets() {
		t.ethernet(e, item(at+".ethernets", i))
	}
	for i, r := range d.GetRocev2().GetIpv4Interfaces() {
		in := item(at+".rocev2.ipv4_interfaces", i)
		for j, p := range r.GetPeers() {
			t.peer(p, r.GetIpv4Name(), r.GetIbMtu(), in, item(in+".peers", j))
		}
	}
	for i, r := range d.GetRocev2().GetIpv6Interfaces() {
		in := item(at+".rocev2.ipv6_interfaces", i)
		for j, p := range r.GetPeers() {
			t.peer(p, r.GetIpv6Name(), r.GetIbMtu(), in, item(in+".peers", j))
		}
	}
}

func (t *translator) ethernet(e *otg.DeviceEthernet, at string) {
	t.name(e.GetName(), "interface", at)
	errors := len(t.errors)
	iface := engine.Interface{Name: e.GetName(), Port: e.GetConnection().GetPortName(), MTU: int(e.GetMtu()), MAC: t.mac(e.GetMac(),
		at+".mac")}
	port, ok := t.port(iface.Port, at+".connection.port_name")
	t.once(iface.Port+" "+iface.MAC.String(), e.GetName(), at+".mac: "+e.GetMac())
	onNIC := ok && port.Kind == engine.Verbs
	if onNIC {
		t.nicInterface(e, port, at)
	}
	t.mtus[iface.Name] = iface.MTU
	for i, v := range e.GetVlans() {
		t.name(v.GetName(), "VLAN", item(at+".vlans", i))
		tpid, _ := strconv.ParseUint(v.GetTpid().String()[1:], 16, 16)
		iface.VLANs = append(iface.VLANs, engine.VLAN{TPID: uint16(tpid), ID: uint16(v.GetId()), Priority: uint8(v.GetPriority())})
	}
	add := func(name, addr, gateway string, bits uint32, mac, at string, is func(netip.Addr) bool) {
		t.name(name, "address", at)
		a := engine.Address{Name: name, Prefix: netip.PrefixFrom(t.addr(addr, at+".address", is), int(bits))}
		a.Gateway = t.addr(gateway, at+".gateway", is)
		if onNIC {
			t.nicAddress(gateway, mac, at, port)
		} else if mac != "" {
			a.GatewayMAC = t.mac(mac, at+".gateway_mac.value")
		}
		t.once(fmt.Sprint(iface.Port, " ", iface.VLANs, " ", a.Prefix.Addr()), name, at+".address: "+addr)
		t.addrs[name] = address{iface.Name, iface.Port, a.Prefix.Addr()}
		iface.Addresses = append(iface.Addresses, a)
	}
	for i, a := range e.GetIpv4Addresses() {
		add(a.GetName(), a.GetAddress(), a.GetGateway(), a.GetPrefix(), a.GetGatewayMac().GetValue(), item(at+".ipv4_addresses", i),
			netip.Addr.Is4)
	}
	for i, a := range e.GetIpv6Addresses() {
		add(a.GetName(), a.GetAddress(), a.GetGateway(), a.GetPrefix(), a.GetGatewayMac().GetValue(), item(at+".ipv6_addresses", i),
			netip.Addr.Is6)
	}
	if !onNIC && len(t.errors) == errors {
		if err := iface.Check(port.Kind); err != nil {
			t.errorf("%s: %v", at, err)
		}
	}
	t.out.Interfaces = append(t.out.Interfaces, iface)
}

// once refuses a second use of an address on a port.
func (t *translator) once(key, user, at string) {
	if other := t.users[key]; other != "" {
		t.errorf("%s: belongs to %q of the same port; use another one", at, other)
	}
	t.users[key] = user
}

func (t *translator) mac(s, at string) (m inet.MAC) {
	b, err := net.ParseMAC(s)
	if err != nil || len(b) != len(m) {
		t.errorf("%s: %q: is not a MAC address; write six bytes as 02:00:00:00:00:01", at, s)
		return m
	}
	return inet.MAC(b)
}

func (t *translator) addr(s, at string, is func(netip.Addr) bool) netip.Addr {
	a, err := netip.ParseAddr(s)
	if err != nil || !is(a) || a.Zone() != "" {
		t.errorf("%s: %q: is not an address of this family", at, s)
	}
	return a
}

// peerOf is what the peers of IPv4 and IPv6 have in common.
type peerOf interface {
	GetName() string
	GetDestinationIpAddress() string
	GetQps() []*otg.Rocev2QPs
}

func (t *translator) peer(p peerOf, local string, ibMTU uint32, in, at string) {
	t.name(p.GetName(), "peer", at)
	a, ok := t.addrs[local]
	if !ok {
		t.errorf("%s: address %q: is not configured; configured are %s", in, local, listOf(t.addrs))
		return
	}
	mtu := pathMTU(min(int(ibMTU), t.mtus[a.iface]-link.MTUOverhead))
	if mtu != int(ibMTU) {
		t.warnf("%s.ib_mtu: %d: using %d, the largest path MTU of RoCEv2 that fits into it and into %q", in, ibMTU, mtu, a.iface)
	}
	peer := engine.Peer{Name: p.GetName(), Address: local, PathMTU: mtu}
	peer.Destination = t.addr(p.GetDestinationIpAddress(), at+".destination_ip_address",
		func(d netip.Addr) bool { return d.Is4() == a.ip.Is4() })
	for i, q := range p.GetQps() {
		in := item(at+".qps", i)
		t.name(q.GetQpName(), "queue pair", in)
		t.pairs[q.GetQpName()] = pair{len(t.out.Peers), i, a.port, in}
		peer.QueuePairs = append(peer.QueuePairs, t.queuePair(q, a, in))
	}
	t.local[a.ip] = append(t.local[a.ip], len(t.out.Peers))
	t.out.Peers = append(t.out.Peers, peer)
}

// pathMTU returns the largest path MTU that is at most n.
func pathMTU(n int) int {
	mtu := 256
	for mtu < 4096 && mtu*2 <= n {
		mtu *= 2
	}
	return mtu
}

func (t *translator) queuePair(q *otg.Rocev2QPs, a address, at string) engine.QueuePair {
	rc := q.GetConnectionType().GetReliableConnection()
	at += ".connection_type.reliable_connection"
	if i, ok := t.ports[a.port]; ok && t.out.Ports[i].Kind == engine.Verbs {
		t.nicQueuePair(rc, &t.out.Ports[i], at)
	} else {
		key := a.iface + "/" + strconv.Itoa(int(rc.GetSourceQpNumber()))
		if other := t.numbers[key]; other != "" {
			t.errorf("%s.source_qp_number: %d: belongs to queue pair %q of the same interface; choose another one", at, rc.GetSourceQpNumber(), other)
		}
		t.numbers[key] = q.GetQpName()
	}
	return engine.QueuePair{
		Name: q.GetQpName(), Number: rc.GetSourceQpNumber(), SourcePort: uint16(rc.GetUdpSourcePort()), PSN: uint32(rc.GetInitialPsn()),
		Data:           marking(rc.GetDscp(), rc.GetEcn().String()),
		VirtualAddress: t.hex(rc.GetVirtualAddress(), 64, at+".virtual_address"),
		RemoteKey:      uint32(t.hex(rc.GetRemoteKey(), 32, at+".remote_key")),
	}
}

// hex parses hexadecimal digits of a number with that many bits. No digits are 0.
func (t *translator) hex(s string, bits int, at string) uint64 {
	if s == "" {
		return 0
	}
	v, err := strconv.ParseUint(s, 16, bits)
	if err != nil {
		t.errorf("%s: %q: is not a number of %d hexadecimal digits or less", at, s, bits/4)
	}
	return v
}

// connect determines the remote end of each queue pair. Two peers that have each other's addresses connect their queue pairs in the
// order of the configuration; a flow's rx_endpoint selects another one later.
func (t *translator) connect() {
	for i := range t.out.Peers {
		p := &t.out.Peers[i]
		facing := t.facing(i)
		for k := range p.QueuePairs {
			q := &p.QueuePairs[k]
			q.Active = !p.Destination.IsUnspecified()
			if facing < 0 || k >= len(t.out.Peers[facing].QueuePairs) {
				continue
			}
			q.Remote = t.out.Peers[facing].QueuePairs[k].Name
			q.Active = i < facing
		}
	}
}

// facing returns the index of the peer that points back to a peer, -1 without one.
func (t *translator) facing(i int) int {
	p := t.out.Peers[i]
	for _, j := range t.local[p.Destination] {
		if j != i && t.out.Peers[j].Destination == t.addrs[p.Address].ip {
			return j
		}
	}
	return -1
}

// accept gives each active queue pair without partner one at its destination, if that is of this configuration: a configured
// one that only accepts and is free, or else an additional one with its attributes.
func (t *translator) accept() {
	for i := range t.out.Peers {
		for k := range t.out.Peers[i].QueuePairs {
			q := &t.out.Peers[i].QueuePairs[k]
			j := t.acceptor(i)
			if !q.Active || q.Remote != "" || j < 0 {
				continue
			}
			at := &t.out.Peers[j]
			free := slices.IndexFunc(at.QueuePairs, func(p engine.QueuePair) bool { return !p.Active && p.Remote == "" })
			if free < 0 {
				free = len(at.QueuePairs)
				at.QueuePairs = append(at.QueuePairs, t.additional(at, q.Name))
				q = &t.out.Peers[i].QueuePairs[k]
			}
			q.Remote, at.QueuePairs[free].Remote = at.QueuePairs[free].Name, q.Name
		}
	}
}

// acceptor returns the index of a peer at the destination of another one, -1 without one. It prefers one that only accepts.
func (t *translator) acceptor(i int) int {
	best := -1
	for _, j := range t.local[t.out.Peers[i].Destination] {
		if p := &t.out.Peers[j]; len(p.QueuePairs) > 0 && (best < 0 || p.Destination.IsUnspecified()) {
			best = j
		}
	}
	return best
}

// additional returns a queue pair that accepts the connection of another one.
func (t *translator) additional(at *engine.Peer, from string) engine.QueuePair {
	q := at.QueuePairs[0]
	q.Name, q.Active, q.Remote = q.Name+" for "+from, false, ""
	q.Number = at.QueuePairs[len(at.QueuePairs)-1].Number // lower ones are in use
	key := func() string { return t.addrs[at.Address].iface + "/" + strconv.Itoa(int(q.Number)) }
	for t.numbers[key()] != "" || q.Number < 2 {
		q.Number = (q.Number + 1) % (1 << 24)
	}
	t.numbers[key()] = q.Name
	return q
}
