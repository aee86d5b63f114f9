package model

import (
	"encoding/hex"
	"net"
	"net/netip"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/open-traffic-generator/snappi/gosnappi/otg"

	"roced.io/roced/otg/engine"
)

// fcs is the length of a frame's check sequence, which OTG's sizes include.
const fcs = 4

// signature is the length of the mark that the engine writes to the end of the payload of frames that it counts.
const signature = 16

func (t *translator) rawFlows(list []*otg.Flow, path string) (out []engine.RawFlow) {
	for i, f := range list {
		at := item(path, i)
		t.name(f.GetName(), "flow of plain frames", at)
		flow := engine.RawFlow{Name: f.GetName(), Tx: f.GetTxRx().GetPort().GetTxName(), Rx: f.GetTxRx().GetPort().GetRxNames(),
			Rate: rate(f.GetRate()), Metrics: f.GetMetrics().GetEnable()}
		if rx := f.GetTxRx().GetPort().GetRxName(); rx != "" {
			flow.Rx = append(flow.Rx, rx)
		}
		for _, name := range append([]string{flow.Tx}, flow.Rx...) {
			t.frames(name, at+".tx_rx.port")
		}
		t.duration(f.GetDuration(), &flow)
		t.frame(f, &flow, at)
		out = append(out, flow)
	}
	return out
}

