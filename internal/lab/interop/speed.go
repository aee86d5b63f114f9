package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab/vm"
)

// speed measures our NIC and rxe side by side on the processors of the machine.
type speed struct {
	seconds float64 // of a measurement, in the machine's time
	cases   []speedCase
	cpu     string // QEMU's model
}

// speedMachine is a machine for measurements.
type speedMachine struct {
	part, title, intro string
	cpus               int
	counted            bool
	nic                string // additional configuration of our NICs
}

// speedCPU is the default processor model. With ERMS and FSRM, kernel and programs copy by REP MOVSB. QEMU emulates it
// byte by byte, slower than any processor with these features.
const speedCPU = "max,-erms,-fsrm"

// speedCase is a case that all contenders run.
type speedCase struct {
	mtu, qps int
	netem    string
}

// String describes a case in a table cell.
func (c speedCase) String() string {
	text := fmt.Sprintf("MTU %d, %d QP", c.mtu, c.qps)
	if c.netem != "" {
		text += ", " + c.netem
	}
	return text
}

// timeout is the local acknowledgement timeout: 67 ms on a network with losses, and a second on others. 16 queue pairs
// have 16 MiB in flight, which take an emulated machine 0.4 s.
func (c speedCase) timeout() int {
	if c.netem != "" {
		return 14
	}
	return 18
}

// networks returns the networks for speed whose names contain a word.
func networks(word string) []speedCase {
	all := []speedCase{{4096, 1, ""}, {1024, 1, ""}, {4096, 16, ""}, {4096, 1, "loss 1%"}}
	return slices.DeleteFunc(all, func(c speedCase) bool { return !strings.Contains(c.String(), word) })
}

// speedParts returns the parts, one for each machine, or a sample of them, on the networks whose names contain a word.
// It returns none if no name does.
func speedParts(short bool, cpu, network string) (list []part) {
	s := speed{0.3, networks(network), cpu}
	machines := speedMachines
	if len(s.cases) == 0 {
		return nil
	}
	if short {
		s.seconds, s.cases, machines = 0.1, s.cases[:1], machines[:1]
	}
	for _, k := range machines {
		list = append(list, part{k.part, func(l *lab, r *report) { s.run(l, r, k) }})
	}
	return list
}

var speedMachines = []speedMachine{
	{"speed-1", "Side by side on one emulated processor", "The machine has one processor, on which every instruction takes a nanosecond of the machine's time, so that nothing\n" +
		"else on the host has any influence.", 1, true, ""},
	{"speed-2", "Side by side on two emulated processors", "The machine has two processors and the host's time: only the ratios mean anything, and each varies with the host's load.\n" +
		"Our NICs have `poll: 1ms`: a round trip takes as long here, and the default, 50 us, is meant for processors that take 20 us.", 2, false, "poll: 1ms, "},
}

// measurements is the number of measurements that rxespeed makes.
const measurements = 7

// setup is a pair of our NICs in the machine and one daemon. The NICs are in namespaces s1 and s2, which a veth pair
// connects. %[1]d is the side.
type setup struct {
	name, script, nic string
	rival             string // the previous setup, if the two are compared
}

// onVeth has the NICs directly on the ends of the veth pair.
var onVeth = setup{name: "roced on veth", script: `ip addr add 198.18.21.%[1]d/24 dev v0`,
	nic: "port: {type: packet, netns: /run/netns/s%[1]d, interface: v0}"}

var setups = []setup{
	{name: "roced on TAP", script: `ip link add br0 mtu 4200 type bridge; ip link set v0 master br0; ip link set br0 up`,
		nic: "addresses: [198.18.21.%[1]d/24], port: {type: tap, netns: /run/netns/s%[1]d, device: tap0, bridge: br0}"},
	onVeth,
	{name: "roced on UDP sockets", script: onVeth.script, nic: "port: {type: udp, netns: /run/netns/s%[1]d, interface: v0}", rival: "AF_PACKET"},
	{name: "roced by AF_XDP", script: onVeth.script, nic: "port: {type: xdp, netns: /run/netns/s%[1]d, interface: v0}"},
	{name: "roced over a switch", script: onVeth.script, nic: "switch: memory, port: {type: udp, netns: /run/netns/s%[1]d, interface: v0}"},
}

