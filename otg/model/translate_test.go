package model

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/open-traffic-generator/snappi/gosnappi/otg"
	"google.golang.org/protobuf/encoding/protojson"

	"roced.io/roced/otg/engine"
)

// pairConfig reads testdata/pair.json after replacements of text.
func pairConfig(t *testing.T, replace ...string) *otg.Config {
	t.Helper()
	b, err := os.ReadFile("testdata/pair.json")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(text, replace[i]) {
			t.Fatalf("testdata/pair.json has no %q", replace[i])
		}
		text = strings.Replace(text, replace[i], replace[i+1], 1)
	}
	c := &otg.Config{}
	if err := protojson.Unmarshal([]byte(text), c); err != nil {
		t.Fatal(err)
	}
	return c
}

var everything = []string{"*", "netns/*/*"}

func TestTranslate(t *testing.T) {
	c, warnings, err := Translate(pairConfig(t), everything)
	if err != nil {
		t.Fatal(err)
	}
	p := c.Ports[0]
	if p.Namespace != "h1" || p.Device != "eth1" || p.Speed != 25e9 || !p.Promiscuous || c.Ports[1].Kind != engine.XDP {
		t.Errorf("ports: %+v", c.Ports)
	}
	s := p.RoCE
	if s.CNP != (engine.Marking{DSCP: 46}) || s.CNPInterval != 111*time.Microsecond || s.ACK != (engine.Marking{DSCP: 6, ECN: 1}) ||
		s.NAK != (engine.Marking{DSCP: 48, ECN: 1}) || s.Retries != 7 || s.Timeout != 4096*time.Nanosecond<<21 {
		t.Errorf("settings: %+v", s)
	}
	if d := s.DCQCN; d.Enable || d.Gain != 4./1024 || d.InitialAlpha != 1000./1024 || d.MaxDecrease != 0.12 || d.IncreaseBytes != 32767 {
		t.Errorf("DCQCN: %+v", d)
	}
	if d := c.Ports[1].RoCE.DCQCN; !d.Enable || d.Gain != 5./1024 {
		t.Errorf("DCQCN without options: %+v", d)
	}
	q := c.Peers[0].QueuePairs[0]
	if q.Number != 33 || q.Data != (engine.Marking{DSCP: 3,
		ECN: 2}) || q.SourcePort != 1 || q.PSN != 1<<24-1 || q.VirtualAddress != 0x7f0000000000 ||
		q.RemoteKey != 0xdead || q.Remote != "q3" || !q.Active {
		t.Errorf("queue pair: %+v", q)
	}
	if q := c.Peers[0].QueuePairs[1]; q.Remote != "q3 for q2" || !q.Active || q.SourcePort != 49152 {
		t.Errorf("queue pair without partner: %+v", q)
	}
	if q := c.Peers[1].QueuePairs[1]; q.Name != "q3 for q2" || q.Remote != "q2" || q.Active || q.Number != 34 {
		t.Errorf("additional queue pair: %+v", q)
	}
	if q := c.Peers[1].QueuePairs[0]; q.Remote != "q1" || q.Active {
		t.Errorf("passive queue pair: %+v", q)
	}
	f := c.Flows[0]
	if f.Size != 1<<31 || f.Verb != engine.WriteImm || f.Immediate != 0xbb || f.LineRate != 0.4 || f.Port != "p1" {
		t.Errorf("flow: %+v", f)
	}
	if i := c.Interfaces[0]; i.VLANs[0] != (engine.VLAN{TPID: 0x8100, ID: 7, Priority: 3}) || i.MTU != 9000 || !c.AutoStart {
		t.Errorf("interface: %+v", i)
	}
	if a := c.Interfaces[1].Addresses[0]; a.GatewayMAC.String() != "02:00:00:00:00:fe" || a.Prefix.Bits() != 24 {
		t.Errorf("address: %+v", a)
	}
	if !c.Captures[0].PCAPNG || c.Captures[0].Snap != 128 || !c.Captures[0].Overwrite {
		t.Errorf("capture: %+v", c.Captures)
	}
	for _, want := range []string{"retransmission_retry_count: 254: using 7", "5000 ms: using 8.589934592s", "ib_mtu: 5000: using 4096",
		"rs_fec: true has no effect", "layer1[0].mtu: 9000: using the MTU of netns/h1/eth1"} {
		if !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, want) }) {
			t.Errorf("no warning has %q: %q", want, warnings)
		}
	}
	if len(warnings) != 5 {
		t.Errorf("%d warnings: %q", len(warnings), warnings)
	}
}

