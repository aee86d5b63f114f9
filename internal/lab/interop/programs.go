package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// program is a stock program that runs once in the machine and once outside on our NIC.
type program struct {
	// server and client are the command lines. %a is the server's address, %d the device, and %g the index of its IPv4
	// address.
	server, client string
	cm             bool // the two sides connect by rdma_cm, otherwise by TCP
	short          bool // belongs to the short form
	// races are the messages from races of the program itself. After such a message both sides run again.
	races []string
}

var (
	// lateListen: perftest's client connects a second time before its server listens a second time.
	lateListen = []string{"RDMA_CM_EVENT_REJECTED; error: 8"}
	// otherQueue: perftest has one channel for the events of both its completion queues, and attributes each event to
	// the queue that it waits for. If the answer arrives before the acknowledgement is processed, perftest blocks
	// forever or reads a completion that is not there. This occurs with rxe since it has work queues (12 of 25 runs
	// from rxe to rxe under load, Linux 6.12).
	otherQueue = []string{"still running", "signal: killed", "Completion with error"}
)

// same is a program with the same arguments on both sides, plus the server's address for the client.
func same(line string, short bool) program {
	return program{server: line, client: line + " %a", short: short}
}

// racing returns a program with known races.
func (p program) racing(races []string) program {
	p.races = races
	return p
}

// byCM is a program whose two sides connect by rdma_cm.
func byCM(server, client string, short bool) program {
	return program{server: server, client: client, cm: true, short: short}
}

const (
	pingpong = " -d %d -g %g -c -n 200" // -c compares the data
	// The timeout must exceed short pauses of the machine: perftest's default is 68 ms. -t 8 limits the data in flight,
	// because the machine drops packets when its buffers are full.
	patiently = " -F -u 18"
	perftest  = " -d %d -x %g" + patiently
	// Each side adopts the other's limit of outstanding READs, 128 for rxe and 16 for ours. So both need an explicit
	// common limit.
	fetching = " -o 16" + perftest
)

// stockPrograms are the programs to run in both directions. The emulated machine is slow, so there are few iterations.
// Datagrams alternate in direction, so that full buffers drop none.
var stockPrograms = []program{
	same("ibv_rc_pingpong"+pingpong, true),
	same("ibv_rc_pingpong -e -s 65536 -m 4096"+pingpong, false),
	same("ibv_uc_pingpong"+pingpong, true),
	same("ibv_ud_pingpong"+pingpong, true),
	same("ibv_srq_pingpong -q 4"+pingpong, true),
	same("ib_write_bw -t 8 -s 65536 -n 200"+perftest, true),
	same("ib_write_bw -t 8 -s 65536 -n 50 -q 4 -b"+perftest, false),
	same("ib_write_bw -t 8 -c UC -s 1024 -n 200"+perftest, false),
	same("ib_send_bw -t 8 -s 65536 -n 200"+perftest, false),
	same("ib_read_bw -t 8 -s 65536 -n 200"+fetching, true),
	same("ib_atomic_bw -t 8 -n 200"+fetching, false),
	same("ib_write_lat -n 500"+perftest, false),
	same("ib_send_lat -n 500"+perftest, true),
	same("ib_send_lat -c UC -n 500"+perftest, false),
	same("ib_send_lat -c UD -n 500"+perftest, false),
	same("ib_send_lat -e -n 200"+perftest, false).racing(otherQueue),
	same("ib_read_lat -n 500"+fetching, false),
	same("ib_atomic_lat -A CMP_AND_SWAP -n 500"+fetching, true),
	byCM("ib_send_bw -R -t 8 -s 65536 -n 200"+patiently, "ib_send_bw -R -t 8 -s 65536 -n 200"+patiently+" %a", false).racing(lateListen),
	byCM("ib_write_lat -R -n 200"+patiently, "ib_write_lat -R -n 200"+patiently+" %a", false).racing(lateListen),
	byCM("rping -s -a %a -C 20 -V", "rping -c -a %a -C 20 -V", true),
	byCM("rping -s -a %a -C 20 -V -S 60000", "rping -c -a %a -C 20 -V -S 60000", false),
	byCM("ucmatose -c 5 -C 10 -S 4000", "ucmatose -s %a -c 5 -C 10 -S 4000", false),
	byCM("udaddy", "udaddy -s %a", true),
	byCM("rdma_server", "rdma_client -s %a", false),
}

// hostAddress is the TCP address of programs outside: the bridge with QEMU's TAP.
const hostAddress = "198.18.11.100"

const (
	// programLimit is the time limit of a program. A working program takes less than a fifth of it.
	programLimit = 30 * time.Second
	// mostRuns is the maximum number of runs of a program that loses a race of its own.
	mostRuns = 8
)

// runPrograms runs all stock programs in both directions.
func runPrograms(l *lab, r *report, short bool) {
	r.begin(table{Title: "Stock programs", Intro: "The same program in the machine, on rxe, and outside, by `rocectl exec` on our NIC. perftest with `-R`, and\n" +
		"`ib_send_lat -e`, run again where they lose a race of their own; the latter loses it from rxe to rxe, too.",
		Head: []string{"program", "server in the machine", "server outside"}})
	c := exec.Command("ip", "addr", "add", hostAddress+"/24", "dev", "br0")
	if err := l.bed.NS[1].Run(c); err != nil {
		r.failed("programs: address of the bridge", err)
		return
	}
	for _, p := range stockPrograms {
		if short && !p.short {
			continue
		}
		cells := []string{"`" + strings.NewReplacer(" -d %d", "", "%g", "INDEX", "%a", "HOST").Replace(p.client) + "`"}
		for _, run := range []func(program, *lab) error{program.serverInside, program.serverOutside} {
			cell := "passed"
			if err := p.again(func() error { return run(p, l) }); err != nil {
				cell = "**failed**"
				r.failed(fmt.Sprintf("%s, server %s", p.server, []string{"in the machine", "outside"}[len(cells)-1]), err)
			}
			cells = append(cells, cell)
		}
		r.row(cells...)
	}
}

