package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
)

// An echo has echoTries requests, one per echoPeriod. It fails one period after the last.
const (
	echoTries  = 4
	echoPeriod = 500 * time.Millisecond
	echoPoll   = 5 * time.Millisecond
	echoLen    = 32 // payload
)

// Types of echo replies (RFC 792, RFC 4443).
const (
	echoReply   = 0
	echoReplyV6 = 129
)

// echo is an ICMP echo in progress. It belongs to the shard.
type echo struct {
	Ping
	host *host
	src  netip.Addr
	via  netip.Addr // next hop
	id   uint16
	sent int
	next mono.Time // request, or failure
}

// Ping implements Engine.
func (e *engine) Ping(all []Ping) ([]Ping, error) {
	e.mu.Lock()
	run := e.run
	if run == nil {
		e.mu.Unlock()
		return nil, ErrNothing
	}
	echoes, err := e.echoes(all)
	e.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := e.each(run, func(mono.Time) {
		for _, x := range echoes {
			x.host.port.echoes = append(x.host.port.echoes, x)
		}
	}); err != nil {
		return nil, err
	}
	tick := time.NewTicker(echoPoll)
	defer tick.Stop()
	for pending := true; pending; <-tick.C {
		pending = false
		if err := e.each(run, func(now mono.Time) {
			for _, x := range echoes {
				pending = x.advance(now) || pending
			}
		}); err != nil {
			return nil, err
		}
	}
	out := make([]Ping, len(echoes))
	return out, e.each(run, func(mono.Time) {
		for i, x := range echoes {
			out[i] = x.Ping
			x.host.port.echoes = slices.DeleteFunc(x.host.port.echoes, func(o *echo) bool { return o == x })
		}
	})
}

// each runs f on the shard while the configuration is run.
func (e *engine) each(run *running, f func(now mono.Time)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.run != run {
		return errors.New("ping: the configuration has been replaced meanwhile")
	}
	return e.do(func(now mono.Time) error { f(now); return nil })
}

// echoes prepares requests.
func (e *engine) echoes(all []Ping) (out []*echo, err error) {
	var errs []error
	for i, p := range all {
		h, a, ok := e.run.address(p.Source)
		x := &echo{Ping: p, host: h, src: a.Prefix.Addr(), via: p.Destination, id: uint16(i)}
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("ping: no address %q", p.Source))
		case a.Prefix.Contains(p.Destination):
		case a.Gateway.IsValid() && !a.Gateway.IsUnspecified():
			x.via = a.Gateway
		default:
			errs = append(errs, fmt.Errorf("ping: %s is not in the network of %q, which has no gateway", p.Destination, p.Source))
		}
		out = append(out, x)
	}
	return out, errors.Join(errs...)
}

// advance sends the request that is due, once the next hop has an Ethernet address. It reports whether the echo waits for a reply.
func (x *echo) advance(now mono.Time) bool {
	if x.OK {
		return false
	}
	if now < x.next {
		return true
	}
	if x.sent == echoTries {
		return false
	}
	x.sent, x.next = x.sent+1, now.Add(echoPeriod)
	mac, ok := x.host.neighbour(now, x.via)
	if !ok {
		x.host.nic.Wake()
		return true
	}
	b := x.frame(mac)
	f := link.Frame{Bufs: [][]byte{b}, Len: len(b)}
	if p := x.host.port; !p.down && p.link.Send(now, &f) == nil {
		p.sent(now, &f)
	}
	return true
}

// frame returns the echo request.
func (x *echo) frame(dst inet.MAC) []byte {
	eth := &layers.Ethernet{SrcMAC: x.host.cfg.MAC[:], DstMAC: dst[:], EthernetType: layers.EthernetTypeIPv4}
	all := []gopacket.SerializableLayer{eth}
	typ := &eth.EthernetType
	if v := x.host.cfg.VLANs; len(v) > 0 {
		tag := &layers.Dot1Q{VLANIdentifier: v[0].ID, Priority: v[0].Priority, Type: layers.EthernetTypeIPv4}
		*typ = layers.EthernetTypeDot1Q
		all, typ = append(all, tag), &tag.Type
	}
	from, to := net.IP(x.src.AsSlice()), net.IP(x.Destination.AsSlice())
	if x.src.Is4() {
		all = append(all, &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolICMPv4, SrcIP: from, DstIP: to},
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0), Id: x.id, Seq: uint16(x.sent)})
	} else {
		*typ = layers.EthernetTypeIPv6
		ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolICMPv6, SrcIP: from, DstIP: to}
		icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeEchoRequest, 0)}
		_ = icmp.SetNetworkLayerForChecksum(ip) // fails for other layers than IP only
		all = append(all, ip, icmp, &layers.ICMPv6Echo{Identifier: x.id, SeqNumber: uint16(x.sent)})
	}
	out := gopacket.NewSerializeBuffer()
	// Serialization fails for missing addresses only.
	_ = gopacket.SerializeLayers(out, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		append(all, gopacket.Payload(make([]byte, echoLen)))...)
	return out.Bytes()
}

// catchEcho finds the request of a received reply.
func (p *testPort) catchEcho(b []byte) {
	typ, l3, _ := inet.EtherType(b)
	body, reply := l3+inet.IPv6Len, byte(echoReplyV6)
	switch {
	case typ == inet.TypeIPv4 && len(b) >= l3+inet.IPv4Len && b[l3+9] == uint8(layers.IPProtocolICMPv4):
		body, reply = l3+int(b[l3]&15)*4, echoReply
	case typ == inet.TypeIPv6 && len(b) >= l3+inet.IPv6Len && b[l3+6] == uint8(layers.IPProtocolICMPv6):
	default:
		return
	}
	if len(b) < body+8 || b[body] != reply {
		return
	}
	src, dst := addressesOf(b)
	for _, x := range p.echoes {
		if x.id == binary.BigEndian.Uint16(b[body+4:]) && src == inet.GIDOf(x.Destination) && dst == inet.GIDOf(x.src) {
			x.OK = true
		}
	}
}
