package programs

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// rung is a program that runs on both hosts, as server and as client.
type rung struct {
	group  string // heading in the table
	name   string // program and options in the table
	common []string
	// server and client are the additional arguments of one side.
	server, client []string
	// ready waits until the server accepts connections.
	ready func(l *lab.Lab, server *lab.Proc) error
	// check checks the output of the programs; nil if the exit codes suffice.
	check func(server, client string) error
	// refused, if not empty, is the program's output when the device lacks a required feature.
	refused string
	// endless is set if the server does not end on its own.
	endless bool
	// race, if not empty, is a pattern of the output of a client that lost a race with its server or within itself, a bug
	// of the program. Then both run again. A busy machine can lose several races in a row.
	race string
}

// runAll runs rungs one after another, because two programs and two daemons load a small machine.
func runAll(t *testing.T, l *lab.Lab, rungs []rung) {
	for _, r := range rungs {
		t.Run(strings.ReplaceAll(r.name, " ", "_"), func(t *testing.T) {
			result := row{group: r.group, name: r.name, outcome: pass}
			if err := r.run(l.At(t)); err != nil {
				result.outcome, result.why = fail, err.Error()
			} else if r.refused != "" {
				result.outcome, result.why = skip, r.refused
			}
			record(t, result)
		})
	}
}

func (r *rung) run(l *lab.Lab) (err error) {
	lost := regexp.MustCompile(r.race)
	for range 20 {
		if err = r.once(l); err == nil || r.race == "" || !lost.MatchString(err.Error()) {
			break
		}
	}
	return err
}

func (r *rung) once(l *lab.Lab) error {
	server := l.Exec(serverHost, append(append([]string{}, r.common...), r.server...)...)
	if r.refused != "" {
		if err := server.Wait(lab.Limit); err == nil || !strings.Contains(server.Said(), r.refused) {
			return fmt.Errorf("is not refused with %q: %v\n%s", r.refused, err, server.Said())
		}
		return nil
	}
	if err := r.ready(l, server); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	client := l.Exec(clientHost, append(append([]string{}, r.common...), r.client...)...)
	if err := client.Wait(lab.Limit); err != nil {
		ids := l.Run(serverHost, "res", "show", "cm_id")
		err = fmt.Errorf("client: %w\nserver: %s\n%s\n%s", err, ids, server.Threads(), server.Said())
		server.Kill()
		return err
	}
	if r.endless {
		server.Kill()
	} else if err := server.Wait(lab.Limit); err != nil {
		return fmt.Errorf("server: %w\nclient: %s", err, client.Said())
	}
	if r.check == nil {
		return nil
	}
	if err := r.check(server.Said(), client.Said()); err != nil {
		return fmt.Errorf("%w\nserver: %s\nclient: %s", err, server.Said(), client.Said())
	}
	return nil
}

// lastPort is the TCP port assigned last. Each program gets its own port, so that none is in TIME_WAIT.
var lastPort = 18515

// outOfBand completes a rung of programs that exchange addresses over TCP and select the device by name.
func outOfBand(l *lab.Lab, r rung, args ...string) rung {
	lastPort++
	port := lastPort
	r.common = append(append([]string{}, args...), "-p", strconv.Itoa(port))
	r.server = []string{"-d", l.Host[serverHost].Device}
	addr := "127.0.0.1" // both programs are in this namespace
	if l.Bed != nil {
		addr = netlab.HostAddr(serverHost)
	}
	r.client = []string{"-d", l.Host[clientHost].Device, addr}
	r.ready = func(_ *lab.Lab, server *lab.Proc) error { return server.Listens(port) }
	return r
}

// gidIPv4 and gidIPv6 are the indices of a NIC's GIDs.
const (
	gidIPv4 = "0"
	gidIPv6 = "1"
)

// pingpongs are the options of the examples of libibverbs, besides the number of iterations. -c checks every byte. Without -g
// the peer's address is its LID.
var pingpongs = []struct {
	program string
	options []string
	refused map[string]string
}{
	{"ibv_rc_pingpong", []string{"-c", "-c -e", "-c -N", "-c -s 100000 -m 4096", "-c -g " + gidIPv4, "-c -g " + gidIPv6, "-t", "-o", "-j"}, map[string]string{
		"-o": "The device isn't ODP capable", "-j": "Device doesn't support dm allocation"}},
	{"ibv_uc_pingpong", []string{"-c", "-c -e"}, nil},
	{"ibv_ud_pingpong", []string{"-c", "-c -e", "-c -g " + gidIPv4, "-c -g " + gidIPv6}, nil},
	{"ibv_srq_pingpong", []string{"-c", "-c -e", "-c -q 4"}, nil},
	{"ibv_xsrq_pingpong", []string{""}, map[string]string{"": "Couldn't Open the XRC Domain"}},
}

