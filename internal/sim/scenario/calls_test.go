package scenario

import (
	"strings"
	"testing"

	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/flor"
)

const rpcs = `name: x
topology: {kind: star, host_rate: 100Gbps, delay: 1us, hosts: 4}
switch: {buffer: 16MiB, ecn: {min: 100KB, max: 400KB, probability: 1}}
transport: {profile: rc, connections: persistent}
flor: {reliability: rc, acks: own, backups: 1}
workload:
  - {kind: calls, clients: [0, 1], servers: [1, 3], request: 64KiB, response: 1KB, outstanding: 4}
stop: 1ms
`

// TestCalls: calls connect all clients with all servers, with and without Flor. Hosts have the configured congestion
// control.
func TestCalls(t *testing.T) {
	for _, plain := range []bool{false, true} {
		set := []string{"nics=[{hosts: [1, 2], congestion: {name: dctcp}}]"}
		if plain {
			set = append(set, "workload.0.plain=true")
		}
		c, err := config(rpcs, set...)
		if err != nil {
			t.Fatal(err)
		}
		a := c.Apps[0].(*flor.Calls)
		if len(a.Pairs) != 5 || a.Plain != plain || c.Specs[1].Congestion.Name != "dctcp" || c.Specs[2].Congestion.Name != "dctcp" || len(c.Specs) != 2 ||
			!plain && (!a.Flor.Engine.Hardware || a.Flor.Backups != 1) {
			t.Errorf("%+v, %v", a, c.Specs)
		}
		s, err := sim.New(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Run(); err != nil || len(a.Answers) < 100 {
			t.Errorf("plain %v: %v, %d calls", plain, err, len(a.Answers))
		}
	}
}

func TestCallsErrors(t *testing.T) {
	edit := func(old, with string) string { return strings.Replace(rpcs, old, with, 1) }
	for _, c := range []struct{ text, want string }{
		{edit("[1, 3]", "[1, 4]"), "x.yaml:7: workload.0.servers: expected the first and the last of 4 hosts"},
		{edit("stop: 1ms\n", ""), "x.yaml:7: workload.0: calls never end: set stop"},
		{edit("outstanding: 4}", "outstanding: 4, plain: true}"), ""},
		{strings.Replace(edit("outstanding: 4}", "outstanding: 4, plain: true}"), ", connections: persistent", "", 1), "workload.0: all calls of a client share connections"},
		{edit("flor: {reliability: rc, acks: own, backups: 1}\n", ""), "x.yaml:6: workload.0: calls use Flor"},
		{edit("acks: own", "acks: none"), `x.yaml:5: flor.acks: "none" is neither own nor shared`},
		{edit("reliability: rc", "reliability: ud"), `x.yaml:5: flor.reliability: "ud" is neither uc nor rc`},
		{edit("request: 64KiB, ", ""), "x.yaml:7: workload.0: calls require request and response"},
		{edit("kind: calls, clients: [0, 1], servers: [1, 3], request: 64KiB, response: 1KB, outstanding: 4", "kind: incast, to: 0, senders: 1, size: 1KB"), "x.yaml:5: flor: only workloads of kind calls use Flor"},
		{rpcs + "nics: [{hosts: [3, 1], congestion: {name: dctcp}}]\n", "x.yaml:9: nics.0.hosts: expected the first and the last"},
		{rpcs + "nics: [{hosts: [1, 1], congestion: {name: luck}}]\n", "x.yaml:9: nics.0.congestion"},
	} {
		if _, err := config(c.text); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}
