package model

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/open-traffic-generator/snappi/gosnappi/otg"

	"roced.io/roced/otg/engine"
)

// Version is the version of OTG's model that fields.txt describes.
const Version = "1.48.0"

// Limits on the memory of a configuration.
const (
	maxQueuePairs = 8192
	maxFlows      = 8192 // of each kind
	maxInterfaces = 1024 // also ports
)

// Errors has all causes why a request is refused.
type Errors []string

func (e Errors) Error() string { return strings.Join(e, "\n") }

// OrNil returns the errors, nil without one.
func (e Errors) OrNil() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// result returns the errors of the findings, nil without one.
func (f *findings) result() error { return Errors(f.errors).OrNil() }

// translator builds the engine's configuration. Maps are by name.
type translator struct {
	findings
	allowed []string // patterns of permitted interfaces
	out     engine.Config
	kinds   map[string]string // kind of each name, for unique names
	ports   map[string]int    // index in out.Ports
	addrs   map[string]address
	mtus    map[string]int       // of interfaces
	local   map[netip.Addr][]int // indices in out.Peers by local address
	pairs   map[string]pair
	flowOf  map[string]int    // in out.Flows by queue pair
	users   map[string]string // interface or address by port and address
	refused []string          // errors of the check
	numbers map[string]string // queue pair by interface and number
	fixed   map[string]bool   // queue pairs that a flow has connected
}

// address is a local address with its interface and its port.
type address struct {
	iface, port string
	ip          netip.Addr
}

// pair is a queue pair's place in the configuration.
type pair struct {
	peer, index int // in out.Peers and its queue pairs
	port        string
	at          string
}

// Translate checks a configuration, sets its defaults, and translates it. allowed has patterns of the
// interfaces that ports may have, as engine.Port.Permitted describes. The error is of type Errors.
func Translate(c *otg.Config, allowed []string) (engine.Config, []string, error) {
	t := &translator{allowed: allowed, kinds: map[string]string{}, ports: map[string]int{}, addrs: map[string]address{}, mtus: map[string]int{}, local: map[netip.Addr][]int{},
		pairs: map[string]pair{}, flowOf: map[string]int{}, users: map[string]string{}, numbers: map[string]string{}, fixed: map[string]bool{}}
	t.check(c, "")
	t.refused = slices.Clone(t.errors)
	if t.count(c); len(t.errors) > len(t.refused) {
		return engine.Config{}, nil, t.result()
	}
	t.translatePorts(c)
	t.layer1(c.GetLayer1())
	t.options(c.GetOptions())
	for i, d := range c.GetDevices() {
		t.device(d, item("devices", i))
	}
	t.connect()
	group := 0
	for i, r := range c.GetStatefulFlows().GetRocev2() {
		for j, p := range r.GetTxPorts() {
			t.flows(p, group, item(item("stateful_flows.rocev2", i)+".tx_ports", j))
			group++
		}
	}
	t.accept()
	t.out.RawFlows = t.rawFlows(c.GetFlows(), "flows")
	t.captures(c.GetCaptures())
	t.out.AutoStart = c.GetOptions().GetProtocolOptions().GetAutoStartAll()
	t.errors = slices.DeleteFunc(t.errors, t.consequence)
	return t.out, t.warnings, t.result()
}

// consequence reports whether an error follows from a field that the check has refused.
func (t *translator) consequence(text string) bool {
	at, _, _ := strings.Cut(text, ": ")
	return !slices.Contains(t.refused, text) && slices.ContainsFunc(t.refused, func(r string) bool { return strings.HasPrefix(r, at+": ") })
}

