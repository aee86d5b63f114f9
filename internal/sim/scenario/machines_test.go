package scenario

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/result"
)

// topologyFile makes a topology file of links.
func topologyFile(head string, switches []int, links []string) string {
	ids := strings.Trim(fmt.Sprint(switches), "[]")
	return fmt.Sprintf("%s\n%s\n%s\n", strings.Replace(head, "LINKS", fmt.Sprint(len(links)), 1), ids, strings.Join(links, "\n"))
}

// numbers returns n numbers from first on.
func numbers(first, n int) (all []int) {
	for i := range n {
		all = append(all, first+i)
	}
	return all
}

// ali returns HPCC's topology ali_32host_10rack: each host is joined to both switches of its rack.
func ali() string {
	var links []string
	for h := range 320 {
		links = append(links, fmt.Sprintf("%d %d 25Gbps 1000ns 0", h, 320+h/32*2), fmt.Sprintf("%d %d 25Gbps 1000ns 0", h, 321+h/32*2))
	}
	for rack := range 20 {
		for up := range 8 {
			links = append(links, fmt.Sprintf("%d %d 100Gbps 1000ns 0", 320+rack, 340+up))
		}
	}
	return topologyFile("348 28 LINKS", numbers(320, 28), links)
}

// dgx returns servers of 8 GPUs with NVSwitches, as in ASTRA-sim. Each server has a switch, and one switch joins these.
func dgx(servers, nv int) string {
	gpus := 8 * servers
	var links []string
	for g := range gpus {
		for n := range nv {
			links = append(links, fmt.Sprintf("%d %d 2400Gbps 0.000025ms 0", g, gpus+g/8*nv+n))
		}
		links = append(links, fmt.Sprintf("%d %d 200Gbps 0.0005ms 0", g, gpus+servers*nv+g/8))
	}
	for s := range servers {
		links = append(links, fmt.Sprintf("%d %d 1600Gbps 0.0005ms 0", gpus+servers*nv+s, gpus+servers*nv+servers))
	}
	switches := servers*(nv+1) + 1
	return topologyFile(fmt.Sprintf("%d %d LINKS", gpus+switches, switches), numbers(gpus, switches), links)
}

// simAI returns servers of 4 GPUs in the format of SimAI. The network interfaces of all GPUs are on one switch.
func simAI() string {
	var links []string
	for g := range 8 {
		links = append(links, fmt.Sprintf("%d %d 2880Gbps 0.000025ms 0", g, 8+g/4), fmt.Sprintf("%d 10 400Gbps 0.0005ms 0", g))
	}
	return topologyFile("11 4 2 1 LINKS H100", numbers(8, 3), links)
}

// bcube is BCube(4, 1): a host is joined to two of eight switches.
func bcube() string {
	var links []string
	for h := range 16 {
		links = append(links, fmt.Sprintf("%d %d 10Gbps 1us 0", h, 16+h/4), fmt.Sprintf("%d %d 10Gbps 1us 0.0", h, 20+h%4))
	}
	return topologyFile("24 8 LINKS", numbers(16, 8), links)
}

// ring joins hosts directly, as in ASTRA-sim.
const ring = "4 0 4\n\n0 1 25Gbps 0.005ms 0\n1 2 25Gbps 0.005ms 0\n2 3 25Gbps 0.005ms 0\n3 0 25Gbps 0.005ms 0\n"

// onTopology simulates a workload on a topology file.
func onTopology(t *testing.T, topology, work string, set ...string) *result.Result {
	t.Helper()
	c, err := configWith(map[string]string{"topology.txt": topology, "flows.txt": work}, set...)
	if err != nil {
		t.Fatal(err)
	}
	c.Check = true
	return run(t, c)
}

// used returns the links with packets whose names have a prefix.
func used(r *result.Result, prefix string) (links []string) {
	for _, p := range r.Ports {
		if strings.HasPrefix(p.Link, prefix) && p.Packets > 0 {
			links = append(links, p.Link)
		}
	}
	return links
}

func permutation(size string) string {
	return "workload=[{kind: permutation, size: " + size + "}]"
}

