package model

import (
	"slices"

	"github.com/open-traffic-generator/snappi/gosnappi/otg"
	"google.golang.org/protobuf/reflect/protoreflect"

	"roced.io/roced/otg/engine"
)

// onNIC has the fields of settings that a NIC of a daemon takes from its clients.
var onNIC = []string{"Rocev2AckAndNak.enable_retransmission_timeout", "Rocev2AckAndNak.retransmission_timeout_value",
	"Rocev2AckAndNak.retransmission_retry_count", "Rocev2QPParameters.dscp", "Rocev2QPParameters.udp_source_port", "Rocev2QPParameters.initial_psn"}

// defaults refuses each field of a message, and of those below it, that has another value than the model's default, unless the NIC of
// a port takes it. Fields without a value here are those with the default: clients send defaults too.
func (t *translator) defaults(m protoreflect.Message, at string, p *engine.Port) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := string(m.Descriptor().Name()) + "." + string(fd.Name())
		in := at + "." + string(fd.Name())
		switch {
		case fd.IsList() || fd.IsMap():
		case fd.Message() != nil:
			t.defaults(v.Message(), in, p)
		case fd.Name() == "choice" || slices.Contains(onNIC, name):
		case table[name].def == "" || !scalar(fd, table[name].def).Equal(v):
			t.errorf("%s: %s: %s; leave it out", in, textOf(fd, v), decides(p))
		}
		return true
	})
}

// decides explains why a setting is refused.
func decides(p *engine.Port) string {
	return "the NIC " + p.Device + " of port \"" + p.Name + "\" decides on it"
}

// frames returns the port with a name like port, and refuses NICs of daemons, which do not give access to frames.
func (t *translator) frames(name, at string) {
	if p, ok := t.port(name, at); ok && p.Kind == engine.Verbs {
		t.errorf("%s: port %q: a NIC of a daemon has neither captures nor flows of plain frames; use an interface as its location", at, name)
	}
}

// nicInterface checks an interface on a NIC of a daemon.
func (t *translator) nicInterface(e *otg.DeviceEthernet, p *engine.Port, at string) {
	if len(e.GetVlans()) > 0 {
		t.errorf("%s.vlans: %s; leave it out", at, decides(p))
	}
	t.warnf("%s.mac: %s: not used, %s", at, e.GetMac(), decides(p))
}

// nicAddress checks an address on a NIC of a daemon.
func (t *translator) nicAddress(gateway, mac, at string, p *engine.Port) {
	if mac != "" {
		t.errorf("%s.gateway_mac: %s: %s; leave it out", at, mac, decides(p))
	}
	t.warnf("%s: gateway %s and prefix: not used, the host of the NIC %s has the routes", at, gateway, p.Device)
}

// nicQueuePair checks a queue pair on a NIC of a daemon.
func (t *translator) nicQueuePair(rc *otg.Rocev2QPParameters, p *engine.Port, at string) {
	t.defaults(rc.ProtoReflect(), at, p)
	if rc.GetUdpSourcePort() < 0xc000 {
		t.errorf("%s.udp_source_port: %d: a NIC of a daemon has 49152 to 65535 (IBTA annex A17.3.2); use one of them", at, rc.GetUdpSourcePort())
	}
}

// CheckLinks refuses links of NICs of daemons, whose state only the host sets. No names mean all ports.
func CheckLinks(names []string, config *engine.Config) error {
	f := &findings{}
	for _, p := range config.Ports {
		if p.Kind == engine.Verbs && (len(names) == 0 || slices.Contains(names, p.Name)) {
			f.errorf("port.link: port %q: roceotg does not set the link of a NIC of a daemon; name the other ports", p.Name)
		}
	}
	return f.result()
}