// TestErrors: each wrong configuration has the named error, and all errors come at once.
func TestErrors(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{`"netns/h1/eth1"`, `"usb://rxe0"`, `ports[0].location: usb://rxe0: unknown link "usb"`},
		{`"netns/h1/eth1"`, `"nic://a/b"`, `ports[0].location: nic://a/b: is not a NIC of a daemon`},
		{`"netns/h1/eth1"`, `"agent://h1/eth1"`, `ports[0].location: agent://h1/eth1: has no agent`},
		{`"netns/h1/eth1"`, `"agent://h1:1/agent://h2:1/eth1"`, `has no agent`},
		{`"netns/h1/eth1"`, `"agent://h1:1/eth1"`, `ports[0].location: agent://h1:1/eth1: roceotg was not started for this interface`},
		{`"netns/h1/eth1"`, `"netns/h1"`, `ports[0].location: netns/h1: has no namespace`},
		{`"xdp://eth2"`, `"netns/h1/eth1"`, `ports[1].location: netns/h1/eth1: belongs to port "p1"`},
		{`"xdp://eth2"`, `"lo"`, `ports[1].location: lo: roceotg was not started for this interface`},
		{`"name": "p2"`, `"name": "p1"`, `name "p1": belongs to a port`},
		{`"speed_25_gbps"`, `"speed_10_hd_mbps"`, `layer1[0].speed: speed_10_hd_mbps: roceotg supports only speed_10_fd_mbps`},
		{`"port_names": ["p1"]`, `"port_names": ["p9"]`, `layer1[0].port_names: port "p9": is not in ports`},
		{`"auto_negotiation"`, `"flow_control": {}, "auto_negotiation"`, `layer1[0].flow_control: roceotg does not support this field`},
		{`"packet_size": 128`, `"filters": [{}]`, `captures[0].filters: roceotg does not support this field`},
		{`"02:00:00:00:00:01"`, `"02:00:00"`, `devices[0].ethernets[0].mac: "02:00:00": is not a MAC address`},
		{`"02:00:00:00:00:01"`, `"03:00:00:00:00:01"`, `devices[0].ethernets[0]: interface e1: MAC 03:00:00:00:00:01: must be a unicast address`},
		{`"02:00:00:00:00:02", "connection": {"port_name": "p2"}`, `"02:00:00:00:00:01", "connection": {"port_name": "p1"}`,
			`devices[1].ethernets[0].mac: 02:00:00:00:00:01: belongs to "e1" of the same port`},
		{`"id": 7`, `"id": 4095`, `vlans[0].id: 4095: must be 1 to 4094`},
		{`"connection": {"port_name": "p1"}`, `"connection": {"lag_name": "l"}`,
			`devices[0].ethernets[0].connection.choice: lag_name: roceotg supports only port_name`},
		{`"ipv4_name": "a1"`, `"ipv4_name": "a9"`, `ipv4_interfaces[0]: address "a9": is not configured`},
		{`"destination_ip_address": "198.18.0.2"`, `"destination_ip_address": "::1"`, `is not an address of this family`},
		{`"source_qp_number": 34`, `"source_qp_number": 33`, `source_qp_number: 33: belongs to queue pair "q1"`},
		{`"source_qp_number": 33`, `"source_qp_number": 33554431`, `source_qp_number: 33554431: must be 2 to 16777215`},
		{`"16777215"`, `"16777216"`, `initial_psn: 16777216: must be 0 to 16777215`},
		{`"remote_key": "dead"`, `"remote_key": "key"`, `remote_key: "key": is not a number`},
		{`"value": 40`, `"value": 101`, `target_line_rate.value: 101: must be 1 to 100`},
		{`"tx_endpoint": "q1"`, `"tx_endpoint": "q9"`, `tx_endpoint: queue pair "q9": is not configured`},
		{`"tx_endpoint": "q1"`, `"tx_endpoint": "q3"`, `is on port "p2", not on "p1"`},
		{`"rx_endpoint": "q3"`, `"rx_endpoint": "q9"`, `rx_endpoint: "q9": is neither`},
		{`"rx_endpoint": "q3"`, `"rx_endpoint": "p1"`, `rx_endpoint: port "p1": has no address 198.18.0.2`},
		{`"message_size": 2`, `"message_size": 3`, `message_size: 3 gb: exceeds 2 GiB`},
		{`"write_with_immediate": {`, `"choice": "read", "write_with_immediate": {`, `write_with_immediate: is set, but choice is "read"`},
		{`"stateful_flows"`, `"lags": [{}], "stateful_flows"`, `lags: roceotg does not support this field`},
		{`"name": "d1"`, `"name": ""`, `devices[0].name: is empty`},
		{`"gb"`, `77`, `message_size_unit: 77: is not a value of the model`},
		{`"name": "d1", `, ``, `devices[0].name: is missing`},
		{`"options": {`, `"options": {"port_options": {"data_integrity": true}, `, `data_integrity: true: roceotg supports only false`},
	} {
		_, _, err := Translate(pairConfig(t, c.from, c.to), []string{"eth*", "netns/h1/*", "rxe0"})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s instead of %s:\n%v\nwant %s", c.to, c.from, err, c.want)
		}
	}
	_, _, err := Translate(pairConfig(t, `"mtu": 9000, "auto`, `"mtu": 1, "auto`, `"dscp": 3`, `"dscp": 64`, `"name": "d2"`, `"bgp": {}`),
		everything)
	if list, _ := err.(Errors); len(list) != 4 {
		t.Errorf("want errors of mtu, dscp, bgp and the missing name, got %q", list)
	}
	_, _, err = Translate(pairConfig(t, `"location": "netns/h1/eth1"`, `"location": ""`, `"dscp": 3`, `"dscp": 64`, `"tx_endpoint": "q1"`,
		`"tx_endpoint": "q9"`), everything)
	if list, _ := err.(Errors); len(list) != 3 {
		t.Errorf("want errors of a missing location, of dscp and of tx_endpoint, got %q", list)
	}
}