// start creates the network and starts the daemon.
func (s setup) start(m *vm.VM) (*vm.Job, error) {
	network, config := "set -e; ", "run_dir: /tmp/speed\nnics:\n"
	for side := 1; side <= 2; side++ {
		network += fmt.Sprintf("ip netns add s%d; ", side)
		config += fmt.Sprintf("  - {name: rxe_s%[1]d, "+s.nic+"}\n", side)
	}
	network += "ip link add v0 mtu 4200 netns s1 type veth peer name v0 mtu 4200 netns s2\n"
	for side := 1; side <= 2; side++ {
		network += fmt.Sprintf("ip netns exec s%[1]d /bin/sh -ec 'ip link set lo up; ip link set v0 up; "+s.script+"'\n", side)
	}
	if _, err := m.Shell(network, commandLimit); err != nil {
		return nil, err
	}
	daemon, err := m.Begin(fmt.Sprintf("echo '%s' >/tmp/speed.yaml; exec roced run --config /tmp/speed.yaml", config))
	if err != nil {
		return nil, err
	}
	return daemon, daemon.Until("[ -S /tmp/speed/roced.sock ]", commandLimit)
}

// stop ends the daemon and removes the network.
func (s setup) stop(m *vm.VM, daemon *vm.Job) error {
	var err error
	if daemon != nil {
		_, err = daemon.End()
	}
	_, err2 := m.Shell("ip netns del s1; ip netns del s2; rm -rf /tmp/speed", commandLimit)
	return errors.Join(err, err2)
}

const speedIntro = " One program has a device on either side, verbs through the stock libibverbs:\n" +
	"rxe's on the ends of a veth pair; ours, by `rocectl exec`, in two namespaces joined by TAP - bridge - veth - bridge - TAP,\n" +
	"and on the ends of a veth pair themselves, by AF_PACKET, by UDP sockets and by AF_XDP; and over a switch of the daemon, where netem does not act. 16 requests outstanding a queue pair; latency is half a round trip. Ratios:\n" +
	"above 1 we are better. rxe works in the kernel, in the context of the program that sends; a message of ours passes from\n" +
	"the program to the daemon and back. netem is on both ends of the veth pair."

// run measures all cases in a machine.
func (s speed) run(l *lab, r *report, k speedMachine) {
	m, err := s.machine(l, k)
	if err == nil {
		s.compare(m, k, r)
		err = m.Close()
	}
	if err != nil {
		r.failed(k.title, err)
	}
}

