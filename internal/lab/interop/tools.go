package main

import (
	"errors"
	"fmt"
	"strings"
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
