package siege

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"roced.io/roced/internal/lab"
	"roced.io/roced/verbs"
)

// chargedEnv makes the test binary a client of TestCharge: "ACTION RUNDIR".
const chargedEnv = "ROCED_SIEGE_CHARGED"

// charged runs an action of a client. A line on standard input starts each step.
func charged(action, runDir string) error {
	in := bufio.NewScanner(os.Stdin)
	step := func(format string, args ...any) {
		fmt.Printf(format+"\n", args...)
		in.Scan()
	}
	step("ready")
	switch action {
	case "hostile":
		s, err := newSparse(runDir)
		if err != nil {
			return err
		}
		n, err := s.write(context.Background())
		if err != nil {
			return err
		}
		step("%d %d", n, s.resident())
	case "modest":
		p, err := newPair(runDir, 1, modest)
		if err != nil {
			return err
		}
		step("registered")
		for off := 0; off < modest; off += 1 << 16 {
			err := p.from[0].PostSend(&verbs.SendWR{Opcode: verbs.OpWrite, Flags: verbs.SendSignaled, SGEs: []verbs.SGE{p.src.SGE(off, 1<<16)},
				RemoteAddr: p.dst.Addr() + uint64(off), RKey: p.dst.RKey()})
			if err != nil {
				return err
			}
			var wcs [1]verbs.WC
			if _, err := p.cq.PollWait(context.Background(), wcs[:]); err != nil || wcs[0].Err() != nil {
				return errors.Join(err, wcs[0].Err())
			}
		}
		step("written")
	case "greedy":
		_, err := newPair(runDir, 1, greedy)
		return errors.Join(errors.New("no limit"), err)
	}
	return nil
}

const (
	modest = 32 << 20  // bytes of each side of the client that keeps its limit
	greedy = 512 << 20 // bytes of each side of the client that exceeds it

	clientLimit = 192 << 20
	daemonLimit = 256 << 20
	daemonMore  = 24 << 20 // limit on the growth of the daemon
	slack       = 4 << 20  // the kernel counts in batches, and frees memory of ended clients later
)

// chargedClient is a running client in a control group.
type chargedClient struct {
	t   testing.TB
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Scanner
}

func (c *castle) charged(action string, g *lab.Group) *chargedClient {
	c.t.Helper()
	cmd := exec.Command(c.binary)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s", chargedEnv, action, c.runDir()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(c.t, err)
	from, to, err := os.Pipe()
	must(c.t, err)
	cmd.Stdin = from
	must(c.t, cmd.Start())
	from.Close()
	p := &chargedClient{c.t, cmd, to, bufio.NewScanner(out)}
	c.t.Cleanup(p.end)
	if s := p.said(); s != "ready" {
		c.t.Fatalf("%s says %q", action, s)
	}
	if g != nil {
		g.Add(c.t, cmd.Process.Pid)
	}
	return p
}

func (p *chargedClient) said() string { p.out.Scan(); return p.out.Text() }

// next starts the next step and returns its result.
func (p *chargedClient) next() string {
	_, _ = p.in.WriteString("\n")
	return p.said()
}

// end kills the client.
func (p *chargedClient) end() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.in.Close()
}

// TestCharge checks that memory of clients counts as theirs: a client cannot make the daemon exceed the limit of its
// control group. Memory counts as the client's from its registration on. A client that exceeds its own limit ends, and
// nothing else.
func TestCharge(t *testing.T) {
	lab.Long(t)
	own, clients := lab.NewGroup(t, "daemon", daemonLimit), lab.NewGroup(t, "client", clientLimit)
	c := newCastle(t)
	victim, err := newPair(c.runDir(), 1, 4096)
	must(t, err)
	defer victim.close()
	if own == nil || clients == nil {
		t.Log("this machine permits no control groups; pages are counted, the limits are not tested")
		own, clients = nil, nil
	}
	bytes := func(g *lab.Group) int {
		if g == nil {
			return 0
		}
		return g.Bytes(t)
	}
	if own != nil {
		own.Add(t, c.cmd.Process.Pid)
	}
	check := func(action string, before int) {
		t.Helper()
		if n := bytes(own) - before; n > daemonMore {
			t.Errorf("%s: the daemon has %d MiB more", action, n>>20)
		}
		c.watch(victim, time.Second/5, func() {}, action)
	}

	before := bytes(own)
	p := c.charged("hostile", clients)
	if s := p.next(); s != "0 0" {
		t.Errorf("sparse memory: WRITEs that succeeded and pages that the daemon has allocated: %s", s)
	}
	check("hostile", before)
	p.end()

	before, mine := bytes(own), bytes(clients)
	p = c.charged("modest", clients)
	if s := p.next(); s != "registered" {
		t.Fatalf("modest: %q", s)
	}
	if n := bytes(clients) - mine; clients != nil && n < 2*modest-slack {
		t.Errorf("modest: the client has %d MiB more after the registration of %d", n>>20, 2*modest>>20)
	}
	if s := p.next(); s != "written" {
		t.Errorf("modest: %q", s)
	}
	check("modest", before)
	p.end()

	if clients == nil {
		return
	}
	before = bytes(own)
	p = c.charged("greedy", clients)
	s := p.next()
	_ = p.cmd.Wait()
	if w, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || w.Signal() != syscall.SIGKILL {
		t.Errorf("greedy: %q, %v; want it to be killed", s, p.cmd.ProcessState)
	}
	check("greedy", before)
}
