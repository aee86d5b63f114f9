package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"roced.io/roced/ccalgo"
	"roced.io/roced/path"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/retrans"
	"roced.io/roced/rocev2"
)

const minimal = "nics: [{name: a, port: {type: tap}}]"

func read(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	return c
}

func TestExamples(t *testing.T) {
	names, err := filepath.Glob("../../../configs/*.yaml")
	if err != nil || len(names) < 4 {
		t.Fatalf("%v, %v", names, err)
	}
	for _, name := range names {
		if _, err := Load(name); err != nil {
			t.Error(err)
		}
	}
}

// TestPersonalities checks profiles of vendor NICs. Their congestion control follows the Flor paper; unknown values
// are marked as guesses.
func TestPersonalities(t *testing.T) {
	for name, want := range map[string]struct {
		algorithm string
		sharing   ccalgo.Sharing
		window    bool
	}{
		"cx4": {"dcqcn", ccalgo.PerDestination, false}, "cx5": {"dcqcn", ccalgo.PerDestination, false},
		"e810": {"dcqcn", ccalgo.PerFiveTuple, true}, "p2100g": {"dctcp", ccalgo.PerQueuePair, true},
	} {
		path := filepath.Join("../../../configs/personalities", name+".yaml")
		c, err := Load(path)
		if err != nil {
			t.Error(err)
			continue
		}
		x := &c.NICs[0].Congestion
		_, by, err := ccalgo.SplitSharing(x.Params)
		if x.Algorithm != want.algorithm || by != want.sharing || err != nil {
			t.Errorf("%s: %s, shared by %d, %v", name, x.Algorithm, by, err)
		}
		p, err := plugins(&c.NICs[0])
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		p.Controller.Reset(1024)
		if window, _ := p.Controller.Limits(); (window != ccalgo.Unlimited) != want.window {
			t.Errorf("%s: a window of %d bytes", name, window)
		}
		if _, shared := p.Controller.(ccalgo.Bound); shared != (by != ccalgo.PerQueuePair) {
			t.Errorf("%s: shared: %v", name, shared)
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "guess") {
			t.Errorf("%s says nothing of guesses: %v", name, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	c := read(t, "run_dir: /run/x\n"+minimal)
	n := c.NICs[0]
	if c.Drain != 5*time.Second || n.Poll.Duration() != 50*time.Microsecond || n.Port.Device != "a" || !n.Port.UseOffload() {
		t.Errorf("defaults: %+v", c)
	}
	if n.MAC[0]&3 != 2 {
		t.Errorf("derived address %v is not a local unicast one", n.MAC)
	}
	if again := read(t, "run_dir: /run/x\n"+minimal).NICs[0].MAC; again != n.MAC {
		t.Errorf("derived address changes: %v, %v", n.MAC, again)
	}
	if other := read(t, "run_dir: /run/y\n"+minimal).NICs[0].MAC; other == n.MAC {
		t.Errorf("two daemons derive %v", other)
	}
}

func TestValues(t *testing.T) {
	c := read(t, `
run_dir: /run/x
drain: 2s
control: {mode: 0600, users: [0], groups: ["0"]}
limits: {memory: 2M, qps: 7}
nics:
  - name: a
    mac: 02:00:00:00:00:01
    addresses: [10.0.0.1/24, "fd00::1/64"]
    vlans: [{id: 7, addresses: [10.7.0.1/24]}]
    gateways: [10.0.0.254, "fe80::1", 10.7.0.254]
    port: {type: TAP, offload: false}
    poll: busy
`)
	n := c.NICs[0]
	got := []any{c.Drain, c.Control.Mode, c.Control.UIDs, c.Control.GIDs, c.Limits.Memory, c.Limits.QPs, n.MAC.String(),
		len(n.Prefixes), n.VLANs[0].ID, len(n.VLANs[0].Prefixes), len(n.NextHops), n.Port.UseOffload(), n.Poll.Duration()}
	want := []any{2 * time.Second, Mode(0o600), []uint32{0}, []uint32{0}, Bytes(2 << 20), 7, "02:00:00:00:00:01",
		2, uint16(7), 1, 3, false, time.Duration(-1)}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestCongestion(t *testing.T) {
	n := read(t, "nics: [{name: a, port: {type: tap}, congestion: {algorithm: dcqcn, line_rate_bps: 10e9, f: 3, cnp_interval: 0s}}]").NICs[0]
	c := &n.Congestion
	ctl, err := c.New()
	if err != nil {
		t.Fatal(err)
	}
	if _, rate := ctl.Limits(); rate != 10e9 || c.Params["f"] != 3 || c.Interval() >= 0 || *c.CNPDSCP != 48 {
		t.Errorf("%+v, rate %d", c, rate)
	}
	c = &read(t, minimal).NICs[0].Congestion
	if c.Algorithm != "none" || c.Interval() != 50*time.Microsecond {
		t.Errorf("defaults %+v", c)
	}
}

// plugins makes those of the default profile.
func plugins(n *NIC) (qp.Profile, error) {
	byName, _ := n.Makers()
	return byName("")
}

// TestNumbered: numbers select paths and congestion controls of mrc; 0 is the profile's.
func TestNumbered(t *testing.T) {
	n := read(t, "nics: [{name: a, port: {type: tap}, profile: mrc, congestion: {algorithm: swift}, transports: {mrc: {cc_profiles: "+
		"{1: {name: nscc}, 70: {name: static, window_bytes: 5000}}, ev_profiles: {3: {name: single}}}}}]").NICs[0]
	_, byNumber := n.Makers()
	for _, c := range []struct {
		ev, cc uint64
		want   string
	}{{0, 0, "*ccalgo.Swift"}, {3, 1, "*ccalgo.NSCC"}, {0, 70, "*ccalgo.Static"}, {0, 2, "cc_profile_id 2: must be one of transports.mrc.cc_profiles of the NIC, [1 70]"},
		{1 << 63, 0, "ev_profile_id 9223372036854775808"}} {
		p, err := byNumber(c.ev, c.cc)
		if got := fmt.Sprintf("%T %v", p.Controller, err); !strings.Contains(got, c.want) || (err == nil) != (p.Paths != nil) {
			t.Errorf("%+v: %s, %T", c, got, p.Paths)
		}
	}
}

// TestPlanedPaths: path selection of mrc has the planes of the port, and probes less often.
func TestPlanedPaths(t *testing.T) {
	n := read(t, "nics: [{name: a, profile: mrc, port: {type: tap, planes: [{device: d0, bridge: b0}, {device: d1}, {device: d2}]}, "+
		"transports: {mrc: {ev_profiles: {3: {name: mrc, ev_count: 6, ev_active: 3}}}}}]").NICs[0]
	each := n.Port.Each()
	if len(each) != 3 || each[0].Bridge != "b0" || each[2].Device != "d2" || n.Port.Ports() != 3 {
		t.Errorf("%+v", each)
	}
	_, byNumber := n.Makers()
	standard, err := plugins(&n)
	numbered, numberedErr := byNumber(3, 0)
	if err := errors.Join(err, numberedErr); err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]qp.Profile{"default": standard, "numbered": numbered} {
		m := p.Paths.(*path.MRC)
		if m.SetPorts(0, 0b101); m.ProbesDue() != mono.Time(100*time.Millisecond) {
			t.Errorf("%s: probes in %v", name, m.ProbesDue())
		}
		for i := range 6 {
			if s, _ := m.State(i); (s == path.EVAssumedBad) != (i%3 == 1) {
				t.Errorf("%s: entropy value %d is in state %d", name, i, s)
			}
		}
	}
}

// TestHoldLast: the receiver holds the last packets of WRITEs by default.
func TestHoldLast(t *testing.T) {
	for text, want := range map[string]qp.HoldLast{
		"":                         qp.HoldAtReceiver,
		", hold_last: receiver":    qp.HoldAtReceiver,
		", hold_last: sender":      qp.HoldAtSender,
		", hold_last: sender-idle": qp.HoldAtSenderIdle,
	} {
		n := read(t, "nics: [{name: a, port: {type: tap}, profile: eunomia, transports: {eunomia: {paths: {name: spray}"+text+"}}}]").NICs[0]
		if p, err := plugins(&n); err != nil || p.Traits.HoldLast != want {
			t.Errorf("%q: %d, %v, want %d", text, p.Traits.HoldLast, err, want)
		}
	}
}

// TestLinkBDP: caps follow the link if its rate, round-trip time and MTU are set.
func TestLinkBDP(t *testing.T) {
	for text, want := range map[string]uint32{"rate: 10e9, rtt: 50us": 110, "rate: 10e9, rtt: 50us, mtu: 1024": 62} {
		n := read(t, "nics: [{name: a, port: {type: tap}, profile: irn, link: {"+text+"}}]").NICs[0]
		if p, err := plugins(&n); err != nil || p.Recovery.(retrans.Capped).Cap() != want {
			t.Errorf("%q: %+v, %v, want a cap of %d", text, p.Recovery, err, want)
		}
	}
}

// TestShared reads ports on kernel interfaces: settings of the interface stay unset.
func TestShared(t *testing.T) {
	c := read(t, `nics:
  - {name: a, port: {type: packet, interface: eth0}}
  - {name: b, port: {type: XDP, interface: eth1, queues: 3, mode: generic}}
  - {name: c, port: {type: packet, interface: eth0, netns: blue, offload: false}}`)
	for i, n := range c.NICs {
		if n.MAC != (MAC{}) || n.MTU != 0 || !n.Port.Shared() {
			t.Errorf("NIC %d: %+v", i, n)
		}
	}
	p := c.NICs[1].Port
	if p.Mode != "generic" || p.Copy != "auto" || p.Queues != 3 {
		t.Errorf("%+v", p)
	}
	if !c.NICs[0].Port.UseOffload() || c.NICs[2].Port.UseOffload() || c.NICs[0].Port.Mode != "" {
		t.Errorf("%+v, %+v", c.NICs[0].Port, c.NICs[2].Port)
	}
}

// TestUDP reads ports on sockets. Their NIC has its own Ethernet address, which never appears on the wire.
func TestUDP(t *testing.T) {
	c := read(t, `nics:
  - {name: a, port: {type: udp, interface: eth0}}
  - {name: b, port: {type: udp, address: 10.0.0.7, offload: false}}
  - {name: c, mac: "02:00:00:00:00:01", port: {type: udp, address: "::1"}}`)
	for i, where := range []string{"interface eth0", "address 10.0.0.7", "address ::1"} {
		n := &c.NICs[i]
		if n.MAC == (MAC{}) || n.MTU != 0 || !n.Port.Shared() || n.Port.Where() != where {
			t.Errorf("NIC %d: %+v", i, n)
		}
	}
	if c.NICs[0].MAC == c.NICs[1].MAC || c.NICs[1].Port.UseOffload() {
		t.Errorf("%+v", c.NICs)
	}
}

func TestUserShares(t *testing.T) {
	n := read(t, `
nics:
  - name: a
    port: {type: tap}
    share:
      quantum: 8K
      users: [{user: root, weight: 4}, {user: "1000", class: 2}]`).NICs[0]
	for _, c := range []struct {
		uid  uint32
		want rocev2.Share
	}{
		{0, rocev2.Share{Client: 5, Weight: 4}},
		{1000, rocev2.Share{Client: 5, User: 1000, Class: 2}},
		{1001, rocev2.Share{Client: 5, User: 1001}},
	} {
		if got := n.Share.Of(c.uid, 5); got != c.want {
			t.Errorf("user %d: %+v, want %+v", c.uid, got, c.want)
		}
	}
	if n.Share.Quantum != 8192 {
		t.Errorf("quantum %d", n.Share.Quantum)
	}
}

// TestFaults: each fault has its key.
func TestFaults(t *testing.T) {
	shared := func(typ, port, nic string) string {
		return fmt.Sprintf("nics: [{name: a, port: {type: %s, interface: eth0, %s}, %s}]", typ, port, nic)
	}
	nic := func(s string) string { return "nics: [{name: a, port: {type: tap}, " + s + "}]" }
	planes := func(s string) string {
		return "nics: [{name: a, profile: mrc, port: {type: packet, planes: [" + s + "]}}]"
	}
	for _, tc := range []struct{ text, want string }{
		{"", "the file is empty"}, {"nics: []", "nics: 0 NICs"},
		{"colour: red\n" + minimal, "colour: unknown key"},
		{nic("mtuu: 3"), "nics.0.mtuu: unknown key"},
		{nic("mtu: big"), "nics.0.mtu: "},
		{nic("mtu: 100"), "nics.0.mtu: 100 is not between"},
		{nic("mac: nonsense"), "nics.0.mac: "},
		{nic(`mac: "01:00:00:00:00:01"`), "nics.0.mac: "},
		{nic("addresses: [10.0.0.1]"), "nics.0.addresses.0: "},
		{nic("addresses: [224.0.0.1/24]"), "nics.0.addresses.0: "},
		{nic("gateways: [10.0.0.1]"), "nics.0.gateways.0: 10.0.0.1 is in none"},
		{nic("vlans: [{id: 4095, addresses: [10.0.0.1/24]}]"), "nics.0.vlans.0.id: 4095 is not between"},
		{nic("vlans: [{id: 5, addresses: [10.0.0.1]}]"), "nics.0.vlans.0.addresses.0: "},
		{nic("vlans: [{id: 5}]"), "nics.0.vlans.0.addresses: is empty"},
		{nic("vlans: [{id: 5, addresses: [10.0.0.1/24]}, {id: 5, addresses: [10.0.1.1/24]}]"), "nics.0.vlans.1.id: 5 is listed twice"},
		{nic("addresses: [10.0.0.1/24], vlans: [{id: 5, addresses: [10.0.0.1/24]}]"), "nics.0.vlans.0.addresses.0: is the same"},
		{nic("transports: {eunomia: {hold_last: nobody}}"), "nics.0.transports.eunomia: hold_last \"nobody\": must be receiver"},
		{nic("transports: {irn: {hold_last: sender}}"), "only eunomia holds"},
		{nic("transports: {irn: {cc_profiles: {1: {name: swift}}}}"), "nics.0.transports.irn.cc_profiles.1: only mrc has numbered profiles"},
		{nic("transports: {mrc: {cc_profiles: {0: {name: swift}}}}"), "nics.0.transports.mrc.cc_profiles.0: the key must be a whole number"},
		{nic("transports: {mrc: {ev_profiles: {x: {name: single}}}}"), "nics.0.transports.mrc.ev_profiles.x: the key must be a whole number"},
		{nic("transports: {mrc: {ev_profiles: {2: {}}}}"), "nics.0.transports.mrc.ev_profiles.2: the name is missing"},
		{nic("transports: {mrc: {cc_profiles: {1: {name: dcqcn}}}}"), "receivers of mrc send no CNPs"},
		{nic("profile: fast"), "nics.0.profile: "},
		{nic("congestion: {algorithm: cubic}"), "nics.0.congestion: ccalgo: no congestion control \"cubic\""},
		{nic("congestion: {algorithm: hpcc}"), "nics.0.congestion.algorithm: hpcc needs the telemetry of switches, which only rocesim has"},
		{nic("transports: {irn: {congestion: {name: hpcc}}}"), "nics.0.transports.irn: hpcc needs the telemetry of switches"},
		{nic("congestion: {algorithm: dcqcn, gg: 1}"), "nics.0.congestion: ccalgo: dcqcn has no parameter \"gg\""},
		{nic("congestion: {algorithm: dcqcn, g: 7}"), "nics.0.congestion: ccalgo: dcqcn: g is 7, it must be between 0 and 1"},
		{nic("congestion: {algorithm: dcqcn, g: much}"), "nics.0.congestion"},
		{nic("congestion: {g: 0.5}"), "nics.0.congestion: ccalgo: none has no parameter \"g\""},
		{nic("congestion: {cnp_interval: 2s}"), "nics.0.congestion.cnp_interval: 2s is not between"},
		{nic("congestion: {cnp_dscp: 64}"), "nics.0.congestion.cnp_dscp: 64 is not"},
		{nic("congestion: {cnp_dscp: 300}"), "nics.0.congestion.cnp_dscp: "},
		{nic("poll: soon"), "nics.0.poll: "},
		{nic("poll: -3us"), "nics.0.poll: "},
		{nic("faults: [explode]"), "nics.0.faults.0: "},
		{nic("capture: {file: /x, keep: 64k}"), "nics.0.capture.keep: 65536 bytes are less than 1048576"},
		{nic("capture: {file: /x, snaplen: 63}"), "nics.0.capture.snaplen: 63 is not from 64 to 65536"},
		{nic("link: {mtu: 100}"), "nics.0.link.mtu: 100 is not between"},
		{nic("share: {quantum: 1}"), "nics.0.share.quantum: 1 is not between"},
		{nic("share: {users: [{user: root, weight: -1}]}"), "nics.0.share.users.0.weight: -1 is not between"},
		{nic("share: {users: [{user: root, class: 8}]}"), "nics.0.share.users.0.class: 8 is not between"},
		{nic("share: {users: [{user: nobody-of-that-name}]}"), "nics.0.share.users.0.user: "},
		{nic(`share: {users: [{user: root}, {user: "0"}]}`), "nics.0.share.users.1.user: 0 is listed twice"},
		{nic(`access: {mode: "999"}`), "nics.0.access.mode: "},
		{nic("access: {users: [nobody-of-that-name]}"), "nics.0.access.users.0: "},
		{"nics: [{name: a b, port: {type: tap, device: x}}]", `nics.0.name: "a b"`},
		{"nics: [{name: a, port: {type: carrier-pigeon}}]", "nics.0.port.type: "},
		{"nics: [{name: a, port: {type: tap, speed: 1}}]", "nics.0.port.speed: unknown key"},
		{"nics: [{name: a, port: {type: tap, local: /x}}]", "nics.0.port.local: does not apply to a port"},
		{"nics: [{name: a, port: {type: unix, remote: /y}}]", "nics.0.port.local: "},
		{"nics: [{name: a, port: {type: unix, local: /y, remote: /y}}]", "nics.0.port.remote: must differ from local"},
		{"nics: [{name: a, port: {type: tap}}, {name: a, port: {type: tap, device: b}}]", "nics.1.name: is the same"},
		{"nics: [{name: a, addresses: [198.18.0.1/24], port: {type: tap}}, {name: b, addresses: [fd00::1/64, 198.18.0.1/16], port: {type: tap}}]",
			"nics.1.addresses.1: is the same as that of nics.0"},
		{"nics: [{name: a, port: {type: tap}}, {name: b, port: {type: tap, device: a}}]", "nics.1.port.device: is the same"},
		{shared("packet", "", "mac: 02:00:00:00:00:01"), "nics.0.mac: cannot be set for a port of type packet"},
		{shared("packet", "", "mtu: 1500"), "nics.0.mtu: cannot be set"},
		{shared("xdp", "", "addresses: [10.0.0.1/24]"), "nics.0.addresses: cannot be set for a port of type xdp"},
		{shared("xdp", "", "gateways: [10.0.0.1]"), "nics.0.gateways: cannot be set"},
		{shared("packet", "", "vlans: [{id: 5, addresses: [10.0.0.1/24]}]"), "nics.0.vlans: cannot be set"},
		{shared("packet", "mode: native", ""), "nics.0.port.mode: does not apply to a port"},
		{shared("packet", "queues: 2", ""), "nics.0.port.queues: does not apply to a port"},
		{shared("packet", "bridge: br0", ""), "nics.0.port.bridge: does not apply to a port"},
		{shared("packet", "device: x", ""), "nics.0.port.device: does not apply to a port"},
		{shared("xdp", "offload: true", ""), "nics.0.port.offload: does not apply to a port"},
		{shared("xdp", "mode: fast", ""), `nics.0.port.mode: "fast": must be one of`},
		{shared("xdp", "mode: genric", ""), `must be one of auto, native, generic; did you mean "generic"?`},
		{shared("pakcet", "", ""), `must be one of tap, unix, packet, udp, xdp; did you mean "packet"?`},
		{shared("xdp", "modes: auto", ""), `; did you mean "mode"?`},
		{shared("xdp", "copy: never", ""), `nics.0.port.copy: "never": must be one of`},
		{shared("xdp", "queues: -1", ""), "nics.0.port.queues: -1 is not between"},
		{shared("xdp", "queues: 257", ""), "nics.0.port.queues: 257 is not between"},
		{"nics: [{name: a, port: {type: packet}}]", `nics.0.port.interface: "" is not an interface name`},
		{"nics: [{name: a, port: {type: xdp, interface: a/b}}]", `nics.0.port.interface: "a/b"`},
		{"nics: [{name: a, port: {type: tap, interface: x}}]", "nics.0.port.interface: does not apply to a port"},
		{"nics: [{name: a, port: {type: packet, interface: x}}, {name: b, port: {type: xdp, interface: x}}]",
			"nics.1.port.interface: is the same as that of nics.0"},
		{"nics: [{name: a, port: {type: udp}}]", "nics.0.port: a port of type udp needs either interface or address"},
		{shared("udp", "address: 10.0.0.1", ""), "nics.0.port: a port of type udp needs either interface or address"},
		{shared("udp", "", "mtu: 1500"), "nics.0.mtu: cannot be set for a port of type udp"},
		{shared("udp", "queues: 3", ""), "nics.0.port.queues: does not apply to a port"},
		{shared("udp", "planes: [{interface: e0}, {interface: e1}]", ""), "nics.0.port.planes: does not apply to a port"},
		{shared("xdp", "planes: [{interface: e0}, {interface: e1}]", ""), "nics.0.port.interface: must be set in each of the planes instead"},
		{planes("{interface: e0}"), "nics.0.port.planes: 1 planes: must be from 2 to 32"},
		{planes("{interface: e0}, {interface: a/b}"), `nics.0.port.planes.1.interface: "a/b" is not an interface name`},
		{planes("{interface: e0}, {interface: e1, device: x}"), "nics.0.port.planes.1.device: does not apply to a port"},
		{planes("{interface: e0}, {interface: e0}"), "nics.0.port.planes.1.interface: is the same as that of nics.0"},
		{planes("{interface: e0}, {netns: x}"), "nics.0.port.planes.1.netns: unknown key"},
		{strings.Replace(planes("{interface: e0}, {interface: e1}"), "profile: mrc", "profile: mrc, transports: {mrc: {paths: {planes: 3}}}", 1),
			"planes is 3, but the port has 2 planes"},
		{"nics: [{name: a, port: {type: udp, interface: a/b}}]", `nics.0.port.interface: "a/b"`},
		{"nics: [{name: a, port: {type: udp, address: eth0}}]", "nics.0.port.address: "},
		{"nics: [{name: a, port: {type: udp, address: 'fe80::1'}}]", "nics.0.port.address: fe80::1 is valid on one interface only"},
		{"nics: [{name: a, port: {type: udp, address: 224.0.0.1}}]", "nics.0.port.address: 224.0.0.1 cannot be"},
		{"nics: [{name: a, port: {type: udp, address: 10.0.0.1}}, {name: b, port: {type: udp, address: 10.0.0.1}}]",
			"nics.1.port: is the same as that of nics.0"},
		{"nics: [{name: a, switch: '?', port: {type: tap}}]", `nics.0.switch: "?" is not a name`},
		{"nics: [{name: a, write_segments: one, port: {type: tap}}]", `nics.0.write_segments: "one": must be one of standard, single`},
		{"nics: [{name: a, switch: s, write_segments: single, port: {type: tap}}]", "nics.0.write_segments: single is for ports; "},
		{"nics: [{name: a, profile: irn, write_segments: single, port: {type: tap}}]", "nics.0.write_segments: single is for the profile rc"},
		{"nics: [{name: a, switch: s, shard: '?', port: {type: tap}}]", `nics.0.shard: "?" is not a name`},
		{"nics: [{name: a, profile: mrc, mrc_udp_port: 4972, port: {type: tap}}]", "nics.0.mrc_udp_port: 4972 is neither 4791 nor 4971"},
		{"nics: [{name: a, profile: mrc, profiles: [rc], mrc_udp_port: 4971, port: {type: tap}}]",
			"nics.0.mrc_udp_port: 4971 is for mrc, but the NIC also has the transport rc: set profile to mrc without profiles"},
		{"nics: [{name: a, profile: mrc, switch: s, port: {type: tap}}, {name: b, profile: mrc, mrc_udp_port: 4971, switch: s, port: {type: tap}}]",
			"nics.1.mrc_udp_port: differs from that of nics.0, of the same switch"},
		{"nics: [{name: a, shard: s, port: {type: tap}}]", "nics.0.shard: has no effect without switch: set switch, or remove this key"},
		{"drain: 3\n" + minimal, "drain: "},
		{"drain: -1s\n" + minimal, "drain: "},
		{"log: {level: loud}\n" + minimal, "log.level: "},
		{"privileges: some\n" + minimal, "privileges: "},
		{"limits: {qps: 20000}\n" + minimal, "limits.qps: "},
		{"limits: {memory: lots}\n" + minimal, "limits.memory: "},
		{"metrics: {listen: here}\n" + minimal, "metrics.listen: "},
		{"web: {listen: here}\n" + minimal, "web.listen: "},
		{"web: {listen: 'unix:page.sock'}\n" + minimal, "web.listen: \"page.sock\" is not an absolute path"},
		{"web: {control: true}\n" + minimal, "web: has no effect without listen: set listen, or remove this key"},
		{"web: {listen: ':9465', hosts: ['a b']}\n" + minimal, "web.hosts.0: \"a b\""},
		{"run_dir: here\n" + minimal, "run_dir: "},
		{"nics: 3", "nics"},
		{"nics: [", "configuration:1: this is not YAML"},
	} {
		_, err := Read(strings.NewReader(tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s\n got %v\nwant %s", tc.text, err, tc.want)
		}
	}
}

// TestAllFaultsAtOnce: faults of the file's form and of its values come together, in the order of the file. A value that
// could not be read has no second fault.
func TestAllFaultsAtOnce(t *testing.T) {
	_, err := Read(strings.NewReader(`log: {level: loud}
nics:
  - name: ''
    mtu: much
    colour: red
    port: {type: x}
    vlans:
      - {id: 4095, addresses: 3}
`))
	want := `configuration:1:14: log.level: "loud": must be one of debug, info, warn, error
configuration:3:11: nics.0.name: "" is not a device name (letters, digits, _ . -)
configuration:4:10: nics.0.mtu: "much" is not a whole number
configuration:5:5: nics.0.colour: unknown key; the keys are `
	rest := `configuration:6:18: nics.0.port.type: "x": must be one of tap, unix, packet, udp, xdp
configuration:8:14: nics.0.vlans.0.id: 4095 is not between 1 and 4094
configuration:8:31: nics.0.vlans.0.addresses: expected a list: [...]`
	if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "\n"+rest) {
		t.Errorf("%v\nwant\n%s...\n%s", err, want, rest)
	}
}

func TestPollText(t *testing.T) {
	for _, s := range []string{"0", "busy", "50µs", "1ms"} {
		p, err := ParsePoll(s)
		if err != nil || p.String() != s || PollOf(p.Duration()) != p {
			t.Errorf("%s: %v, %v", s, p, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(minimal)
	f.Fuzz(func(t *testing.T, s string) {
		if c, err := Read(strings.NewReader(s)); err == nil && len(c.NICs) == 0 {
			t.Error("a configuration without NICs")
		}
	})
}