// lacking lists features that the rdma-core of a release lacks, and the output of programs that need them.
var lacking = map[string]map[string]string{
	// Its rxe provider has no extended queue pairs and completion queues.
	"11": {"ibv_rc_pingpong -c -N": "Couldn't create QP", "ibv_rc_pingpong -t": "Couldn't create CQ"},
}

func TestPingpong(t *testing.T) {
	lab.Need(t, "ibv_rc_pingpong")
	onBoth(t, pingpong)
}

func pingpong(t *testing.T, l *lab.Lab) {
	var rungs []rung
	for _, p := range pingpongs {
		for _, o := range p.options {
			name := strings.TrimSpace(p.program + " " + o)
			args := strings.Fields(name)
			if p.program != "ibv_xsrq_pingpong" {
				args = append(args, "-n", "300")
			}
			rungs = append(rungs, outOfBand(l, rung{group: "libibverbs", name: name, refused: cmp.Or(p.refused[o], lacking[release()][name])}, args...))
		}
	}
	runAll(t, l, rungs)
	l.NoClients()
}

// perftests are the programs of perftest: the measurement and its transport services. Each size costs a quarter of a second,
// in which perftest measures the processor, so few run with all sizes.
var perftests = []struct {
	operation, measure string
	services           []string
	options            []string
}{
	{"write", "bw", []string{"RC", "UC"}, []string{"", "-b", "-q 16", "-I 64 -s 64", "-l 8", "-s 1000001 -m 256"}},
	{"write", "bw", []string{"RC"}, []string{"-a"}},
	{"write", "lat", []string{"RC", "UC"}, []string{"", "-I 64 -s 64", "-s 9999"}},
	{"read", "bw", []string{"RC"}, []string{"", "-b", "-q 16", "-e", "-a", "-l 8", "-s 1000001 -m 256"}},
	{"read", "lat", []string{"RC"}, []string{"", "-e", "-s 9999"}},
	{"send", "bw", []string{"RC", "UC", "UD"}, []string{"", "-b", "-q 16", "-I 64 -s 64", "-e", "-b -e", "-l 8"}},
	{"send", "bw", []string{"RC"}, []string{"-a", "-s 1000001 -m 256", "--use-srq -q 4", "--recv_post_list=8 -r 512", "--ipv6 -x " + gidIPv6}},
	{"send", "bw", []string{"UD"}, []string{"-a"}},
	{"send", "lat", []string{"RC", "UC", "UD"}, []string{"", "-I 64 -s 64", "-e", "-s 999"}},
	{"atomic", "bw", []string{"RC"}, []string{"", "-b", "-q 16", "-e", "-A CMP_AND_SWAP"}},
	{"atomic", "lat", []string{"RC"}, []string{"", "-e", "-A CMP_AND_SWAP"}},
}

// iterations limits the duration; runs with one size have more iterations.
func iterations(options string) string {
	switch {
	case strings.Contains(options, "-a"), strings.Contains(options, "-s 1000001"):
		return "20"
	case strings.Contains(options, "-q"):
		return "40"
	}
	return "400"
}

func TestPerftest(t *testing.T) {
	lab.Need(t, "ib_write_bw")
	onBoth(t, allPerftests)
}

// allPerftests runs the programs with all their options, on a switch with the first ones.
func allPerftests(t *testing.T, l *lab.Lab) {
	var rungs []rung
	for _, p := range perftests {
		for _, service := range p.services {
			for _, o := range p.options {
				if l.Bed == nil && o != p.options[0] {
					continue
				}
				name := strings.TrimSpace(fmt.Sprintf("ib_%s_%s -c %s %s", p.operation, p.measure, service, o))
				rungs = append(rungs, perftest(l, name, o))
			}
		}
	}
	runAll(t, l, rungs)
	l.NoClients()
}

// perftest makes a rung of a test.
func perftest(l *lab.Lab, name, options string) rung {
	args := append(strings.Fields(name), "-F", "-n", iterations(options))
	if !strings.Contains(options, "-x") {
		args = append(args, "-x", gidIPv4)
	}
	return outOfBand(l, rung{group: "perftest", name: name, check: measured}, args...)
}

// figures matches a line of perftest's results: size, iterations, figures. The figures are infinite if perftest was
// preempted while it measured the processor's clock ("Correlation coefficient").
var figures = regexp.MustCompile(`(?m)^ *\d+ +\d+( +([0-9.]+|inf))+`)

// measured checks that a client has measured something.
func measured(_, client string) error {
	if !figures.MatchString(client) {
		return fmt.Errorf("nothing was measured")
	}
	return nil
}
