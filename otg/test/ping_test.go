package test

import (
	"strings"
	"testing"

	"github.com/open-traffic-generator/snappi/gosnappi"
)

// TestPing: echoes by IPv4 and IPv6 succeed between ports, and fail for an address that nobody has. Other actions and wrong names are
// refused.
func TestPing(t *testing.T) {
	f := newFabric(t, 2)
	c := f.newClient()
	config := f.pair(1)
	for i, d := range config.Devices().Items() {
		a := d.Ethernets().Items()[0].Ipv6Addresses().Add().SetGateway("fd00::fe")
		a.SetName("IPv6 " + d.Name()).SetAddress([]string{"fd00::1", "fd00::2"}[i])
	}
	c.set(config)
	if err := c.ping("IPv4 Port 0", addr(1)); err != nil {
		t.Error(err)
	}
	if err := c.ping("IPv4 Port 1", "198.18.0.77"); err == nil || !strings.Contains(err.Error(), "failed") {
		t.Errorf("an address without a host: %v", err)
	}
	for source, want := range map[string]string{"IPv4 Port 9": "protocol.ipv4.ping.requests[0].src_name: \\\"IPv4 Port 9\\\": is not a configured address",
		"IPv6 Device Port 0": "is not a configured address of this family"} {
		if err := c.ping(source, addr(1)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	a := gosnappi.NewControlAction()
	a.Protocol().Ipv6().Ping().Requests().Add().SetSrcName("IPv6 Device Port 0").SetDstIp("fd00::2")
	a.Protocol().Ipv6().Ping().Requests().Add().SetSrcName("IPv6 Device Port 1").SetDstIp("fd00::1")
	r, err := c.SetControlAction(a)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Response().Protocol().Ipv6().Ping().Responses().Items() {
		if p.Result() != gosnappi.ActionResponseProtocolIpv6PingResponseResult.SUCCEEDED {
			t.Errorf("%v", p)
		}
	}
	a = gosnappi.NewControlAction()
	a.Port().Reboot()
	if _, err := c.SetControlAction(a); err == nil || !strings.Contains(err.Error(), "port: roceotg supports only protocol") {
		t.Errorf("reboot: %v", err)
	}
}