// again repeats a program until it loses no race of its own.
func (p program) again(run func() error) (err error) {
	for range mostRuns {
		if err = run(); err == nil || !slices.ContainsFunc(p.races, func(s string) bool { return strings.Contains(err.Error(), s) }) {
			break
		}
	}
	return err
}

// line fills in the placeholders of a command line.
func line(template, address, device, gid string) string {
	return strings.NewReplacer("%a", address, "%d", device, "%g", gid).Replace(template)
}

// Indexes of the first IPv4 address in the GID tables. The table of rxe begins with a link-local address.
const gidInside, gidOutside = "1", "0"

// inside and outside return the command lines on the two sides. server is the address of the other side's server.
func inside(template, server string) string { return line(template, server, "rxe1", gidInside) }

func (l *lab) outside(template, server string) *process {
	args := append([]string{"--run-dir", l.host.RunDir, "exec", "--"}, strings.Fields(line(template, server, roceName(linkTAP), gidOutside))...)
	ctx, cancel := context.WithTimeout(context.Background(), programLimit)
	return start(exec.CommandContext(ctx, filepath.Join(l.bin, "rocectl"), args...), cancel, l.bed.NS[1].Start)
}

// start starts a program outside. cancel ends it.
func start(c *exec.Cmd, cancel func(), begin func(*exec.Cmd) error) *process {
	p := &process{cmd: c, cancel: cancel, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.WaitDelay = &p.out, &p.out, time.Second
	if p.err = begin(p.cmd); p.err != nil {
		close(p.done)
		return p
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p
}

// process is a program outside.
type process struct {
	cmd    *exec.Cmd
	cancel func()
	out    bytes.Buffer
	done   chan struct{}
	err    error
}

// wait waits for the end. The error contains the program's output.
func (p *process) wait() error {
	<-p.done
	p.cancel()
	return p.explain(p.err)
}

// kill ends a process that is no longer needed.
func (p *process) kill() {
	p.cancel()
	<-p.done
}

func (p *process) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("outside: %w\n%s", err, p.out.String())
}

// serverInside runs the server in the machine.
func (p program) serverInside(l *lab) (err error) {
	_, own := l.sides(p)
	job, err := l.vm.Begin(inside(p.server, own))
	if err != nil {
		return err
	}
	defer func() {
		out, err2 := job.End()
		if err = errors.Join(err, err2); err != nil {
			err = fmt.Errorf("%w\nserver: %s", err, out)
		}
	}()
	if err := job.Until(p.listens(), commandLimit); err != nil {
		return err
	}
	if err := l.outside(p.client, own).wait(); err != nil {
		return err
	}
	_, err = job.Wait(programLimit)
	return err
}

// serverOutside runs the server on our NIC.
func (p program) serverOutside(l *lab) error {
	own, _ := l.sides(p)
	server := l.outside(p.server, own)
	defer server.kill()
	if err := p.await(l, server); err != nil {
		return server.explain(err)
	}
	job, err := l.vm.Begin(inside(p.client, own))
	if err != nil {
		return err
	}
	_, err = job.Wait(programLimit)
	out, err2 := job.End()
	if err = errors.Join(err, err2); err != nil {
		return server.explain(fmt.Errorf("%w\nclient: %s", err, out))
	}
	return server.wait()
}

// sides returns the addresses of a server outside and of one inside.
func (l *lab) sides(p program) (outside, inside string) {
	a, _ := addresses(linkTAP, 0)
	b, _ := addresses(linkTAP, 1)
	if !p.cm {
		return hostAddress, b.String()
	}
	return a.String(), b.String()
}

// tcpListens is a shell test: a program listens on a TCP port other than 22.
const tcpListens = `grep -q ':0000 0A ' /proc/net/tcp /proc/net/tcp6`

// cmListens is the same test for rdma_cm.
const cmListens = "rdma resource show cm_id | grep -q 'state LISTEN'"

// listens returns the shell test for a server that waits for its client.
func (p program) listens() string {
	if p.cm {
		return cmListens
	}
	return tcpListens
}

// await waits until a server outside listens.
func (p program) await(l *lab, server *process) error {
	for deadline := time.Now().Add(commandLimit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		select {
		case <-server.done:
			return errors.New("ended early")
		default:
		}
		test := exec.Command("sh", "-c", tcpListens)
		if p.cm {
			test = exec.Command(filepath.Join(l.bin, "rocectl"), "--run-dir", l.host.RunDir, "res", "show", "cm_id")
		}
		var out bytes.Buffer
		test.Stdout = &out
		if err := l.bed.NS[1].Run(test); err == nil && (!p.cm || strings.Contains(out.String(), "LISTEN")) {
			return nil
		}
	}
	return errors.New("does not listen")
}
