package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"roced/tools/interop/vm"
)

// speed measures our NIC and rxe side by side on the processors of the machine.
type speed struct {
	seconds float64 // of a measurement, of the machine's time
}

// measurements is how many rxespeed makes.
const measurements = 6

// setup is a pair of our NICs in the machine, in namespaces s1 and s2 that a veth
// pair joins, and one daemon; %[1]d is the side.
type setup struct {
	name, script, nic string
}

var setups = []setup{
	{"roced on TAP", `ip link add br0 mtu 4200 type bridge; ip link set v0 master br0; ip link set br0 up`,
		"addresses: [198.18.21.%[1]d/24], port: {type: tap, netns: /run/netns/s%[1]d, device: tap0, bridge: br0}"},
	{"roced on veth", `ip addr add 198.18.21.%[1]d/24 dev v0`, "port: {type: packet, netns: /run/netns/s%[1]d, interface: v0}"},
}

// start makes the network and starts the daemon.
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
	if _, err := m.Shell(network, patience); err != nil {
		return nil, err
	}
	daemon, err := m.Begin(fmt.Sprintf("echo '%s' >/tmp/speed.yaml; exec roced run --config /tmp/speed.yaml", config))
	if err != nil {
		return nil, err
	}
	return daemon, daemon.Until("[ -S /tmp/speed/roced.sock ]", patience)
}

// stop ends the daemon and removes the network.
func (s setup) stop(m *vm.VM, daemon *vm.Job) error {
	var err error
	if daemon != nil {
		_, err = daemon.End()
	}
	_, err2 := m.Shell("ip netns del s1; ip netns del s2; rm -rf /tmp/speed", patience)
	return errors.Join(err, err2)
}

const speedIntro = "One program inside a machine with one processor, on which every instruction takes a nanosecond of the machine's time, so\n" +
	"that nothing else on the host has any influence. It has a device on either side, verbs through the stock libibverbs:\n" +
	"rxe's on the ends of a veth pair; ours, by `rocectl exec`, in two namespaces joined by TAP - bridge - veth - bridge - TAP,\n" +
	"and on the ends of a veth pair themselves. 16 requests outstanding, path MTU 4096; latency is half a round trip. Ratios:\n" +
	"above 1 we are better. rxe works in the kernel, in the context of the program that sends; a message of ours passes from\n" +
	"the program to the daemon and back, and on one processor each step waits for the scheduler."

// run measures everything in a machine of its own.
func (s speed) run(l *lab, r *report) {
	m, err := s.machine(l)
	if err == nil {
		s.compare(m, r)
		err = m.Close()
	}
	if err != nil {
		r.failed("speed", err)
	}
}

// machine starts the machine and makes rxe's devices.
func (s speed) machine(l *lab) (*vm.VM, error) {
	dir := l.path("speed")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	m, err := vm.Start(vm.Options{Image: l.image, Dir: dir, Counted: true}, bootLimit)
	if err != nil {
		return nil, err
	}
	if _, err := m.Shell(pairScript, patience); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// compare makes the table.
func (s speed) compare(m *vm.VM, r *report) {
	names, rxe, err := s.contender(m, "rxespeed rxe10 rxe11")
	if err != nil {
		r.failed("speed: rxe", err)
		return
	}
	t := table{Title: "Side by side on the emulated processors", Intro: speedIntro, Head: []string{"measurement", "rxe on veth"}}
	for i, name := range names {
		t.Rows = append(t.Rows, []string{name, fmt.Sprintf("%.1f", rxe[i])})
	}
	for _, u := range setups {
		daemon, err := u.start(m)
		var ours []float64
		if err == nil {
			_, ours, err = s.contender(m, "rocectl --run-dir /tmp/speed exec -- rxespeed rxe_s1 rxe_s2")
		}
		if err = errors.Join(err, u.stop(m, daemon)); err != nil {
			r.failed("speed: "+u.name, err)
			continue
		}
		t.Head = append(t.Head, u.name, "ratio")
		for i, name := range names {
			t.Rows[i] = append(t.Rows[i], fmt.Sprintf("%.1f", ours[i]), fmt.Sprintf("%.2f", ratio(name, ours[i], rxe[i])))
		}
	}
	r.begin(t)
	for _, row := range t.Rows {
		fmt.Fprintln(r.log, strings.Join(row, " | "))
	}
}

// ratio compares our value with rxe's: of latencies the smaller one is better.
func ratio(name string, ours, rxe float64) float64 {
	if strings.Contains(name, "latency") {
		return rxe / ours
	}
	return ours / rxe
}

// contender runs rxespeed and returns the names of its measurements and the values.
func (s speed) contender(m *vm.VM, command string) (names []string, values []float64, err error) {
	job, err := m.Begin(fmt.Sprintf("exec %s %g", command, s.seconds))
	if err != nil {
		return nil, nil, err
	}
	_, err = job.Wait(countedLimit)
	out, err2 := job.End()
	if err := errors.Join(err, err2); err != nil {
		return nil, nil, err
	}
	return parseSpeed(out)
}

// countedLimit is what a run may take: a machine whose time is counted is slow while
// it has something to do.
const countedLimit = 120 * time.Second

// parseSpeed reads what rxespeed prints.
func parseSpeed(out string) (names []string, values []float64, err error) {
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || !(v > 0 && v < 1e9) { // and no NaN
			return nil, nil, fmt.Errorf("rxespeed printed %q: %w", line, err)
		}
		names, values = append(names, name), append(values, v)
	}
	if len(names) != measurements {
		return nil, nil, fmt.Errorf("rxespeed printed %d lines, want %d", len(names), measurements)
	}
	return names, values, nil
}