// TestTwoLinks: in HPCC's topology each host uses both links, half of the connections each, and the load refers to their sum.
func TestTwoLinks(t *testing.T) {
	r := onTopology(t, ali(), "", permutation("20KB"))
	if len(r.Flows) != 320 || r.Retransmitted > 0 {
		t.Errorf("%d messages, %d packets retransmitted", len(r.Flows), r.Retransmitted)
	}
	first := 0
	for _, p := range r.Ports {
		var host, id int
		if n, _ := fmt.Sscanf(p.Link, "h%d-s%d", &host, &id); n == 2 && id%2 == 0 && p.Bytes > 20_000 {
			first++
		}
	}
	if first < 100 || first > 220 {
		t.Errorf("%d of 320 connections leave by the first link of their host", first)
	}
	load := "workload=[{kind: poisson, sizes: 10KB, load: 0.5, until: 100us}]"
	c, err := configWith(map[string]string{"topology.txt": ali()}, load)
	if want := uint64(0.5 * 50e9 / 8 * 320 / 1e4); err != nil || c.Payload != want {
		t.Errorf("%v, %d bytes instead of %d", err, c.Payload, want)
	}
}

// TestLinkOfConnection: a new connection takes the link that works, and the shortest path: within the rack.
func TestLinkOfConnection(t *testing.T) {
	r := onTopology(t, ali(), "", "workload=[{kind: incast, to: 40, senders: 1, size: 20KB, rounds: 20, every: 20us}]",
		"events=[{at: 0s, link: h40-s323, do: fail}, {at: 200us, link: h40-s323, do: restore}]")
	if len(r.Flows) != 20 || len(r.Drops) > 0 || len(used(r, "h40-")) != 2 || len(used(r, "s322-s34"))+len(used(r, "s323-s34")) > 0 {
		t.Errorf("%d messages, drops %v, links %v", len(r.Flows), r.Drops, used(r, ""))
	}
	r = onTopology(t, ali(), "", "workload=[{kind: incast, to: 40, senders: 1, size: 20KB, rounds: 20, every: 20us}]",
		"events=[{at: 0s, link: h40-s323, do: fail}]")
	if got := used(r, "h40-"); !slices.Equal(got, []string{"h40-s322"}) || len(r.Flows) != 20 || len(r.Drops) > 0 {
		t.Errorf("%d messages, drops %v, links %v", len(r.Flows), r.Drops, got)
	}
}

// TestNVSwitches: GPUs of a server use the NVSwitches, all of them; other traffic uses the network.
func TestNVSwitches(t *testing.T) {
	r := onTopology(t, dgx(2, 6), "", "workload=[{kind: incast, to: 0, senders: 7, size: 100KB, rounds: 4}]")
	if got := used(r, "h0-"); len(r.Flows) != 28 || len(got) != 6 || slices.Contains(got, "h0-s28") {
		t.Errorf("%d messages over %v", len(r.Flows), got)
	}
	r = onTopology(t, dgx(2, 6), "3\n0 8 3 50000 0\n9 1 3 50000 0\n8 15 3 50000 0\n", "workload=[{kind: flows, file: flows.txt, verb: send}]")
	if got := used(r, "h0-"); len(r.Flows) != 3 || !slices.Equal(got, []string{"h0-s28"}) || len(used(r, "h15-s28")) > 0 {
		t.Errorf("%d messages over %v", len(r.Flows), got)
	}
	r = onTopology(t, dgx(2, 1), "2\n0 8 3 500 0\n0 1 3 500 0\n", "workload=[{kind: flows, file: flows.txt, verb: send, service: ud}]")
	if got := used(r, "h0-"); len(r.Flows) != 2 || len(got) != 2 {
		t.Errorf("%d datagrams over %v", len(r.Flows), got)
	}
}

// TestLinkSpan: round trips and bandwidth-delay products are those of a link's own network, not of the fastest one.
func TestLinkSpan(t *testing.T) {
	text := "8\n"
	for g := 8; g < 16; g++ {
		text += fmt.Sprintf("%d 0 3 1000000 0\n", g)
	}
	r := onTopology(t, dgx(2, 1), text, "workload=[{kind: flows, file: flows.txt}]")
	// 200 Gb/s and 2 us are 50 KB for each sender.
	if len(r.Flows) != 8 || r.Peak > 8*100_000 {
		t.Errorf("%d messages, a queue of %d bytes", len(r.Flows), r.Peak)
	}
	r = onTopology(t, dgx(2, 1), "1\n8 0 3 1000000 0\n", "workload=[{kind: flows, file: flows.txt}]")
	if slow := r.All().Slowdown.Max; slow > 1.1 {
		t.Errorf("one message takes %.2f times as long as its link does", slow)
	}
}

