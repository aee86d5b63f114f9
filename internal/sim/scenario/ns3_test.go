package scenario

import (
	"os"
	"strings"
	"testing"

	"roced.io/roced/internal/sim"
)

// others are files of other simulators: two switches, of which one has the ID 0, and flows by ID.
var others = map[string]string{
	"topology.txt": "5 2 4\n0 3\n0 1 100Gbps 1us 0\n0 2 100Gbps 1us 0\n0 3 100Gbps 1us 0\n3 4 100Gbps 1us 0\n",
	"flows.txt":    "2\n4 1 3 200 70000 0.000001\n2 4 3 5000 0.000002\n",
}

const ns3File = `name: other
topology: {kind: ns3, file: topology.txt}
switch: {buffer: 1MiB}
transport: {profile: irn}
workload:
  - {kind: flows, file: flows.txt}
`

func configWith(files map[string]string, set ...string) (sim.Config, error) {
	f, err := Read("x.yaml", []byte(ns3File), set)
	if err != nil {
		return sim.Config{}, err
	}
	c, err := f.Config(func(name string) ([]byte, error) {
		if text, ok := files[name]; ok {
			return []byte(text), nil
		}
		return nil, os.ErrNotExist
	})
	return c, withoutColumns(err)
}

// TestNS3: files of other simulators are a scenario. Its result has their IDs and ports.
func TestNS3(t *testing.T) {
	c, err := configWith(others)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Run()
	if err != nil || len(r.Flows) != 2 {
		t.Fatal(len(r.Flows), err)
	}
	for _, f := range r.Flows {
		got := [...]int{r.HostID(f.Src), r.HostID(f.Dst), int(f.Bytes), int(f.Port), int(f.Start)}
		if want := [...][5]int{{4, 1, 70000, 200, 1e6}, {2, 4, 5000, 0, 2e6}}[f.ID]; got != want {
			t.Errorf("flow %d: %v, want %v", f.ID, got, want)
		}
	}
}

// TestNS3Loss: error rates of links apply in both directions from the beginning.
func TestNS3Loss(t *testing.T) {
	files := map[string]string{"topology.txt": strings.Replace(others["topology.txt"], "3 4 100Gbps 1us 0", "3 4 100Gbps 1us 0.1", 1), "flows.txt": others["flows.txt"]}
	c, err := configWith(files)
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, c)
	for _, p := range r.Ports {
		if lossy := p.Link == "s3-h2" || p.Link == "h2-s3"; (p.Lost > 0) != lossy {
			t.Errorf("%s lost %d of %d packets", p.Link, p.Lost, p.Packets)
		}
	}
}

// TestNS3Rate: loads refer to the rate of the hosts' links if all are equal.
func TestNS3Rate(t *testing.T) {
	load := "workload=[{kind: poisson, sizes: 10KB, load: 0.5, until: 1ms}]"
	if c, err := configWith(others, load); err != nil || c.Payload != 0.5*100e9/8*3/1000 {
		t.Errorf("%d bytes, %v", c.Payload, err)
	}
	mixed := map[string]string{"topology.txt": strings.Replace(others["topology.txt"], "3 4 100Gbps", "3 4 25Gbps", 1)}
	if _, err := configWith(mixed, load); err == nil || !strings.Contains(err.Error(), "topology.host_rate: missing") {
		t.Error(err)
	}
	if _, err := configWith(mixed, load, "topology.host_rate=25Gbps"); err != nil {
		t.Error(err)
	}
}

// TestNS3Errors: errors name the scenario, the key, the file, its line and the value.
func TestNS3Errors(t *testing.T) {
	for _, c := range []struct{ topology, flows, want string }{
		{"5 2 4\n0 5\n", "", `x.yaml:2: topology.file: topology.txt: line 2: ID of a switch "5": must be from 0 to 4`},
		{others["topology.txt"], "1\n4 0 3 5 1\n", "x.yaml:6: workload.0.file: flows.txt: flow list, line 2: the destination 0 is the switch s0; hosts are 1 to 2, 4"},
	} {
		_, err := configWith(map[string]string{"topology.txt": c.topology, "flows.txt": c.flows})
		if err == nil || err.Error() != c.want {
			t.Errorf("%v\nwant %s", err, c.want)
		}
	}
	if _, err := configWith(nil); err == nil || !strings.Contains(err.Error(), "x.yaml:2: topology.file: file does not exist") {
		t.Error(err)
	}
}
