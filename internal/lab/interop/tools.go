package main

import (
	"errors"
	"fmt"
	"strings"

	"roced.io/roced/verbs"
)

// toolScript runs a tool on a veth, sends a RoCEv2 datagram, and ends the tool. It prints the tool's output and the
// programs that remain on the interface. (Without an IPv6 address, the interface sends nothing else.)
const toolScript = `set -e
trap 'kill $! 2>/dev/null || true; ip link del f0' EXIT
ip link add f0 type veth peer name f1
ip link set f1 up; ip addr add 198.18.22.1/24 dev f0
ip link set f0 addrgenmode none; ip link set f0 up
ip neigh add 198.18.22.2 lladdr 02:00:00:00:00:02 dev f0
rocectl %s >/tmp/tool 2>&1 &
until grep -q 'in force' /tmp/tool; do kill -0 $! || { cat /tmp/tool; exit 1; }; sleep 0.05; done
until ip -o link show f0 | grep -q 'state UP'; do sleep 0.05; done
echo 'BTH, and something as long as an ICRC' >/dev/udp/198.18.22.2/4791
kill -INT $!; wait $!
cat /tmp/tool; ip -o link; tc qdisc show dev f0`

// tools are the commands that load BPF programs into the kernel, and their expected output.
var tools = []struct{ command, says string }{
	{`fault run f0 'tx drop'`, "hit 1\n"},
	{`bottleneck f0 rate=1gbit roce`, "frames 1 "},
}

// losses are commands that drop packets of rxe while they leave an interface of the pair. rxe must take each drop for a loss: the
// end that misses the packet counts it. If a queue drops, perhaps no packet follows, so the sender counts: it goes back after a NAK or
// a timeout.
var losses = []struct {
	command string
	op      verbs.Opcode
	end     int    // of the pair that counts
	counter string // of rxe
}{
	{`fault run veth0 'tx drop op=write psn=+3 n=1'`, verbs.OpWrite, 1, "out_of_seq_request"},
	{`fault run veth1 'tx drop op=readresp psn=+3 n=1'`, verbs.OpRead, 0, "completer_retry_err"},
	{`bottleneck veth0 rate=2mbit limit=16k roce`, verbs.OpWrite, 0, "completer_retry_err"},
}

// startTool starts rocectl in the machine. stopTool ends it and returns its output.
const (
	startTool = `rocectl %s >/tmp/tool 2>&1 & echo $! >/tmp/tool.pid
until grep -q 'in force' /tmp/tool; do kill -0 $! || { cat /tmp/tool; exit 1; }; sleep 0.05; done`
	stopTool = `kill -INT $(cat /tmp/tool.pid); while kill -0 $(cat /tmp/tool.pid) 2>/dev/null; do sleep 0.05; done; cat /tmp/tool`
)

// lose runs one of the losses: all data arrive in spite of it, and rxe has missed a packet.
func (l *lab) lose(command string, op verbs.Opcode, end int, counter string) (missed int, err error) {
	count := func() (n int) {
		text, cerr := l.vm.Shell(fmt.Sprintf("cat /sys/class/infiniband/%s/ports/1/hw_counters/%s", rxeName(firstPair+end), counter), commandLimit)
		_, serr := fmt.Sscan(text, &n)
		err = errors.Join(err, cerr, serr)
		return n
	}
	c, err := connect(l.pair[0], l.pair[1], netem{}.settings())
	if err != nil {
		return 0, errors.Join(err, c.Close())
	}
	before := count()
	_, serr := l.vm.Shell(fmt.Sprintf(startTool, command), commandLimit)
	if err = errors.Join(err, serr); err == nil {
		err = transfer{op: op, size: 64 << 10, seed: 1}.run(c, batchLimit)
	}
	out, serr := l.vm.Shell(stopTool, commandLimit)
	err = errors.Join(err, serr, c.Close())
	missed = count() - before
	if err == nil && (missed == 0 || strings.Contains(out, "hit 0\n") || strings.Contains(out, "dropped 0 ")) {
		err = fmt.Errorf("%s has increased by %d; the tool says:\n%s", counter, missed, out)
	}
	return missed, err
}

// runLosses shows that rxe takes dropped frames for losses.
func runLosses(l *lab, r *report) {
	r.begin(table{Title: "Frames dropped at egress are losses for rxe", Intro: "Between two rxe devices in the machine. The sender must not learn of a drop.",
		Head: []string{"command", "operation", "counter"}})
	for _, k := range losses {
		missed, err := l.lose(k.command, k.op, k.end, k.counter)
		result := fmt.Sprintf("%s +%d", k.counter, missed)
		if err != nil {
			result = "failed"
			r.failed("rocectl "+k.command, err)
		}
		r.row("`rocectl "+k.command+"`", opNames[k.op], result)
	}
}

// hasTCX reports whether the machine's kernel is Linux 6.6 or newer.
func (l *lab) hasTCX() bool {
	_, err := l.vm.Shell(`[ "$(printf '%s\n' 6.6 "$(uname -r)" | sort -V | head -n1)" = 6.6 ]`, commandLimit)
	return err == nil
}

// runTools checks that the verifier of the machine's kernel accepts the programs, and that a kernel without tcx uses
// clsact.
func runTools(l *lab, r *report) {
	r.begin(table{Title: "Faults and bottleneck in the machine", Intro: "Its kernel takes the BPF programs, and they are at work.",
		Head: []string{"command", "program attached"}})
	how := "clsact"
	if l.hasTCX() {
		how = "tcx"
	}
	for _, t := range tools {
		out, err := l.vm.Shell(fmt.Sprintf(toolScript, t.command), commandLimit)
		switch {
		case err != nil:
		case !strings.Contains(out, t.says) || !strings.Contains(out, "by "+how):
			err = errors.New("not as expected:\n" + out)
		case strings.Contains(out, "qdisc clsact") || strings.Contains(out, "qdisc tbf") || strings.Contains(out, " rf"):
			err = errors.New("something is left:\n" + out)
		}
		result := "by " + how
		if err != nil {
			result = "failed"
			r.failed("rocectl "+t.command, err)
		}
		r.row("`rocectl "+t.command+"`", result)
	}
}