// machine starts a machine and creates rxe's devices.
func (s speed) machine(l *lab, k speedMachine) (*vm.VM, error) {
	dir := l.path(k.part)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	m, err := vm.Start(vm.Options{Image: l.image, Dir: dir, CPUs: k.cpus, Counted: k.counted, CPU: s.cpu}, bootLimit)
	if err != nil {
		return nil, err
	}
	if _, err := m.Shell(pairScript, commandLimit); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// compare makes the table of a machine: a row for each measurement of each case. If the time is the host's, rxe is
// measured again next to each of our setups, so that both meet the same load.
func (s speed) compare(m *vm.VM, k speedMachine, r *report) {
	t := table{Title: k.title, Intro: fmt.Sprintf("%s QEMU's model of processor is `%s`.%s", k.intro, s.cpu, speedIntro), Head: []string{"network", "measurement"}}
	var rxe, before []reading
	for _, u := range setups {
		u.nic = k.nic + u.nic
		again, ours, err := s.beside(m, u, rxe == nil || !k.counted)
		if err != nil {
			r.failed(k.title+": "+u.name, err)
			break
		}
		if again != nil {
			rxe = again
			if t.Rows == nil {
				t.Rows = s.rows(rxe)
			}
			t.column("rxe on veth", func(i int) string { return rxe[i].String() })
		}
		t.column(u.name, func(i int) string { return ours[i].String() })
		t.Intro += lacks(u.name, ours)
		t.column("ratio", func(i int) string { return ours[i].ratio(rxe[i]) })
		if u.rival != "" && k.counted {
			t.column("against "+u.rival, func(i int) string { return ours[i].ratio(before[i]) })
		}
		before = ours
	}
	r.begin(t)
	for _, row := range t.Rows {
		fmt.Fprintln(r.log, strings.Join(row, " | "))
	}
}

// lacks returns a sentence for each reason why a setup has no values.
func lacks(name string, list []reading) (text string) {
	for _, v := range list {
		if sentence := fmt.Sprintf("\nNot supported: %s, %s.", name, v.lack); v.lack != "" && !strings.Contains(text, sentence) {
			text += sentence
		}
	}
	return text
}

// rows starts a row for each reading of all cases.
func (s speed) rows(list []reading) (rows [][]string) {
	for i, v := range list {
		rows = append(rows, []string{s.cases[i/measurements].String(), v.name})
	}
	return rows
}

// column adds a cell to each row.
func (t *table) column(head string, cell func(row int) string) {
	t.Head = append(t.Head, head)
	for i := range t.Rows {
		t.Rows[i] = append(t.Rows[i], cell(i))
	}
}

// beside measures all cases on one pair of our NICs and, if requested, each on rxe just before.
func (s speed) beside(m *vm.VM, u setup, withRXE bool) (rxe, ours []reading, err error) {
	daemon, err := u.start(m)
	for _, c := range s.cases {
		var v []reading
		if err == nil && withRXE {
			v, err = s.contender(m, c, "rxespeed rxe10 rxe11", pairDevices)
			rxe = append(rxe, v...)
		}
		if err == nil {
			v, err = s.own(m, c)
			ours = append(ours, v...)
		}
	}
	return rxe, ours, errors.Join(err, u.stop(m, daemon))
}

// own measures a case on our NICs, unless their links have no such path MTU.
func (s speed) own(m *vm.VM, c speedCase) ([]reading, error) {
	out, err := m.Shell("rocectl --run-dir /tmp/speed link --json", commandLimit)
	if err != nil {
		return nil, err
	}
	lack, err := c.lack(out)
	if err != nil || lack != "" {
		return slices.Repeat([]reading{{lack: lack}}, measurements), err
	}
	return s.contender(m, c, "rocectl --run-dir /tmp/speed exec -- rxespeed rxe_s1 rxe_s2", setupDevices)
}

// lack returns why one of the NICs that rocectl has listed has no such path MTU, empty if all have it.
func (c speedCase) lack(list string) (string, error) {
	var nics []api.Link
	if err := json.Unmarshal([]byte(list), &nics); err != nil {
		return "", fmt.Errorf("rocectl link: %w", err)
	}
	for _, n := range nics {
		if n.ActiveMTU < c.mtu {
			return fmt.Sprintf("path MTU %d: the largest of the %s port is %d (%s)", c.mtu, n.Port, n.ActiveMTU, n.Mode), nil
		}
	}
	return "", nil
}

// reading is a value from rxespeed.
type reading struct {
	name   string
	value  float64
	failed bool   // a message exhausted its retries
	lack   string // why there is no value: what the link cannot do
}

// String returns the value for a cell.
func (v reading) String() string {
	switch {
	case v.failed:
		return "failed"
	case v.lack != "":
		return "not supported"
	}
	return fmt.Sprintf("%.1f", v.value)
}

// ratio compares our value with rxe's. A smaller latency is better.
func (v reading) ratio(rxe reading) string {
	switch {
	case v.failed || rxe.failed || v.lack != "":
		return "-"
	case strings.Contains(v.name, "latency"):
		return fmt.Sprintf("%.2f", rxe.value/v.value)
	}
	return fmt.Sprintf("%.2f", v.value/rxe.value)
}

// contender runs rxespeed on its network and returns its measurements. If the case says so, tc(8) impairs the network
// meanwhile. It fails only if rxespeed did not run.
func (s speed) contender(m *vm.VM, c speedCase, command string, devices []string) ([]reading, error) {
	if c.netem != "" {
		if _, err := m.Shell(netemScript(c.netem, devices...), commandLimit); err != nil {
			return nil, err
		}
		defer m.Shell(netemScript("", devices...), commandLimit)
	}
	job, err := m.Begin(fmt.Sprintf("exec %s %g %d %d %d", command, s.seconds, c.mtu, c.qps, c.timeout()))
	if err != nil {
		return nil, err
	}
	_, err = job.Wait(countedLimit)
	out, err2 := job.End()
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	return parseSpeed(out)
}

// countedLimit is the time limit of a run: a machine with counted time is slow while it is busy.
const countedLimit = 300 * time.Second

// parseSpeed parses the output of rxespeed. The reasons of failed measurements are between the values.
func parseSpeed(out string) (list []reading, err error) {
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if name == "completion" {
			continue
		}
		v := reading{name: name, failed: value == "failed"}
		if !v.failed {
			v.value, err = strconv.ParseFloat(value, 64)
			if err != nil || !(v.value > 0 && v.value < 1e9) { // this excludes NaN, too
				return nil, fmt.Errorf("rxespeed printed %q: %w", line, err)
			}
		}
		list = append(list, v)
	}
	if len(list) != measurements {
		return nil, fmt.Errorf("rxespeed printed %d lines, want %d", len(list), measurements)
	}
	return list, nil
}