// count refuses configurations with more objects than the limits.
func (t *translator) count(c *otg.Config) {
	var interfaces, pairs, flows int
	for _, d := range c.GetDevices() {
		interfaces += len(d.GetEthernets())
		for _, r := range d.GetRocev2().GetIpv4Interfaces() {
			for _, p := range r.GetPeers() {
				pairs += max(len(p.GetQps()), 1)
			}
		}
		for _, r := range d.GetRocev2().GetIpv6Interfaces() {
			for _, p := range r.GetPeers() {
				pairs += max(len(p.GetQps()), 1)
			}
		}
	}
	for _, r := range c.GetStatefulFlows().GetRocev2() {
		for _, p := range r.GetTxPorts() {
			flows += len(p.GetTransmitType().GetTargetLineRate().GetFlows())
		}
	}
	for _, x := range []struct {
		kind    string
		n, most int
	}{{"ports: %d ports", len(c.GetPorts()), maxInterfaces}, {"devices: %d interfaces", interfaces, maxInterfaces}, {"devices: %d peers or queue pairs", pairs, maxQueuePairs},
		{"stateful_flows: %d flows", flows, maxFlows}, {"flows: %d flows", len(c.GetFlows()), maxFlows}} {
		if x.n > x.most {
			t.errorf(x.kind+": configure at most %d", x.n, x.most)
		}
	}
}

func item(name string, i int) string { return name + "[" + strconv.Itoa(i) + "]" }

// name registers a name, which only a flow and its queue pair may share.
func (t *translator) name(name, kind, at string) {
	if name == "" { // refused
		return
	}
	if other := t.kinds[name]; other != "" && !(other == "queue pair" && kind == "flow") {
		t.errorf("%s: name %q: belongs to a %s; names must be unique", at, name, other)
	}
	t.kinds[name] = kind
}

// port returns the configured port with a name, and reports whether there is one.
func (t *translator) port(name, at string) (*engine.Port, bool) {
	i, ok := t.ports[name]
	if !ok {
		t.errorf("%s: port %q: is not in ports; configured are %s", at, name, listOf(t.ports))
		return nil, false
	}
	return &t.out.Ports[i], true
}

// listed is the largest number of names that an error lists.
const listed = 32

// ListOf returns names for errors, or only their number.
func ListOf(names []string) string {
	if len(names) > listed {
		return fmt.Sprintf("%d names", len(names))
	}
	quoted := make([]string, len(names))
	for i, n := range slices.Sorted(slices.Values(names)) {
		quoted[i] = strconv.Quote(n)
	}
	return cmp.Or(strings.Join(quoted, ", "), "none")
}

func listOf[V any](m map[string]V) string { return ListOf(slices.Collect(maps.Keys(m))) }

func (t *translator) translatePorts(c *otg.Config) {
	used := map[string]string{}
	for i, p := range c.GetPorts() {
		at := item("ports", i)
		t.name(p.GetName(), "port", at)
		port := engine.Port{Name: p.GetName(), Location: p.GetLocation(), Promiscuous: true, RoCE: t.settings(defaultSettings(), "")}
		if err := locate(&port); err != "" {
			t.errorf("%s.location: %s", at, err)
		}
		place := strings.Join([]string{port.Agent, fmt.Sprint(port.Kind == engine.Verbs), port.Namespace, port.Device}, " ")
		if other, twice := used[place]; twice {
			t.errorf("%s.location: %s: belongs to port %q; each port needs an interface of its own", at, port.Location, other)
		}
		used[place] = port.Name
		if !port.Permitted(t.allowed) {
			t.errorf("%s.location: %s: roceotg was not started for this interface; start it with this interface", at, port.Location)
		}
		t.ports[port.Name] = len(t.out.Ports)
		t.out.Ports = append(t.out.Ports, port)
	}
}

// kinds of links by the scheme of a location.
var kinds = map[string]engine.LinkKind{"packet": engine.Packet, "xdp": engine.XDP, "tap": engine.TAP, "nic": engine.Verbs}

