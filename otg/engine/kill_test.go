package engine

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// killedIn names the namespaces of the process that TestKilled kills.
const killedIn = "ROCEOTG_TEST_KILLED"

// TestKilled: a killed process leaves neither its TAP device nor an interface in promiscuous mode behind, and another one can use
// the same ports.
func TestKilled(t *testing.T) {
	ports := func(ns string) Config {
		c := portsIn([2]string(strings.Fields(ns)), 1)
		c.Ports[0].Device = "w0"
		c.Ports[1].Kind, c.Ports[1].Device = TAP, "tap0"
		return c
	}
	if ns := os.Getenv(killedIn); ns != "" {
		e := start(t, ports(ns))
		must(t, e.Traffic(nil, Start))
		fmt.Println("ready")
		select {}
	}
	ns := links(t, 1)
	paths := ns[0].Path() + " " + ns[1].Path()
	c := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	c.Env, c.Stderr = append(os.Environ(), killedIn+"="+paths), os.Stderr
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Errorf("the process says %q, %v", line, err)
	}
	promiscuous := func() (n int) {
		must(t, ns[0].Do(func() error {
			l, err := netlink.LinkByName("w0")
			if err == nil {
				n = l.Attrs().Promisc
			}
			return err
		}))
		return n
	}
	if promiscuous() == 0 {
		t.Error("w0 is not in promiscuous mode while the process runs")
	}
	must(t, c.Process.Kill())
	_ = c.Wait()
	if promiscuous() != 0 {
		t.Error("w0 is in promiscuous mode")
	}
	err = ns[1].Do(func() error { _, err := netlink.LinkByName("tap0"); return err })
	if err == nil {
		t.Error("tap0 is left")
	}
	start(t, ports(paths))
}
