package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"roced.io/roced/bpf/attach"
	"roced.io/roced/bpf/fault"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// vethName is the interface between the namespaces.
const vethName = "v0"

// ifaceReport is the output of `rocectl fault run --json`.
type ifaceReport struct {
	Attached attach.Mode
	Rx, Tx   fault.Counters
	Rules    []struct {
		Rule         string
		Matched, Hit uint64
		Note         string
	}
	Unseen []string
}

// faultRun puts rules on the veth of host 0. stop removes them.
func (l *rig) faultRun(args ...string) (stop func() ifaceReport) {
	l.T.Helper()
	p := l.Ctl(0, append([]string{"fault", "run", vethName, "--json"}, args...)...)
	lab.Must(l.T, p.Ready("rules are in force", func() (bool, error) { return strings.Contains(p.Diag.String(), "in force"), nil }))
	return func() (r ifaceReport) {
		l.T.Helper()
		p.Signal(os.Interrupt)
		if code := p.Exit(lab.Limit); code != 0 {
			l.T.Fatalf("rocectl fault run: exit code %d\n%s", code, &p.Diag)
		}
		if err := json.Unmarshal([]byte(p.Out.String()), &r); err != nil {
			l.T.Fatalf("%v in\n%s", err, &p.Out)
		}
		return r
	}
}

// ifaceCases have the same effect on a NIC and on its interface. An interface refuses cases with a reason.
var ifaceCases = []struct {
	faultCase
	refused string
}{
	{faultCase: faultCase{rule: "tx drop psn=+3 n=1", hit: 1,
		mine: counts{"retransmitted_packets": 1, "packet_seq_err": 1}, peer: counts{"out_of_sequence": 1}}},
	{faultCase: faultCase{rule: "tx drop psn=+3 n=1,2", hit: 2,
		mine: counts{"retransmitted_packets": 2, "packet_seq_err": 1}}},
	{faultCase: faultCase{rule: "tx drop op=read count=1", args: "read-bw -s 64k -n 4", hit: 1,
		peer: counts{"rx_read_requests": 4}}},
	{faultCase: faultCase{rule: "tx corrupt 20 psn=+3 n=1", hit: 1,
		mine: counts{"retransmitted_packets": 1}, peer: counts{"rx_icrc_encapsulated": 1, "out_of_sequence": 1}}},
	{faultCase: faultCase{rule: "tx ecn psn=+0..10 n=1", hit: 11, peer: counts{"np_ecn_marked_roce_packets": 11}}},
	{faultCase: faultCase{rule: "tx duplicate 2 psn=+3 n=1", hit: 1, peer: counts{"duplicate_request": 2}}},
	{faultCase: faultCase{rule: "rx drop psn=+3 op=readresp n=1", args: "read-bw -s 64k -n 4", hit: 1,
		mine: counts{"implied_nak_seq_err": 1}, peer: counts{"duplicate_request": 1}}},
	{faultCase: faultCase{rule: "rx corrupt 20 psn=+3 op=readresp n=1", args: "read-bw -s 64k -n 4", hit: 1,
		mine: counts{"implied_nak_seq_err": 1, "rx_icrc_encapsulated": 1}, peer: counts{"duplicate_request": 1}}},
	{faultCase: faultCase{rule: "rx ecn psn=+2 op=readresp n=1", args: "read-bw -s 64k -n 4", hit: 1,
		mine: counts{"np_ecn_marked_roce_packets": 1}}},
	{faultCase: faultCase{rule: "rx drop op=ack count=1", args: "write-bw -s 1k -n 64 -Q 1", hit: 1}},
	{faultCase: faultCase{rule: "rx duplicate psn=+2 op=readresp n=1", args: "read-bw -s 64k -n 4", hit: 1}},
	{refused: "delay", faultCase: faultCase{rule: "tx delay 2ms psn=+3 n=1", hit: 1, peer: counts{"out_of_sequence": 1}}},
	{refused: "delay", faultCase: faultCase{rule: "rx reorder 3 psn=+3 op=readresp n=1", args: "read-bw -s 64k -n 4", hit: 1}},
	{refused: "shorten", faultCase: faultCase{rule: "tx truncate 64 psn=+3 n=1", hit: 1, mine: counts{"retransmitted_packets": 1}}},
	{refused: "shorten", faultCase: faultCase{rule: "tx trim psn=+3 n=1"}}, // trims packets of MRC only
}

