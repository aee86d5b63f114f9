package model

import (
	"fmt"
	"net/netip"

	"github.com/open-traffic-generator/snappi/gosnappi/otg"

	"roced.io/roced/otg/engine"
)

// pingRequest is what the requests by IPv4 and IPv6 have in common.
type pingRequest interface {
	GetSrcName() string
	GetDstIp() string
}

// maxPings limits the echoes of an action.
const maxPings = 1024

// Pings returns the requests of an action that Check has accepted.
func Pings(a *otg.ControlAction, config *engine.Config) ([]engine.Ping, error) {
	t := &translator{addrs: map[string]address{}}
	kinds := map[string]engine.LinkKind{}
	for _, p := range config.Ports {
		kinds[p.Name] = p.Kind
	}
	for _, i := range config.Interfaces {
		for _, x := range i.Addresses {
			t.addrs[x.Name] = address{i.Name, i.Port, x.Prefix.Addr()}
		}
	}
	var out []engine.Ping
	add := func(r pingRequest, at string, is func(netip.Addr) bool) {
		source, ok := t.addrs[r.GetSrcName()]
		switch {
		case !ok || !is(source.ip):
			t.errorf("%s.src_name: %q: is not a configured address of this family; configured are %s", at, r.GetSrcName(), listOf(t.addrs))
		case kinds[source.port] == engine.Verbs:
			t.errorf("%s.src_name: %q: is on a NIC of a daemon, which sends no echoes for its clients; use an address of an interface", at, r.GetSrcName())
		}
		out = append(out, engine.Ping{Source: r.GetSrcName(), Destination: t.addr(r.GetDstIp(), at+".dst_ip", is)})
	}
	for i, r := range a.GetProtocol().GetIpv4().GetPing().GetRequests() {
		add(r, fmt.Sprintf("protocol.ipv4.ping.requests[%d]", i), netip.Addr.Is4)
	}
	for i, r := range a.GetProtocol().GetIpv6().GetPing().GetRequests() {
		add(r, fmt.Sprintf("protocol.ipv6.ping.requests[%d]", i), netip.Addr.Is6)
	}
	if len(out) > maxPings {
		t.errorf("protocol: %d echoes: request at most %d", len(out), maxPings)
	}
	return out, t.result()
}

// PingResponse returns the results of an action.
func PingResponse(a *otg.ControlAction, pings []engine.Ping) *otg.ControlActionResponse {
	p := &otg.ActionResponseProtocol{}
	if a.GetProtocol().GetIpv6() != nil {
		p.Choice = otg.ActionResponseProtocol_Choice_ipv6.Enum()
		p.Ipv6 = &otg.ActionResponseProtocolIpv6{Choice: otg.ActionResponseProtocolIpv6_Choice_ping.Enum(), Ping: &otg.ActionResponseProtocolIpv6Ping{}}
	} else {
		p.Choice = otg.ActionResponseProtocol_Choice_ipv4.Enum()
		p.Ipv4 = &otg.ActionResponseProtocolIpv4{Choice: otg.ActionResponseProtocolIpv4_Choice_ping.Enum(), Ping: &otg.ActionResponseProtocolIpv4Ping{}}
	}
	for _, x := range pings {
		source, dst := x.Source, x.Destination.String()
		if p.Ipv6 != nil {
			r := otg.ActionResponseProtocolIpv6PingResponse_Result_failed
			if x.OK {
				r = otg.ActionResponseProtocolIpv6PingResponse_Result_succeeded
			}
			p.Ipv6.Ping.Responses = append(p.Ipv6.Ping.Responses, &otg.ActionResponseProtocolIpv6PingResponse{SrcName: &source, DstIp: &dst, Result: r.Enum()})
			continue
		}
		r := otg.ActionResponseProtocolIpv4PingResponse_Result_failed
		if x.OK {
			r = otg.ActionResponseProtocolIpv4PingResponse_Result_succeeded
		}
		p.Ipv4.Ping.Responses = append(p.Ipv4.Ping.Responses, &otg.ActionResponseProtocolIpv4PingResponse{SrcName: &source, DstIp: &dst, Result: r.Enum()})
	}
	return &otg.ControlActionResponse{Response: &otg.ActionResponse{Choice: otg.ActionResponse_Choice_protocol.Enum(), Protocol: p}}
}