// TestReceiveOnly: queue pairs without destination accept connections, and their flows warn.
func TestReceiveOnly(t *testing.T) {
	c, warnings, err := Translate(pairConfig(t, `"destination_ip_address": "198.18.0.1"`, `"destination_ip_address": "0.0.0.0"`,
		`"port_name": "p1", "transmit_type": {"target_line_rate": {"value": 40, "flows": [
    {"name": "q1", "tx_endpoint": "q1", "rx_endpoint": "q3"`, `"port_name": "p2", "transmit_type": {"target_line_rate": {"value": 40,
	"flows": [
    {"name": "q3", "tx_endpoint": "q3"`), everything)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Flows) != 0 || !strings.Contains(fmt.Sprint(warnings), "the flow transmits nothing") {
		t.Errorf("flows %+v, warnings %q", c.Flows, warnings)
	}
	if q := c.Peers[1].QueuePairs[0]; q.Active || q.Remote != "q1" {
		t.Errorf("queue pair of a receiver: %+v", q)
	}
}

func TestRawFlows(t *testing.T) {
	flow := `"flows": [{"name": "bg", "tx_rx": {"port": {"tx_name": "p1", "rx_names": ["p2"]}},
	  "size": {"fixed": 128}, "rate": {"percentage": 20},
	  "duration": {"fixed_packets": {"packets": 10, "delay": {"microseconds": 5}}}, "metrics": {"enable": true},
	  "packet": [{"ethernet": {"src": {"value": "02:00:00:00:00:01"}}}, {"vlan": {"id": {"value": 7}, "priority": {"value": 3}}},
	   {"ipv4": {"src": {"value": "198.18.0.1"}, "dst": {"value": "198.18.0.2"}, "priority": {"dscp": {"phb": {"value": 24},
		"ecn": {"value": 2}}}}},
	   {"udp": {"src_port": {"value": 1000}, "dst_port": {"value": 2000}}}], "payload": {"fixed": {"pattern": "ab cd"}}}], "stateful_flows"`
	c, _, err := Translate(pairConfig(t, `"stateful_flows"`, flow), everything)
	if err != nil {
		t.Fatal(err)
	}
	f := c.RawFlows[0]
	want := "000000000000020000000001" + "8100" + "6007" + "0800" + "4562006a00000000401100" // without the checksum
	if got := fmt.Sprintf("%x", f.Frame); len(f.Frame) != 124 || got[:len(want)-2] != want[:len(want)-2] || got[len(got)-8:] != "abcdabcd" {
		t.Errorf("frame of %d bytes: %s", len(f.Frame), got)
	}
	if f.Resolve.String() != "198.18.0.2" || f.Packets != 10 || f.Delay != 5*time.Microsecond || !f.Metrics ||
		f.Rate.Unit != engine.LineFraction || f.Rate.Value < 0.199 || f.Rate.Value > 0.201 {
		t.Errorf("flow: %+v", f)
	}
	far := strings.Replace(flow, `"dst": {"value": "198.18.0.2"}`, `"dst": {"value": "192.0.2.1"}`, 1)
	if c, _, err = Translate(pairConfig(t, `"stateful_flows"`, far), everything); err != nil || c.RawFlows[0].Resolve != c.Interfaces[0].Addresses[0].Gateway {
		t.Errorf("%v: want the address of the gateway", err)
	}
	for _, w := range []struct{ from, to, want string }{
		{`"src": {"value": "198.18.0.1"}, "dst": {"value": "198.18.0.2"}`, `"dst": {"value": "192.0.2.1"}`, `packet[2].ipv4.dst: 192.0.2.1: no interface of port "p1"`},
		{`"percentage": 20`, `"percentage": 0`, `rate.percentage: 0: must be 0.000001 to 100`},
		{`"fixed_packets": {"packets": 10, "delay": {"microseconds": 5}}`, `"fixed_seconds": {"seconds": 0}`, `fixed_seconds.seconds: 0: must be`},
		{`"size": {"fixed": 128}`, `"size": {"fixed": 64}`, `flows[0].size.fixed: 64: is too small; headers, metrics and FCS need 66 bytes`},
		{`{"udp": {`, `{"tcp": {}}, {"udp": {`, `flows[0].packet[3].choice: tcp: roceotg supports only ethernet`},
		{`{"ethernet": {"src": {"value": "02:00:00:00:00:01"}}}, `, ``, `flows[0].packet[0]: vlan: a frame has ethernet, then vlan`},
		{`{"udp": {`, `{"ipv6": {}}, {"udp": {`, `flows[0].packet[3]: ipv6: a frame has ethernet, then vlan, one of ipv4 and ipv6`},
		{`{"udp": {`, `{"udp": {}}, {"udp": {`, `flows[0].packet[4]: udp: a frame has`},
		{`"vlan": {"id": {"value": 7}`, `"vlan": {"id": {"increment": {}}`, `packet[1].vlan.id.choice: increment: roceotg supports only value`},
		{`"size": {"fixed": 128}`, `"size": {"choice": "random", "fixed": 4294967295}`, `flows[0].size.fixed: is set, but choice is "random"`},
		{`"pattern": "ab cd"`, `"pattern": "abc"`, `pattern: "abc": is not an even number`},
		{`"rx_names": ["p2"]`, `"rx_names": ["p3"]`, `flows[0].tx_rx.port: port "p3"`},
	} {
		_, _, err := Translate(pairConfig(t, `"stateful_flows"`, strings.Replace(flow, w.from, w.to, 1)), everything)
		if err == nil || !strings.Contains(err.Error(), w.want) {
			t.Errorf("%s instead of %s:\n%v\nwant %s", w.to, w.from, err, w.want)
		}
	}
}

