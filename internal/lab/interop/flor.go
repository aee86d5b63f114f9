package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"roced.io/roced/internal/lab/perf"
	"roced.io/roced/internal/lab/vm"
	"roced.io/roced/verbs"
)

// florPart tests Flor between our NIC and rxe in the machine.
type florPart struct {
	lines []string // of netem
	sizes []int
}

// newFlorPart returns the part, or a sample of it.
func newFlorPart(short bool) florPart {
	if short {
		return florPart{lines: netemLines[2:3], sizes: []int{128, 1 << 20}}
	}
	return florPart{lines: netemLines[:3], sizes: []int{128, 4 << 10, 32 << 10, 64 << 10, 1 << 20}}
}

const florIntro = "`roceperf flor --verify` on either side: package flor on our NIC, and the same program in the machine on rxe, by the write()\n" +
	"ABI and rdma_cm of its kernel. Each call has a request and an answer of the size given, and every byte of both is compared; above\n" +
	"32 KiB they come by WRITE, to memory that work requests open and close by windows of type 1. netem is in\n" +
	"both directions. A cell has the calls of a second, four at a time, how many work requests the client has found lost, and how many queue\n" +
	"pairs it has connected anew: rxe's UC takes nothing any more once it has lost a packet in the middle of a message."

func (f florPart) run(l *lab, r *report) {
	r.begin(table{Title: "Flor", Intro: florIntro, Head: []string{"by", "netem", "bytes", "server in the machine", "server outside"}})
	if err := l.redirectIngress(); err != nil {
		r.failed("flor", err)
		return
	}
	for _, by := range []string{"uc", "rc"} {
		if err := f.both(l, r, by); err != nil {
			r.failed("flor by "+by, err)
		}
	}
	if err := l.setNetem(""); err != nil {
		r.failed("flor", err)
	}
}

// both runs all clients on both sides, each with a server on the other side.
func (f florPart) both(l *lab, r *report, by string) (err error) {
	there, err := serveInside(l, by)
	if err != nil {
		return err
	}
	here, err := serveOutside(l, by)
	if err == nil {
		for _, line := range f.lines {
			err = errors.Join(err, l.setNetem(line))
			for _, size := range f.sizes {
				f.row(l, r, florTrial{by, line, size})
			}
		}
	}
	if here != nil {
		here.kill()
	}
	_, err2 := there.End()
	return errors.Join(err, err2)
}

// florTrial is one run of the clients on both sides.
type florTrial struct {
	by, line string
	size     int
}

func (f florPart) row(l *lab, r *report, t florTrial) {
	row := []string{strings.ToUpper(t.by), "none", fmt.Sprint(t.size)}
	if t.line != "" {
		row[1] = "`" + t.line + "`"
	}
	for _, client := range []func(*lab, florTrial) (string, error){callInside, callOutside} {
		out, err := client(l, t)
		cell := ""
		if err == nil {
			cell, err = florCell(out)
		}
		if err != nil {
			cell = "**failed**"
			r.failed(fmt.Sprintf("flor by %s, %d bytes, netem %q, server %s", t.by, t.size, t.line, []string{"in the machine", "outside"}[len(row)-3]), err)
		}
		row = append(row, cell)
	}
	r.row(row...)
}

// florCell summarizes a client's output.
func florCell(out string) (string, error) {
	var counters struct{ Lost, Reconnects uint64 }
	result := perf.FlorResult{Counters: &counters}
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		return "", fmt.Errorf("%w in\n%s", err, out)
	}
	if result.Calls == 0 {
		return "", errors.New("no call has been answered")
	}
	return fmt.Sprintf("%d, %d lost, %d anew", result.Calls, counters.Lost, counters.Reconnects), nil
}

// florCommand returns a command of roceperf for either side.
func florCommand(verb, by, runDir, device string) string {
	return fmt.Sprintf("flor %s --run-dir %s -d %s --connection %s --verify", verb, runDir, device, by)
}

func (t florTrial) client(server, runDir, device string) string {
	return florCommand("lat "+server, t.by, runDir, device) + fmt.Sprintf(" -s %d -t 4 -D 1s --json", t.size)
}

// serveInside starts a server in the machine.
func serveInside(l *lab, by string) (*vm.Job, error) {
	job, err := l.vm.Begin("exec roceperf " + florCommand("serve", by, verbs.KernelDir, "rxe0"))
	if err != nil {
		return nil, err
	}
	if err := job.Until(cmListens, commandLimit); err != nil {
		_, err2 := job.End()
		return nil, errors.Join(err, err2)
	}
	return job, nil
}

// serveOutside starts a server on our NIC.
func serveOutside(l *lab, by string) (*process, error) {
	p := l.roceperf(florCommand("serve", by, l.host.RunDir, roceName(linkUnix)), time.Hour)
	return p, program{cm: true}.await(l, p)
}

// roceperf starts the program outside.
func (l *lab) roceperf(arguments string, limit time.Duration) *process {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	return start(exec.CommandContext(ctx, filepath.Join(l.bin, "roceperf"), strings.Fields(arguments)...), cancel, (*exec.Cmd).Start)
}

// callOutside calls the server in the machine.
func callOutside(l *lab, t florTrial) (string, error) {
	_, server := l.florAddresses()
	p := l.roceperf(t.client(server, l.host.RunDir, roceName(linkUnix)), programLimit)
	err := p.wait()
	return p.out.String(), err
}

// callInside calls the server outside.
func callInside(l *lab, t florTrial) (string, error) {
	server, _ := l.florAddresses()
	return l.vm.Shell(fmt.Sprintf("timeout %d roceperf %s", int(programLimit.Seconds()), t.client(server, verbs.KernelDir, "rxe0")), programLimit+commandLimit)
}

// florAddresses returns the addresses of our NIC and of rxe.
func (l *lab) florAddresses() (outside, inside string) {
	a, _ := addresses(linkUnix, 0)
	b, _ := addresses(linkUnix, 1)
	return a.String(), b.String()
}
