package xdp

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/lab/porttest"
	"roced.io/roced/port"
)

// inNS runs f in namespace i with its interface.
func inNS(t *testing.T, b *netlab.Bed, i int, f func(l netlink.Link) error) {
	t.Helper()
	err := b.NS[i].Do(func() error {
		l, err := netlink.LinkByName(iface)
		if err != nil {
			return err
		}
		return f(l)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// attachedTo reports whether an XDP program is attached to the interface of
// namespace i.
func attachedTo(t *testing.T, b *netlab.Bed, i int) (yes bool) {
	t.Helper()
	inNS(t, b, i, func(l netlink.Link) error {
		yes = l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached
		return nil
	})
	return yes
}

// TestDownUp sets the interface down and up.
func TestDownUp(t *testing.T) {
	b := veth(t, 1500, 1)
	p, peer := open(t, b, 1, Config{}), open(t, b, 0, Config{})
	inNS(t, b, 1, netlink.LinkSetDown)
	until(t, p, "the link to go down", func() bool { return !p.State().Up })
	if p.FD() != -1 || p.State().Err == nil {
		t.Errorf("FD %d, state %+v", p.FD(), p.State())
	}
	if err := p.Send(clock(), roce(1, false, 1, 100)); !errors.Is(err, port.ErrDown) {
		t.Errorf("Send: %v", err)
	}
	if _, _, err := p.Recv(clock(), make([]byte, 1500)); !errors.Is(err, port.ErrDown) {
		t.Errorf("Recv: %v", err)
	}
	inNS(t, b, 1, netlink.LinkSetUp)
	until(t, p, "the link to come up", func() bool { return p.State().Up })
	until(t, peer, "the other link to come up", func() bool { return peer.State().Up })
	send(t, peer, roce(0, false, 2, 100))
	expect(t, p, roce(0, false, 2, 100))
	if s := p.Stats(); s.Lost != 0 || s.Reopened != 0 {
		t.Errorf("stats %+v", s)
	}
}

// TestMTUChange changes the MTU of a veth; frames of the new size pass.
func TestMTUChange(t *testing.T) {
	b := veth(t, 1500, 1)
	p, peer := open(t, b, 1, Config{}), open(t, b, 0, Config{})
	for i := range 2 {
		inNS(t, b, i, func(l netlink.Link) error { return netlink.LinkSetMTU(l, 4300) })
	}
	until(t, p, "the new MTU", func() bool { return p.State().MTU == 4300 })
	until(t, peer, "the new MTU", func() bool { return peer.State().MTU == 4300 })
	send(t, peer, roce(0, false, 2, 4150))
	expect(t, p, roce(0, false, 2, 4150))
}

// TestReplaced replaces the veth.
func TestReplaced(t *testing.T) {
	b := veth(t, 1500, 1)
	p := open(t, b, 1, Config{})
	inNS(t, b, 0, netlink.LinkDel)
	until(t, p, "the interface to go", func() bool { return p.Stats().Lost == 1 })
	if p.FD() != -1 || p.State().Up || p.Mode() != "gone" {
		t.Errorf("FD %d, state %+v, mode %s", p.FD(), p.State(), p.Mode())
	}
	if err := p.SetAddrs(addrs(1)[1:]); err != nil {
		t.Errorf("SetAddrs: %v", err)
	}
	fresh := veth(t, 1500, 1) // a new veth replaces it
	moveTo(t, fresh, b)
	until(t, p, "the new interface", func() bool { return p.State().Up })
	peer := open(t, fresh, 0, Config{})
	send(t, peer, roce(0, false, 1, 100)) // the port no longer has an address
	send(t, peer, roce(0, true, 2, 100))
	expect(t, p, roce(0, true, 2, 100))
	if s := p.Stats(); s.Lost != 1 || s.Reopened != 1 {
		t.Errorf("stats %+v", s)
	}
}

// moveTo moves the interface of namespace 1 of one bed to that of another.
func moveTo(t *testing.T, from, to *netlab.Bed) {
	t.Helper()
	target, err := os.Open(to.NS[1].Path())
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	inNS(t, from, 1, func(l netlink.Link) error { return netlink.LinkSetNsFd(l, int(target.Fd())) })
	inNS(t, to, 1, netlink.LinkSetUp)
}

// TestDetached detaches the program, as with bpftool. The port attaches it again.
func TestDetached(t *testing.T) {
	b := veth(t, 1500, 1)
	p, peer := open(t, b, 1, Config{}), open(t, b, 0, Config{})
	detach(t, p)
	until(t, p, "the program to be missed", func() bool { return p.Stats().Lost == 1 })
	if err := p.State().Err; p.State().Up || err == nil || !strings.Contains(err.Error(), "detached") {
		t.Errorf("state %+v", p.State())
	}
	until(t, p, "the program to be back", func() bool { return p.State().Up })
	send(t, peer, roce(0, false, 1, 100))
	expect(t, p, roce(0, false, 1, 100))
	if s := p.Stats(); s.Lost != 1 || s.Reopened != 1 {
		t.Errorf("stats %+v", s)
	}
}

func detach(t *testing.T, p *Port) {
	t.Helper()
	info, err := p.dev.link.Info()
	if err != nil {
		t.Fatal(err)
	}
	l, err := link.NewFromID(info.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Detach(); err != nil {
		t.Fatal(err)
	}
}

// TestReplacedProgram detaches the program and attaches another one. The port reports it, and attaches its program again
// after the other one has been detached.
func TestReplacedProgram(t *testing.T) {
	b := veth(t, 1500, 1)
	p := open(t, b, 1, Config{})
	other := passAll(t)
	attach := func() (l link.Link, err error) {
		err = b.NS[1].Do(func() error {
			n, err := netlink.LinkByName(iface)
			if err == nil {
				l, err = link.AttachXDP(link.XDPOptions{Program: other, Interface: n.Attrs().Index})
			}
			return err
		})
		return l, err
	}
	if l, err := attach(); err == nil {
		l.Close()
		t.Fatal("ours can be replaced without being detached")
	}
	detach(t, p)
	l, err := attach()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	until(t, p, "the other program to be met", func() bool {
		return !p.State().Up && strings.Contains(p.State().Err.Error(), "another XDP program is attached")
	})
	l.Close()
	until(t, p, "the program to be back", func() bool { return p.State().Up })
}

// passAll is an XDP program of another process.
func passAll(t *testing.T) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, AttachType: ebpf.AttachXDP, Name: "pass_all", License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// TestUpdatedProgram replaces the program of the link of the port.
func TestUpdatedProgram(t *testing.T) {
	b := veth(t, 1500, 1)
	p, peer := open(t, b, 1, Config{}), open(t, b, 0, Config{})
	if err := p.dev.link.Update(passAll(t)); err != nil {
		t.Fatal(err)
	}
	until(t, p, "the program to be missed", func() bool { return p.Stats().Lost == 1 })
	until(t, p, "the program to be back", func() bool { return p.State().Up })
	send(t, peer, roce(0, false, 1, 100))
	expect(t, p, roce(0, false, 1, 100))
}

// TestClose checks that nothing remains on the interface, also after Close during an attempt to reopen it.
func TestClose(t *testing.T) {
	b := veth(t, 1500, 1)
	p := open(t, b, 1, Config{})
	if !attachedTo(t, b, 1) {
		t.Error("nothing is attached")
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if attachedTo(t, b, 1) {
		t.Error("the program is still attached")
	}
	if p.FD() != -1 || p.State().Up || p.Send(clock(), roce(1, false, 1, 100)) != port.ErrDown {
		t.Error("usable after Close")
	}
	p.Poll(clock())

	p = open(t, b, 1, Config{})
	detach(t, p)
	until(t, p, "an attempt", func() bool { return p.reopening.Active() })
	p.Close()
	if attachedTo(t, b, 1) {
		t.Error("the program has been attached behind Close")
	}
}

// crashing is the environment variable of the process that TestCrash kills.
const crashing = "ROCED_XDP_CRASH"

// TestCrash kills a process with a port. The kernel must remove the program.
func TestCrash(t *testing.T) {
	if ns := os.Getenv(crashing); ns != "" {
		if _, err := Open(Config{Interface: iface, Netns: ns}); err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("open\n")
		time.Sleep(time.Minute) // until the test kills it
		return
	}
	b := veth(t, 1500, 1)
	c := exec.Command(os.Args[0], "-test.run=^TestCrash$")
	c.Env = append(os.Environ(), crashing+"="+b.NS[1].Path())
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "open\n" {
		t.Errorf("child: %q, %v", line, err)
	}
	if !attachedTo(t, b, 1) {
		t.Error("nothing is attached")
	}
	c.Process.Kill()
	c.Wait()
	for deadline := clock().Add(porttest.Limit); attachedTo(t, b, 1); time.Sleep(10 * time.Millisecond) {
		if clock() > deadline {
			t.Fatal("the program outlives its process")
		}
	}
	p := open(t, b, 1, Config{}) // no program blocks it
	if !p.State().Up {
		t.Errorf("state %+v", p.State())
	}
}