func TestManyQueuePairs(t *testing.T) {
	c := pairConfig(t)
	p := c.Devices[1].Rocev2.Ipv4Interfaces[0].Peers[0]
	for i := range maxQueuePairs {
		name, number := fmt.Sprintf("more %d", i), uint32(1000+i)
		rc := &otg.Rocev2QPParameters{SourceQpNumber: &number}
		p.Qps = append(p.Qps, &otg.Rocev2QPs{QpName: &name, ConnectionType: &otg.Rocev2ConnectionType{ReliableConnection: rc}})
	}
	more := c.Devices[0].Ethernets[0]
	for range maxInterfaces {
		c.Devices[0].Ethernets = append(c.Devices[0].Ethernets, more)
	}
	rate := c.StatefulFlows.Rocev2[0].TxPorts[0].TransmitType.TargetLineRate
	for range maxFlows {
		rate.Flows = append(rate.Flows, rate.Flows[0])
	}
	for range maxInterfaces {
		c.Ports = append(c.Ports, c.Ports[0])
	}
	_, _, err := Translate(c, everything)
	for _, want := range []string{"1026 ports: configure at most 1024", "1026 interfaces: configure at most 1024", "8195 peers or queue pairs: configure at most 8192", "flows: configure at most 8192"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	c = pairConfig(t)
	for range 2 * maxErrors {
		c.Captures = append(c.Captures, &otg.Capture{})
	}
	_, _, err = Translate(c, everything)
	if list, _ := err.(Errors); len(list) != maxErrors || !strings.HasPrefix(list[maxErrors-1], "more errors") {
		t.Errorf("%d errors", len(list))
	}
}

// TestSharedQueuePair: flows of one queue pair have common counters, and one direction.
func TestSharedQueuePair(t *testing.T) {
	second := func(verb string) *otg.Config {
		return pairConfig(t, `"flows": [
    {"name": "q1",`, `"flows": [{"name": "second", "tx_endpoint": "q1", "rocev2_verb": {"choice": "`+verb+`"}},
    {"name": "q1",`)
	}
	c, warnings, err := Translate(second("send"), everything)
	if err != nil || len(c.Flows) != 2 || !strings.Contains(fmt.Sprint(warnings), `queue pair "q1": also has flow "second"`) {
		t.Errorf("%+v, %q, %v", c.Flows, warnings, err)
	}
	if _, _, err = Translate(second("read"), everything); err == nil || !strings.Contains(err.Error(), "moves data in the other direction") {
		t.Errorf("%v", err)
	}
}