// ifaceKind is a kind of port, and a way to attach programs.
type ifaceKind struct {
	name string
	lab  netlab.LabOptions
	mode attach.Mode
	// Frames that the rules do not reach, in both directions or as received. The report of the command says so.
	beside, besideRx string
}

var ifaceKinds = []ifaceKind{
	{name: "TAP", lab: onTAP, mode: attach.Auto},
	{name: "TAP, frames", lab: onFrames, mode: attach.Auto},
	{name: "TAP, clsact", lab: onTAP, mode: attach.Clsact},
	{name: "udp", lab: onUDP, mode: attach.Auto},
	{name: "udp, clsact", lab: onUDP, mode: attach.Clsact},
	{name: "packet", lab: netlab.LabOptions{Shared: [2]string{"packet", "packet"}}, mode: attach.Auto, besideRx: "packet sockets"},
	{name: "packet, clsact", lab: netlab.LabOptions{Shared: [2]string{"packet", "packet"}}, mode: attach.Clsact, besideRx: "packet sockets"},
	{name: "xdp", lab: netlab.LabOptions{Shared: [2]string{"xdp", "xdp"}}, mode: attach.Auto, beside: "AF_XDP"},
}

// TestFaultsOnInterface puts the same rules on a NIC and on its interface. Both act on exactly the named packets, with the
// same effect on the counters of the transport. Every transfer survives, and the interface is clean afterwards.
func TestFaultsOnInterface(t *testing.T) {
	lab.Long(t)
	for _, kind := range ifaceKinds {
		t.Run(kind.name, func(t *testing.T) {
			l := newLab(t, kind.lab)
			l.verify("write-bw -n 1") // address resolution completes before the test
			for _, c := range ifaceCases {
				if c.args == "" {
					c.args = "write-bw -s 64k -n 4"
				}
				t.Run("NIC, "+c.rule, func(t *testing.T) { l.at(t).nicFault(c.faultCase) })
				t.Run("interface, "+c.rule, func(t *testing.T) {
					if l := l.at(t); c.refused != "" {
						l.refuses(c.rule, c.refused)
					} else {
						l.ifaceFault(c.faultCase, kind)
					}
				})
			}
			l.nothingLeft()
		})
	}
}

// nothingLeft looks for devices, qdiscs and filters of fault rules and bottlenecks.
func (l *rig) nothingLeft() {
	l.T.Helper()
	text := l.Output(0, "ip", "-o", "link") + l.Output(0, "tc", "qdisc", "show", "dev", vethName)
	for _, bad := range []string{" rf", "clsact", "tbf"} {
		if strings.Contains(text, bad) {
			l.T.Errorf("%q is left over:\n%s", bad, text)
		}
	}
}

// nicFault is the counterpart of ifaceFault on the NIC.
func (l *rig) nicFault(c faultCase) {
	nic := l.Host[0].Device
	l.Run(0, "fault", "add", nic, c.rule)
	defer l.Run(0, "fault", "clear", nic)
	l.affects(c)
	if rules := lab.Query[[]api.FaultRule](l.Lab, 0, "fault", "list", nic); len(rules) != 1 || rules[0].Hit != c.hit {
		l.T.Errorf("rules are %+v, want %d hits", rules, c.hit)
	}
}

// refuses checks that a rule on an interface is a usage error.
func (l *rig) refuses(rule, says string) {
	l.T.Helper()
	p := l.Ctl(0, "fault", "run", vethName, rule)
	if code := p.Exit(lab.Limit); code != 2 || !strings.Contains(p.Diag.String(), says) {
		l.T.Errorf("exit code %d: %s, want %q", code, &p.Diag, says)
	}
}

// affects transfers data, and checks the counters.
func (l *rig) affects(c faultCase) {
	l.T.Helper()
	mine, peer := l.counters(0), l.counters(1)
	l.verify(c.args)
	l.atLeast(0, mine, c.mine)
	l.atLeast(1, peer, c.peer)
}

