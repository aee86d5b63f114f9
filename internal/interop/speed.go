package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"roced/internal/interop/vm"
)

// speed measures our NIC and rxe side by side on the processors of the machine.
type speed struct {
	seconds int // of a measurement
	rounds  int // the best counts: what else the processors do only makes values worse
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

const speedIntro = "One program inside the machine that has a device on either side, verbs through the stock libibverbs: rxe's on the ends\n" +
	"of a veth pair; ours, by `rocectl exec`, in two namespaces joined by TAP - bridge - veth - bridge - TAP, and on the ends\n" +
	"of a veth pair themselves. 16 requests outstanding, path MTU 4096; latency is half a round trip. Ratios: above 1 we are\n" +
	"better. A message of ours is handed from the program to the daemon, and on the other side back: switches between\n" +
	"processes, each of which costs the emulated processor about 100 us (natively 3), because it forgets its translated\n" +
	"addresses. rxe does everything in the kernel, in the context of the program that sends."

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

// contender runs rxespeed some times and returns the names of its measurements and
// the best values.
func (s speed) contender(m *vm.VM, command string) (names []string, best []float64, err error) {
	for range s.rounds {
		job, err := m.Begin(fmt.Sprintf("exec %s %d", command, s.seconds))
		if err != nil {
			return nil, nil, err
		}
		_, err = job.Wait(time.Duration(measurements*s.seconds)*time.Second + programLimit)
		out, err2 := job.End()
		if err := errors.Join(err, err2); err != nil {
			return nil, nil, err
		}
		var values []float64
		if names, values, err = parseSpeed(out); err != nil {
			return nil, nil, err
		}
		best = better(names, best, values)
	}
	return names, best, nil
}

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

// better takes the better of each pair of values; best may be nil.
func better(names []string, best, values []float64) []float64 {
	for i, name := range names {
		if best != nil && ratio(name, values[i], best[i]) < 1 {
			values[i] = best[i]
		}
	}
	return values
}