// locate parses a location into agent, kind, namespace and device. It returns the reason if the location is wrong.
func locate(p *engine.Port) string {
	rest := p.Location
	if after, ok := strings.CutPrefix(rest, "agent://"); ok {
		p.Agent, rest, _ = strings.Cut(after, "/")
		if host, port, err := net.SplitHostPort(p.Agent); err != nil || host == "" || port == "" || strings.HasPrefix(rest, "agent:") {
			return p.Location + ": has no agent; use agent://HOST:PORT/LOCATION"
		}
	}
	if scheme, after, ok := strings.Cut(rest, "://"); ok {
		kind, known := kinds[scheme]
		if !known {
			return p.Location + `: unknown link "` + scheme + `"; use packet://, xdp://, tap:// or nic://`
		}
		p.Kind, rest = kind, after
	}
	if p.Kind == engine.Verbs {
		if rest == "" || strings.ContainsAny(rest, "/ ") || rest[0] == '.' {
			return p.Location + ": is not a NIC of a daemon; use nic://NIC"
		}
		p.Device = rest
		return ""
	}
	if after, ok := strings.CutPrefix(rest, "netns/"); ok {
		p.Namespace, rest = path.Split(after) // a namespace can be a path
		p.Namespace = strings.TrimSuffix(p.Namespace, "/")
		if p.Namespace == "" || p.Namespace != path.Clean(p.Namespace) || p.Namespace[0] == '.' {
			return p.Location + ": has no namespace; use netns/NAMESPACE/INTERFACE"
		}
	}
	if rest == "" || len(rest) > 15 || strings.ContainsAny(rest, "/ :") || rest == "." || rest == ".." {
		return p.Location + ": is not an interface; use INTERFACE, netns/NAMESPACE/INTERFACE, xdp://INTERFACE, tap://INTERFACE or nic://NIC"
	}
	p.Device = rest
	return ""
}

func (t *translator) layer1(list []*otg.Layer1) {
	set := map[string]bool{}
	for i, l := range list {
		at := item("layer1", i)
		t.name(l.GetName(), "layer1", at)
		for _, name := range l.GetPortNames() {
			p, ok := t.port(name, at+".port_names")
			if !ok {
				continue
			}
			if set[name] {
				t.errorf("%s.port_names: port %q: has settings already; give each port one layer1", at, name)
			}
			set[name] = true
			p.Promiscuous = l.GetPromiscuous()
			if p.Kind == engine.TAP {
				p.MTU = int(l.GetMtu())
			} else if l.GetMtu() != 1500 {
				t.warnf("%s.mtu: %d: using the MTU of %s as it is", at, l.GetMtu(), p.Location)
			}
			if l.Speed != nil {
				p.Speed = speed(l.GetSpeed().String())
			}
		}
	}
}

// speed returns the bits per second of a name such as speed_10_gbps or speed_100_fd_mbps.
func speed(name string) uint64 {
	digits, _, _ := strings.Cut(strings.TrimPrefix(name, "speed_"), "_")
	n, _ := strconv.ParseUint(digits, 10, 64)
	if strings.HasSuffix(name, "gbps") {
		return n * 1e9
	}
	return n * 1e6
}

func (t *translator) captures(list []*otg.Capture) {
	captured := map[string]string{}
	for i, c := range list {
		at := item("captures", i)
		t.name(c.GetName(), "capture", at)
		for _, name := range c.GetPortNames() {
			t.frames(name, at+".port_names")
			if other := captured[name]; other != "" {
				t.errorf("%s.port_names: port %q: belongs to capture %q; name it once", at, name, other)
			}
			captured[name] = c.GetName()
		}
		t.out.Captures = append(t.out.Captures, engine.Capture{Ports: c.GetPortNames(), Snap: int(c.GetPacketSize()),
			Overwrite: c.GetOverwrite(), PCAPNG: c.GetFormat() == otg.Capture_Format_pcapng})
	}
}

// defaultSettings are those of a port without per_port_options.
func defaultSettings() *otg.Rocev2PerPortSettings {
	s := &otg.Rocev2PerPortSettings{}
	(&findings{}).check(s, "")
	return s
}

