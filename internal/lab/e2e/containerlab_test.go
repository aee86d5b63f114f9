package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"go.yaml.in/yaml/v3"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/namespace"
)

// clabNode has the keys of a node in the topology. clab.schema.json defines them and their types.
type clabNode struct {
	Kind       string
	Image      string
	Entrypoint string
	Cmd        string
	Exec       []string
}

// clab is a topology file.
type clab struct {
	Name     string
	Topology struct {
		Defaults clabNode
		Nodes    map[string]clabNode
		Links    []struct{ Endpoints [2]string }
	}
}

// TestContainerlab performs containerlab's steps for the topology in plain namespaces: nodes, links, and then the
// commands of each node.
func TestContainerlab(t *testing.T) {
	lab.Long(t)
	asRoot(t)
	lab.Need(t, "ip")
	text, err := os.ReadFile("../../../deploy/labs/leaf-spine.clab.yml")
	lab.Must(t, err)
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	var c clab
	lab.Must(t, d.Decode(&c))
	if c.Topology.Defaults.Kind != "linux" || len(c.Topology.Nodes) != 8 {
		t.Fatalf("%+v", c)
	}
	nodes, dir := map[string]*namespace.Namespace{}, lab.Dir(t)
	for name := range c.Topology.Nodes {
		n, err := namespace.New()
		lab.Must(t, err)
		t.Cleanup(func() { n.Close() })
		nodes[name] = n
		lab.Must(t, n.Do(func() error { return up("lo") }))
	}
	for _, l := range c.Topology.Links {
		a, aIface, _ := strings.Cut(l.Endpoints[0], ":")
		b, bIface, _ := strings.Cut(l.Endpoints[1], ":")
		lab.Must(t, nodes[a].Join(aIface, nodes[b], bIface))
		lab.Must(t, nodes[a].Do(func() error { return up(aIface) }))
		lab.Must(t, nodes[b].Do(func() error { return up(bIface) }))
	}
	// A container has separate folders.
	run := func(name string, args ...string) *lab.Proc {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "ROCED_RUN_DIR="+filepath.Join(dir, name), "PATH="+lab.Bin+":"+os.Getenv("PATH"))
		return lab.LaunchCmd(t, nodes[name].Start, cmd)
	}
	for name, n := range c.Topology.Nodes {
		for _, command := range n.Exec {
			lab.Must(t, run(name, "sh", "-c", "exec "+command).Wait(lab.Limit))
		}
		if slices.Contains(n.Exec, "roced up eth1") {
			t.Cleanup(func() { lab.Must(t, run(name, lab.Program("roced"), "down").Wait(2*lab.Limit)) })
		}
	}
	perf := []string{lab.Program("roceperf"), "write-bw", "-s", "64k", "-n", "64", "-q", "16", "--verify"}
	server := run("h4", perf...)
	lab.Must(t, server.Listens(18515))
	lab.Must(t, run("h2", append(perf, "198.18.2.2")...).Wait(lab.Limit))
	lab.Must(t, server.Wait(lab.Limit))
	for _, spine := range []string{"spine1", "spine2"} {
		dev := run(spine, "cat", "/proc/net/dev")
		lab.Must(t, dev.Wait(lab.Limit))
		if n := received(t, dev.Out.String(), "eth1"); n < 20 {
			t.Errorf("%s has %d packets of leaf1", spine, n)
		}
	}
}

func up(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}