// duration sets the end and the delay of a flow.
func (t *translator) duration(d *otg.FlowDuration, flow *engine.RawFlow) {
	var delay *otg.FlowDelay
	switch d.GetChoice() {
	case otg.FlowDuration_Choice_fixed_packets:
		flow.Packets, delay = uint64(d.GetFixedPackets().GetPackets()), d.GetFixedPackets().GetDelay()
	case otg.FlowDuration_Choice_fixed_seconds:
		flow.Duration, delay = seconds(float64(d.GetFixedSeconds().GetSeconds())), d.GetFixedSeconds().GetDelay()
	default:
		delay = d.GetContinuous().GetDelay()
	}
	flow.Delay = seconds(float64(delay.GetNanoseconds())/1e9 + float64(delay.GetMicroseconds())/1e6)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func rate(r *otg.FlowRate) engine.Rate {
	switch r.GetChoice() {
	case otg.FlowRate_Choice_bps:
		return engine.Rate{Unit: engine.BitsPerSecond, Value: float64(r.GetBps())}
	case otg.FlowRate_Choice_kbps:
		return engine.Rate{Unit: engine.BitsPerSecond, Value: float64(r.GetKbps()) * 1e3}
	case otg.FlowRate_Choice_mbps:
		return engine.Rate{Unit: engine.BitsPerSecond, Value: float64(r.GetMbps()) * 1e6}
	case otg.FlowRate_Choice_gbps:
		return engine.Rate{Unit: engine.BitsPerSecond, Value: float64(r.GetGbps()) * 1e9}
	case otg.FlowRate_Choice_percentage:
		return engine.Rate{Unit: engine.LineFraction, Value: float64(r.GetPercentage()) / 100}
	}
	return engine.Rate{Unit: engine.PacketsPerSecond, Value: float64(r.GetPps())}
}

// frame builds the frame of a flow.
func (t *translator) frame(f *otg.Flow, flow *engine.RawFlow, at string) {
	s := stack{t: t, flow: flow}
	for i, h := range f.GetPacket() {
		s.header(h, item(at+".packet", i))
	}
	if len(s.all) == 0 {
		t.errorf("%s.packet: has no header; add ethernet", at)
		return
	}
	headers := 0
	for _, l := range s.all {
		headers += map[gopacket.LayerType]int{layers.LayerTypeEthernet: 14, layers.LayerTypeDot1Q: 4, layers.LayerTypeIPv4: 20,
			layers.LayerTypeIPv6: 40, layers.LayerTypeUDP: 8}[l.LayerType()]
	}
	payload := int(f.GetSize().GetFixed()) - fcs - headers
	least := 0
	if flow.Metrics {
		least = signature
	}
	if payload < least {
		t.errorf("%s.size.fixed: %d: is too small; headers, metrics and FCS need %d bytes", at, f.GetSize().GetFixed(), headers+least+fcs)
		return
	}
	body := t.pattern(f.GetPayload().GetFixed().GetPattern(), payload, at+".payload.fixed.pattern")
	out := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(out, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		append(s.all, gopacket.Payload(body))...); err != nil {
		t.errorf("%s.packet: %v", at, err)
		return
	}
	flow.Frame = out.Bytes()
}

// pattern repeats hexadecimal digits to n bytes.
func (t *translator) pattern(digits string, n int, at string) []byte {
	if digits == "" {
		digits = "00"
	}
	p, err := hex.DecodeString(separators.Replace(digits))
	if err != nil || len(p) == 0 {
		t.errorf("%s: %q: is not an even number of hexadecimal digits", at, digits)
		return make([]byte, n)
	}
	out := make([]byte, n)
	for i := range out {
		out[i] = p[i%len(p)]
	}
	return out
}

// stack collects the layers of a frame. Each header sets the type in the header before it, unless the flow has a value.
type stack struct {
	t    *translator
	flow *engine.RawFlow
	all  []gopacket.SerializableLayer
	last int                                          // place of the last header in the order
	next func(layers.EthernetType, layers.IPProtocol) // sets the type of the next header
	ip   gopacket.NetworkLayer
}

func (s *stack) header(h *otg.FlowHeader, at string) {
	kind := h.GetChoice().String()
	order := map[string]int{"ethernet": 1, "vlan": 2, "ipv4": 3, "ipv6": 3, "udp": 4}[kind]
	if len(s.all) == 0 && order != 1 || order <= s.last && !(kind == "vlan" && s.last == order) {
		s.t.errorf("%s: %s: a frame has ethernet, then vlan, one of ipv4 and ipv6, and udp, as far as it needs them", at, kind)
		return
	}
	s.last = order
	next := s.next
	if next == nil {
		next = func(layers.EthernetType, layers.IPProtocol) {}
	}
	s.next = nil
	switch kind {
	case "ethernet":
		s.ethernet(h.GetEthernet(), at+".ethernet")
	case "vlan":
		next(s.vlan(h.GetVlan()), 0)
	case "ipv4":
		next(layers.EthernetTypeIPv4, 0)
		s.ipv4(h.GetIpv4(), at+".ipv4")
	case "ipv6":
		next(layers.EthernetTypeIPv6, 0)
		s.ipv6(h.GetIpv6(), at+".ipv6")
	case "udp":
		next(0, layers.IPProtocolUDP)
		u := &layers.UDP{SrcPort: layers.UDPPort(h.GetUdp().GetSrcPort().GetValue()), DstPort: layers.UDPPort(h.GetUdp().GetDstPort().GetValue())}
		if s.ip == nil {
			s.t.errorf("%s: udp: needs ipv4 or ipv6 before it", at)
			return
		}
		_ = u.SetNetworkLayerForChecksum(s.ip) // fails for other layers than IP only
		s.all = append(s.all, u)
	}
}

func (s *stack) ethernet(e *otg.FlowEthernet, at string) {
	src := s.t.mac(e.GetSrc().GetValue(), at+".src.value")
	l := &layers.Ethernet{SrcMAC: src[:], DstMAC: make(net.HardwareAddr, 6)}
	if e.GetDst().GetChoice() == otg.PatternFlowEthernetDst_Choice_value {
		dst := s.t.mac(e.GetDst().GetValue(), at+".dst.value")
		l.DstMAC = dst[:]
	} else {
		s.flow.Resolve = netip.IPv4Unspecified() // the IP header sets it
	}
	if e.GetEtherType().GetChoice() == otg.PatternFlowEthernetEtherType_Choice_value {
		l.EthernetType = layers.EthernetType(e.GetEtherType().GetValue())
	} else {
		s.next = func(t layers.EthernetType, _ layers.IPProtocol) { l.EthernetType = t }
	}
	s.all = append(s.all, l)
}

// vlan returns the tag protocol for the header before it.
func (s *stack) vlan(v *otg.FlowVlan) layers.EthernetType {
	l := &layers.Dot1Q{Priority: uint8(v.GetPriority().GetValue()), VLANIdentifier: uint16(v.GetId().GetValue())}
	s.next = func(t layers.EthernetType, _ layers.IPProtocol) { l.Type = t }
	s.all = append(s.all, l)
	if tpid := v.GetTpid().GetValue(); tpid != 0xffff {
		return layers.EthernetType(tpid)
	}
	return layers.EthernetTypeDot1Q
}

func (s *stack) ipv4(v *otg.FlowIpv4, at string) {
	l := &layers.IPv4{Version: 4, Id: uint16(v.GetIdentification().GetValue()), TTL: uint8(v.GetTimeToLive().GetValue()),
		SrcIP: s.address(v.GetSrc().GetValue(), at+".src.value", netip.Addr.Is4), DstIP: s.address(v.GetDst().GetValue(), at+".dst.value",
			netip.Addr.Is4)}
	if v.GetDontFragment().GetValue() == 1 {
		l.Flags = layers.IPv4DontFragment
	}
	if p := v.GetPriority(); p.GetChoice() == otg.FlowIpv4Priority_Choice_raw {
		l.TOS = uint8(p.GetRaw().GetValue())
	} else {
		l.TOS = uint8(p.GetDscp().GetPhb().GetValue()<<2 | p.GetDscp().GetEcn().GetValue())
	}
	l.Protocol = layers.IPProtocol(61)
	if v.GetProtocol().GetChoice() == otg.PatternFlowIpv4Protocol_Choice_value {
		l.Protocol = layers.IPProtocol(v.GetProtocol().GetValue())
	} else {
		s.next = func(_ layers.EthernetType, p layers.IPProtocol) { l.Protocol = p }
	}
	s.resolve(l.SrcIP, l.DstIP, at+".dst")
	s.ip, s.all = l, append(s.all, l)
}

func (s *stack) ipv6(v *otg.FlowIpv6, at string) {
	l := &layers.IPv6{Version: 6, TrafficClass: uint8(v.GetTrafficClass().GetValue()), FlowLabel: v.GetFlowLabel().GetValue(),
		HopLimit: uint8(v.GetHopLimit().GetValue()), NextHeader: layers.IPProtocolNoNextHeader,
		SrcIP: s.address(v.GetSrc().GetValue(), at+".src.value", netip.Addr.Is6), DstIP: s.address(v.GetDst().GetValue(), at+".dst.value",
			netip.Addr.Is6)}
	if v.GetNextHeader().GetChoice() == otg.PatternFlowIpv6NextHeader_Choice_value {
		l.NextHeader = layers.IPProtocol(v.GetNextHeader().GetValue())
	} else {
		s.next = func(_ layers.EthernetType, p layers.IPProtocol) { l.NextHeader = p }
	}
	s.resolve(l.SrcIP, l.DstIP, at+".dst")
	s.ip, s.all = l, append(s.all, l)
}

func (s *stack) address(text, at string, is func(netip.Addr) bool) net.IP {
	return s.t.addr(text, at, is).AsSlice()
}

// resolve sets the address whose MAC address the frame needs, if its Ethernet header says so: the destination, or the gateway of the
// source address.
func (s *stack) resolve(src, dst net.IP, at string) {
	if !s.flow.Resolve.IsValid() {
		return
	}
	from, _ := netip.AddrFromSlice(src)
	s.flow.Resolve, _ = netip.AddrFromSlice(dst)
	for _, i := range s.t.out.Interfaces {
		for _, a := range i.Addresses {
			switch {
			case i.Port != s.flow.Tx:
			case a.Prefix.Contains(s.flow.Resolve):
				return
			case a.Prefix.Addr() == from && a.Prefix.Contains(a.Gateway):
				s.flow.Resolve = a.Gateway
				return
			}
		}
	}
	s.t.errorf("%s: %s: no interface of port %q has its network, or the source address with a gateway; set the destination MAC", at, s.flow.Resolve, s.flow.Tx)
}