// TestSimAI: SimAI's files name NVSwitches. Of equally short paths the fastest is used.
func TestSimAI(t *testing.T) {
	r := onTopology(t, simAI(), "", "workload=[{kind: incast, to: 0, senders: 7, size: 100KB}]")
	if len(r.Flows) != 7 || !slices.Equal(used(r, "h0-"), []string{"h0-nv8", "h0-s10"}) || !slices.Equal(used(r, "h1-"), []string{"h1-nv8"}) ||
		!slices.Equal(used(r, "h4-"), []string{"h4-s10"}) {
		t.Errorf("%d messages over %v", len(r.Flows), used(r, "h"))
	}
}

// TestRelay: hosts forward packets of others only with topology.relay.
func TestRelay(t *testing.T) {
	for name, topology := range map[string]string{"bcube": bcube(), "ring": ring} {
		_, err := configWith(map[string]string{"topology.txt": topology}, permutation("50KB"))
		if err == nil || !strings.Contains(err.Error(), "there is no path, because hosts do not forward packets; topology.relay") {
			t.Errorf("%s: %v", name, err)
		}
		r := onTopology(t, topology, "", permutation("50KB"), "topology.relay=true")
		if len(r.Flows) != len(r.HostIDs) || len(r.Drops) > 0 {
			t.Errorf("%s: %d messages of %d, drops %v", name, len(r.Flows), len(r.HostIDs), r.Drops)
		}
	}
	r := onTopology(t, strings.Replace(bcube(), "0 16 10Gbps 1us 0", "0 16 10Gbps 1us 1", 1), "1\n0 1 3 5000 0\n",
		"topology.relay=true", "stop=1ms")
	for _, p := range r.Ports {
		if (p.Lost > 0) != (p.Link == "relay0-s16" || p.Link == "s16-relay0" && p.Packets > 0) {
			t.Errorf("%s lost %d packets", p.Link, p.Lost)
		}
	}
	// Random traffic finds out when it begins.
	c, err := configWith(map[string]string{"topology.txt": ring}, "workload=[{kind: poisson, sizes: 1KB, load: 0.5, until: 1ms}]")
	if err != nil {
		t.Fatal(err)
	}
	s, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(); err == nil || !strings.Contains(err.Error(), "hosts do not forward packets") {
		t.Error(err)
	}
}

// TestLinkErrors: senseless links and hosts are named.
func TestLinkErrors(t *testing.T) {
	const graph = "topology={kind: graph, links: [{a: h0, b: s0, rate: 1Gbps}, {a: h0, b: s1, rate: 1Gbps}, {a: h1, b: s1, rate: 1Gbps}]}"
	edit := func(old, with string) string { return strings.Replace(graph, old, with, 1) }
	work := "workload=[{kind: incast, to: 0, senders: 1, size: 1KB}]"
	for _, c := range []struct{ topology, work, want string }{
		{graph, work, ""},
		{edit("a: h1", "a: h2"), work, "topology.links: h1 has no link; hosts are numbered from h0 to h2"},
		{edit("a: h1", "a: s1"), work, "topology.links.2: the link joins s1 to itself"},
		{edit("rate: 1Gbps", "rate: 200Tbps"), work, "topology.links.0.rate: exceeds 100 Tb/s"},
		{edit("b: s1, rate: 1Gbps}]", "b: s2, rate: 1Gbps}]"), work, "workload.0: from host 1 to host 0: there is no path"},
		{graph, strings.Replace(work, "to: 0", "to: 2", 1), "workload.0: to: no host 2; hosts are 0 to 1"},
		{graph, strings.Replace(work, "senders: 1", "senders: 2", 1), "workload.0: 2 senders: must be from 1 to 1"},
		{graph, "workload=[{kind: rpc, client: 1, server: 1, calls: 3}]", "workload.0: client and server are both host 1; they must differ"},
		{graph, "workload=[{kind: rpc, client: 1, server: 7, calls: 3}]", "workload.0: server: no host 7; hosts are 0 to 1"},
	} {
		_, err := config(small, c.topology, c.work)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %s: %v\nwant %s", c.topology, c.work, err, c.want)
		}
	}
	if _, err := config(strings.Replace(planes, "planes: 4, ", "", 1), edit("kind", "planes: 2, kind"), "workload.0.to=1"); err == nil ||
		!strings.Contains(err.Error(), "topology.planes: hosts with several links have a NIC for each link") {
		t.Error(err)
	}
	calls := "workload=[{kind: calls, clients: [0, 0], servers: [1, 1], request: 1KB, response: 1KB}]"
	if _, err := config(small, graph, calls, "flor={}", "stop=1ms"); err == nil || !strings.Contains(err.Error(), "flor.acks: datagrams of a host with several links") {
		t.Error(err)
	}
}
