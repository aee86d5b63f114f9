package scenario

import (
	"strings"
	"testing"
)

const planes = `name: planes
topology: {kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 2, host_rate: 100Gbps, planes: 4, delay: 500ns}
switch: {buffer: 16MiB}
transport: {profile: mrc, mtu: 4096, connections: persistent, congestion: {name: nscc}, recovery: {name: mrc, loss_packets: 256, rto_us: 100}}
workload:
  - {kind: stream, from: 0, to: 3, size: 1MB, outstanding: 8}
stop: 2ms
`

// TestPlanes: NICs with several ports use all of them, and workloads count NICs, not ports.
func TestPlanes(t *testing.T) {
	c, err := config(planes)
	if err != nil {
		t.Fatal(err)
	}
	if c.Hosts() != 4 || c.Graph.Hosts != 16 || c.Spec.Paths.Params["planes"] != 4 {
		t.Errorf("%d NICs, %d ports, paths %v", c.Hosts(), c.Graph.Hosts, c.Spec.Paths)
	}
	r := simulated(t, planes)
	if got := r.Goodput(); got < 300e9 || got > 400e9 {
		t.Errorf("%.3g b/s over four planes of 100 Gb/s", got)
	}
	for _, f := range r.Flows {
		// 1 MB at 400 Gb/s takes 20 us and the headers.
		if us := f.Ideal.Seconds() * 1e6; us < 20 || us > 30 {
			t.Fatalf("the ideal duration of a message is %.1f us", us)
		}
	}
	for set, want := range map[string]string{
		"topology.planes=33":    "topology.planes: 33: must be from 1 to 32",
		"topology.planes=-1":    "topology.planes: -1",
		"transport.profile=irn": "topology.planes: only transport mrc selects planes",
		"workload.0.to=4":       "workload.0: to: no host 4; hosts are 0 to 3",
	} {
		if _, err := config(planes, set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", set, err, want)
		}
	}
}

// TestPlaneFails: a failed port removes its plane; the others carry the traffic.
func TestPlaneFails(t *testing.T) {
	r := simulated(t, planes+"events: [{at: 0s, link: h0-leaf0.0, do: fail}]\n")
	if got := r.Goodput(); got < 200e9 || got > 300e9 {
		t.Errorf("%.3g b/s over three planes of 100 Gb/s", got)
	}
}