func (l *rig) ifaceFault(c faultCase, kind ifaceKind) {
	stop := l.faultRun(c.rule, "--attach", string(kind.mode))
	beside := kind.beside
	if strings.HasPrefix(c.rule, "rx") {
		beside += kind.besideRx
	}
	if beside != "" {
		c.mine, c.peer = nil, nil
	}
	l.affects(c)
	r := stop()
	if !strings.Contains(strings.Join(r.Unseen, "\n"), beside) {
		l.T.Errorf("frames that the rules do not reach: %q, want %q", r.Unseen, beside)
	}
	if r.Attached != kind.mode && (kind.mode != attach.Auto || r.Attached == "") {
		l.T.Errorf("attached by %q", r.Attached)
	}
	if kind.beside != "" {
		if r.Rules[0].Matched != 0 || !strings.HasPrefix(r.Rules[0].Note, "0 packets matched: ") {
			l.T.Errorf("rules are %+v", r.Rules)
		}
		return
	}
	if len(r.Rules) != 1 || r.Rules[0].Rule != c.rule || r.Rules[0].Hit != c.hit {
		l.T.Errorf("rules are %+v, want %d hits", r.Rules, c.hit)
	}
	if r.Rx.Unsplit+r.Tx.Unsplit != 0 {
		l.T.Errorf("frames: %+v and %+v", r.Rx, r.Tx)
	}
	long := strings.HasPrefix(kind.name, "TAP") && !kind.lab.NoOffload && strings.Contains(c.args, "64k")
	if supers := r.Rx.Supers + r.Tx.Supers; long && supers == 0 || kind.lab.NoOffload && supers != 0 {
		l.T.Errorf("%d super-frames", supers)
	}
}

// TestRulesAfterCrash reads rules from a file, kills rocectl, and starts it again. The next run removes the
// remaining programs. With clsact these are its rules.
func TestRulesAfterCrash(t *testing.T) {
	lab.Long(t)
	for _, mode := range []attach.Mode{attach.Auto, attach.Clsact} {
		t.Run(string(mode), func(t *testing.T) {
			l := newLab(t, onFrames)
			l.rulesAfterCrash(mode)
			l.nothingLeft()
		})
	}
}

func (l *rig) rulesAfterCrash(mode attach.Mode) {
	by := "--attach=" + string(mode)
	file := filepath.Join(l.Dir, "rules.yaml")
	lab.Must(l.T, os.WriteFile(file, []byte("rules:\n  - tx drop op=send\n  - rx drop op=ack\n"), 0o600))
	start := func() *lab.Proc {
		l.T.Helper()
		p := l.Ctl(0, "fault", "run", vethName, by, "-f", file)
		lab.Eventually(l.T, soon, "rules are in force", func() bool {
			return strings.Contains(p.Diag.String(), "2 rules in force") || !p.Running()
		})
		return p
	}
	p := start()
	for _, args := range [][]string{{"run", vethName, by, "tx drop"}, {"clean", vethName}} {
		l.Ctl(0, append([]string{"fault"}, args...)...).Fails(lab.Limit, "another process")
	}
	p.Kill()
	if mode == attach.Clsact {
		if text := l.Output(0, "tc", "filter", "show", "dev", vethName, "egress"); !strings.Contains(text, "fault_tx") {
			l.T.Errorf("the rules of the killed are not in force:\n%s", text)
		}
		l.Output(0, lab.Program("rocectl"), "fault", "clean", vethName)
		l.nothingLeft()
		start().Kill()
	}
	if got := l.faultRun("tx drop qpn=0xfffffe", by)(); len(got.Rules) != 1 || got.Rules[0].Hit != 0 {
		l.T.Errorf("after a crash: %+v", got)
	}
	l.verify("send-bw -s 64k -n 4")
	hungUp := start()
	hungUp.Signal(syscall.SIGHUP)
	if code := hungUp.Exit(lab.Limit); code != 0 {
		l.T.Errorf("exit code %d without its terminal: %s", code, &hungUp.Diag)
	}
	l.nothingLeft()
	start().Kill()
	if mode == attach.Clsact { // a bottleneck removes the rules, too
		l.bottleneck("rate=1gbit", by)()
		l.verify("send-bw -s 64k -n 4")
	}
	l.Output(0, lab.Program("rocectl"), "fault", "clean", vethName)
	lab.Must(l.T, os.WriteFile(file, []byte("rule: tx drop\n"), 0o600))
	l.Ctl(0, "fault", "run", vethName, "-f", file).Fails(lab.Limit, "rule")
}
