package test

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/namespace"
	"roced.io/roced/internal/lab/netlab"
)

// suite is the folder of the scripts.
const suite = "../suite"

// needAgent skips a test if make build could not build the agent.
func needAgent(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(lab.Program("rocedrill-agent")); err != nil {
		t.Skip("needs libibverbs-dev, without which there is no agent")
	}
}

// outcomes runs scripts and returns how many had each outcome.
func outcomes(t *testing.T, p *lab.Proc) map[string]int {
	t.Helper()
	if code := p.Exit(10 * lab.Limit); code > 1 {
		t.Fatalf("exit code %d: %s", code, p.Diag.String())
	}
	var r struct {
		Scripts []struct{ Outcome, Script, Reason string }
	}
	if err := json.Unmarshal([]byte(p.Out.String()), &r); err != nil {
		t.Fatalf("%v in %s", err, p.Out.String())
	}
	count := map[string]int{}
	for _, s := range r.Scripts {
		if s.Outcome == "failed" {
			t.Errorf("%s: %s", s.Script, s.Reason)
		}
		count[s.Outcome]++
	}
	return count
}

// drills are the arguments for a sample of the suite against the NIC of host 1, from host 0. The sample of short tests has few
// timeouts.
func drills(l *lab.Lab, agent, link string) []string {
	sample := "requester"
	if testing.Short() {
		sample = "requester/header"
	}
	return []string{lab.Program("rocedrill"), "run", filepath.Join(suite, sample), filepath.Join(suite, "responder/psn"), "--repeat", "1", "--json",
		"--dut", "agent:" + agent, "--link", link, "--tester-address", "198.18.0.9,fd00::9", "--slack", "3s"}
}

// agentOf returns the command of an agent for the NIC of host 1. The agent runs on host 0 and uses the daemon of host 1.
func agentOf(l *lab.Lab) string {
	return strings.Join([]string{lab.Program("rocectl"), "--run-dir", l.Host[1].RunDir, "exec", "--", lab.Program("rocedrill-agent")}, " ")
}

// TestLinks runs a sample of the suite on real links: a packet socket on the veth between two namespaces, and a TAP device.
func TestLinks(t *testing.T) {
	needAgent(t)
	const vlan = 7
	l := lab.New(t, netlab.LabOptions{VLAN: vlan})
	check := func(t *testing.T, link string, flags ...string) {
		n := outcomes(t, l.At(t).Start(0, append(drills(l, agentOf(l), link), flags...)...))
		if n["passed"] == 0 {
			t.Error(n)
		}
	}
	t.Run("interface", func(t *testing.T) { check(t, netlab.Veth) })
	t.Run("VLAN", func(t *testing.T) { // the kernel removes the tags of received frames
		check(t, netlab.Veth, "--vlan", strconv.Itoa(vlan), "--tester-address", "198.19.0.9,fd19::9", "--dut-address", "198.19.0.2,fd19::2", "--ip", "6")
	})
	t.Run("TAP", func(t *testing.T) {
		const name = "drill0"
		lab.Must(t, l.NS(0).Do(func() error {
			tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: namespace.MTU}, Mode: netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_DEFAULTS}
			if err := netlink.LinkAdd(tap); err != nil {
				return err
			}
			return namespace.Enslave(name, netlab.Bridge)
		}))
		check(t, "tap:"+name)
	})
}

// TestTCP reaches an agent over TCP, which needs the token. Connections that send nothing, or another line, keep no tester out.
func TestTCP(t *testing.T) {
	needAgent(t)
	l := lab.New(t, netlab.LabOptions{})
	const port = 7999
	listen := func(where string) {
		t.Helper()
		c := exec.Command("/bin/sh", "-c", "exec "+agentOf(l)+" --listen "+where)
		c.Env = append(os.Environ(), "ROCEDRILL_TOKEN=secret")
		lab.Must(t, lab.LaunchCmd(t, l.NS(0).Start, c).Listens(port))
	}
	connect := func(line string) net.Conn {
		t.Helper()
		var c net.Conn
		lab.Must(t, l.NS(0).Do(func() (err error) {
			c, err = net.Dial("tcp", net.JoinHostPort("::1", strconv.Itoa(port)))
			return err
		}))
		t.Cleanup(func() { c.Close() })
		_, err := io.WriteString(c, line)
		lab.Must(t, err)
		return c
	}
	drill := func(token string) *lab.Proc {
		d := exec.Command(drills(l, "", "")[0], drills(l, "tcp:"+net.JoinHostPort("::1", strconv.Itoa(port)), netlab.Veth)[1:]...)
		d.Env = append(os.Environ(), "ROCEDRILL_TOKEN="+token)
		return lab.LaunchCmd(t, l.NS(0).Start, d)
	}
	listen(strconv.Itoa(port))
	lab.Must(t, l.NS(0).Do(func() error {
		if c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.2", strconv.Itoa(port))); err == nil {
			c.Close()
			t.Error("it listens on other addresses than loopback")
		}
		return nil
	}))
	wrong := drill("guess")
	if code := wrong.Exit(lab.Limit); code != 3 || !strings.Contains(wrong.Diag.String(), "the agent has ended") {
		t.Errorf("exit code %d: %s", code, wrong.Said())
	}
	for _, line := range []string{"\n", "secre\n", "secretx\n", "secret\x00\n", strings.Repeat("secret", 50)} {
		if _, err := connect(line).Read(make([]byte, 1)); err == nil {
			t.Errorf("%q is answered", line)
		}
	}
	for range 20 {
		connect("")
	}
	if n := outcomes(t, drill("secret")); n["passed"] == 0 {
		t.Error(n)
	}
	listen("127.0.0.2:" + strconv.Itoa(port))
}