func (t *translator) options(o *otg.ConfigOptions) {
	set := map[string]bool{}
	for i, per := range o.GetPerPortOptions() {
		at := item("options.per_port_options", i)
		p, ok := t.port(per.GetPortName(), at+".port_name")
		if !ok {
			continue
		}
		if set[p.Name] || len(per.GetProtocols()) > 1 {
			t.errorf("%s: port %q: has settings of RoCEv2 already; give each port one set", at, p.Name)
		}
		set[p.Name] = true
		for j, protocol := range per.GetProtocols() {
			in := item(at+".protocols", j) + ".rocev2"
			if p.Kind == engine.Verbs {
				t.defaults(protocol.GetRocev2().ProtoReflect(), in, p)
			}
			p.RoCE = t.settings(protocol.GetRocev2(), in)
		}
	}
}

// settings translates settings of a port.
func (t *translator) settings(s *otg.Rocev2PerPortSettings, at string) engine.PortSettings {
	rc := s.GetConnectionType().GetReliableConnection()
	out := engine.PortSettings{
		CNP:         marking(s.GetCnp().GetIpDscp().GetValue(), s.GetCnp().GetEcnValue().String()),
		CNPInterval: time.Duration(s.GetCnp().GetCnpDelayTimer()) * time.Microsecond,
		ACK:         marking(rc.GetAck().GetIpDscp().GetValue(), rc.GetAck().GetEcnValue().String()),
		NAK:         marking(rc.GetNak().GetIpDscp().GetValue(), rc.GetNak().GetEcnValue().String()),
		Retries:     int(rc.GetRetransmissionRetryCount()),
		DCQCN:       dcqcn(s.GetDcqcnSettings()),
	}
	at += ".connection_type.reliable_connection"
	if out.Retries > 7 {
		out.Retries = 7
		t.warnf("%s.retransmission_retry_count: %d: using 7, the most that RoCEv2 has", at, rc.GetRetransmissionRetryCount())
	}
	if rc.GetEnableRetransmissionTimeout() {
		asked := time.Duration(rc.GetRetransmissionTimeoutValue()) * time.Millisecond
		out.Timeout = timeout(asked)
		if out.Timeout > asked+asked/10 {
			t.warnf("%s.retransmission_timeout_value: %d ms: using %s, the next of RoCEv2's 4.096 us * 2^n", at, asked.Milliseconds(), out.Timeout)
		}
	}
	return out
}

// timeout returns the shortest timeout of an RC queue pair (IBTA, 4.096 us * 2^n) that is not below d.
func timeout(d time.Duration) time.Duration {
	n := 1
	for n < 31 && 4096*time.Nanosecond<<n < d {
		n++
	}
	return 4096 * time.Nanosecond << n
}

// marking converts a DSCP and the name of an ECN value.
func marking(dscp uint32, ecn string) engine.Marking {
	bits := map[string]engine.ECN{"non_ect": 0, "ect_1": 1, "ect_0": 2, "ce": 3}
	return engine.Marking{DSCP: uint8(dscp), ECN: bits[ecn]}
}

func dcqcn(d *otg.Rocev2DCQCN) engine.DCQCN {
	us := func(v uint64) time.Duration { return time.Duration(v) * time.Microsecond }
	percent := func(v float32) float64 { return float64(v) / 100 }
	return engine.DCQCN{
		Enable: d.GetEnableDcqcn(), Gain: float64(1024-d.GetAlphaG()) / 1024, InitialAlpha: float64(d.GetInitialAlpha()) / 1024,
		AlphaPeriod: us(d.GetAlphaUpdatePeriod()), DecreasePeriod: us(d.GetRateReductionTimePeriod()),
		FirstRate: percent(d.GetInitialRateAfterFirstCnp()), MinRate: percent(d.GetMinimumRateLimmit()),
		MaxDecrease: float64(d.GetMaximumRateDecrementAtTime()) / 100, ClampTarget: d.GetClampTargetRate(),
		IncreaseTime: us(d.GetRateIncrementTime()), IncreaseBytes: d.GetRateIncrementByteCounter(),
		IncreaseSteps: int(d.GetRateIncrementThreshold()),
		AdditiveRate:  percent(d.GetAdditiveIncrementRate()), HyperRate: percent(d.GetHyperIncrementRate()),
	}
}
