package programs

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// serverIPv6 is the IPv6 address of the server's NIC.
const serverIPv6 = "fd00::2"

// cmListens waits until a program listens with rdma_cm. The kernel does not show that.
func cmListens(l *lab.Lab, p *lab.Proc) error {
	return l.ListensCM(serverHost, p, func(r api.Resource) bool { return int(r.PID) == p.PID() })
}

// TestPerftestCM runs perftest with queue pairs that rdma_cm connects.
func TestPerftestCM(t *testing.T) {
	lab.Need(t, "ib_write_bw")
	l := newLab(t, "")
	var rungs []rung
	add := func(operations, measures, services, options []string) {
		for _, op := range operations {
			for _, m := range measures {
				for _, s := range services {
					for _, o := range options {
						rungs = append(rungs, perftestCM(l, fmt.Sprintf("ib_%s_%s -R -c %s %s", op, m, s, o), o))
					}
				}
			}
		}
	}
	rc, both := []string{"RC"}, []string{"bw", "lat"}
	add([]string{"write", "read", "send", "atomic"}, both, rc, []string{""})
	add([]string{"send"}, both, []string{"UD"}, []string{""})
	add([]string{"write", "send"}, []string{"bw"}, rc, []string{"-q 16", "-b"})
	add([]string{"send"}, []string{"lat"}, rc, []string{"-e"})
	runAll(t, l, rungs)
	l.NoClients()
}

func perftestCM(l *lab.Lab, name, options string) rung {
	r := perftest(l, strings.TrimSpace(name), options)
	r.ready = cmListens
	// The client connects twice, first to exchange parameters, and does not wait until the server listens again. The
	// connection then fails with reason 8 (invalid service ID), on any device.
	r.race = "RDMA_CM_EVENT_REJECTED; error: 8"
	if strings.Contains(name, "-c UD") {
		r.race = "RDMA_CM_EVENT_UNREACHABLE; error: 1" // the same with SIDR
	}
	r.client = []string{"-d", l.Host[clientHost].Device, l.Host[serverHost].Addr}
	return r
}

// cmPrograms are the programs of librdmacm: the names of server and client, their common arguments and those of each side
// (%s is the server's address). says is the required output of a client that always exits with 0.
var cmPrograms = []struct {
	server, client         string
	both                   string
	onServer, onClient     string
	ipv6                   bool
	serverSays, clientSays string
}{
	{"rping", "rping", "-C 20 -V", "-s -a %s", "-c -a %s", false, "", ""},
	{"rping", "rping", "-C 20 -V -S 60000", "-s -a %s", "-c -a %s", true, "", ""},
	{"rping", "rping", "-C 20 -V -q", "-s -a %s", "-c -a %s", false, "", ""},
	{"ucmatose", "ucmatose", "", "", "-s %s", false, "test complete\nreturn status 0", "test complete\nreturn status 0"},
	{"ucmatose", "ucmatose", "-f ip", "-b %s", "-s %s", true, "return status 0", "return status 0"},
	{"ucmatose", "ucmatose", "-c 10 -C 20 -S 4000", "", "-s %s", false, "return status 0", "return status 0"},
	{"ucmatose", "ucmatose", "-m -t 32", "", "-s %s", false, "return status 0", "return status 0"},
	{"udaddy", "udaddy", "", "", "-s %s", false, "test complete\nreturn status 0", "test complete\nreturn status 0"},
	{"udaddy", "udaddy", "-f ip", "-b %s", "-s %s", true, "return status 0", "return status 0"},
	{"udaddy", "udaddy", "-c 10 -C 20 -S 1000", "", "-s %s", false, "return status 0", "return status 0"},
	{"rdma_server", "rdma_client", "", "", "-s %s", false, "rdma_server: end 0", "rdma_client: end 0"},
	{"rdma_xserver", "rdma_xclient", "-c r", "", "-s %s", false, "end 0", "end 0"},
	{"rstream", "rstream", "-S 65536 -I 20 -C 10 -T v", "-b %s", "-s %s", false, "", ""},
	// Without -T a: that client reports an error when the peer disconnects right after the last message.
	{"rstream", "rstream", "-S 4096 -I 20 -C 10 -T n -T v", "", "-s %s", false, "", ""},
	{"rstream", "rstream", "-S all -I 5 -C 5 -f ip", "-b %s", "-s %s", true, "", ""},
	{"riostream", "riostream", "-S 65536 -I 20 -C 10 -T v", "-b %s", "-s %s", false, "", ""},
}

// lateRping is a race in rping since release 65. After poll() reports an event, a thread calls rdma_get_cm_event(). If the
// main thread has destroyed the identifier and its events meanwhile, the thread blocks; if it has closed the event channel,
// the call fails. A kernel with RDMA behaves the same.
var lateRping = map[string]string{"rping": "hangs for|" + lab.LateRping}

// connected are the programs of cmPrograms with reliable connections.
var connected = []string{"rping", "ucmatose", "rdma_server", "rstream", "riostream"}

// cmRungs returns the programs of librdmacm: all, or those with reliable connections over IPv4.
func cmRungs(l *lab.Lab, all bool) (rungs []rung) {
	for _, p := range cmPrograms {
		if !all && (p.ipv6 || !slices.Contains(connected, p.server)) {
			continue
		}
		addr, name := l.Host[serverHost].Addr, p.server
		if p.ipv6 {
			addr = serverIPv6
		}
		if p.client != p.server {
			name += ", " + p.client
		}
		fill := func(program, own string) []string {
			return append([]string{program}, strings.Fields(p.both+" "+strings.ReplaceAll(own, "%s", addr))...)
		}
		rungs = append(rungs, rung{group: "librdmacm", name: strings.TrimSpace(name + " " + p.both + ipVersion(p.ipv6)),
			server: fill(p.server, p.onServer), client: fill(p.client, p.onClient), ready: cmListens, race: lateRping[p.client],
			check: says(p.serverSays, p.clientSays)})
	}
	return rungs
}

// TestConnectionManager runs the programs of librdmacm.
func TestConnectionManager(t *testing.T) {
	lab.Need(t, "rping")
	l := newLab(t, "")
	rungs := cmRungs(l, true)
	for _, group := range []string{"239.10.0.1", "ff15::99"} {
		const done = "test complete\nreturn status 0"
		rungs = append(rungs, rung{group: "librdmacm", name: "mckey -m " + group, common: []string{"mckey", "-m", group},
			client: []string{"-s"}, ready: isAttached, check: says(done, done)})
	}
	runAll(t, l, rungs)
	l.NoClients()
}

// TestTimes runs cmtime on ports that share the kernel's address, because since release 56 its two sides also
// synchronise over TCP.
func TestTimes(t *testing.T) {
	lab.Need(t, "cmtime")
	l := lab.New(t, netlab.LabOptions{Shared: [2]string{"packet", "packet"}})
	addr := l.Host[serverHost].Addr
	cmtime := rung{group: "librdmacm", name: "cmtime -c 20", common: []string{"cmtime", "-c", "20"},
		client: []string{"-s", addr}, ready: cmListens,
		// It opens its TCP port after the other one; up to release 44 it has none and does not end.
		endless: true, race: "Connection refused"}
	if release() == "sid" { // since release 60 both sides need an option that selects the first sender
		cmtime.common = append(cmtime.common, "-C", addr)
		cmtime.server, cmtime.client = []string{"-L", "-b", addr}, []string{"-b", l.Host[clientHost].Addr}
		cmtime.ready = func(_ *lab.Lab, server *lab.Proc) error { return server.Listens(7471) }
	}
	runAll(t, l, []rung{cmtime})
	l.NoClients()
}

// isAttached waits until a queue pair of a program is in a multicast group.
func isAttached(l *lab.Lab, p *lab.Proc) error {
	return p.Ready("it is attached", func() (bool, error) {
		all := lab.Query[[]api.Resource](l, serverHost, "res", "show", "qp")
		return slices.ContainsFunc(all, func(r api.Resource) bool { return len(r.QP.Groups) > 0 }), nil
	})
}

func ipVersion(six bool) string {
	if six {
		return " (IPv6)"
	}
	return ""
}

// says checks the output of successful programs.
func says(server, client string) func(server, client string) error {
	return func(s, c string) error {
		if !strings.Contains(s, server) || !strings.Contains(c, client) {
			return fmt.Errorf("server does not say %q, or client not %q", server, client)
		}
		return nil
	}
}

// TestConnectionManagerOnSwitch runs clients with a source address between the NICs of a switch. Without one, a client
// uses the NIC of the server's address.
func TestConnectionManagerOnSwitch(t *testing.T) {
	lab.Need(t, "rping")
	l := lab.New(t, netlab.LabOptions{Unix: true, Switch: true})
	from, to := l.Host[clientHost].Addr, l.Host[serverHost].Addr
	before := sentPackets(l)
	done := says("return status 0", "return status 0")
	for _, r := range []rung{
		{name: "rping -C 20 -V -I", server: []string{"rping", "-s", "-C", "20", "-a", to},
			client: []string{"rping", "-c", "-C", "20", "-V", "-I", from, "-a", to}, race: lateRping["rping"]},
		{name: "ucmatose -b", server: []string{"ucmatose"}, client: []string{"ucmatose", "-b", from, "-s", to}, check: done},
		{name: "udaddy -b", server: []string{"udaddy"}, client: []string{"udaddy", "-b", from, "-s", to}, check: done},
	} {
		r.group, r.ready = "librdmacm over a switch", cmListens
		runAll(t, l, []rung{r})
		after := sentPackets(l)
		if after[0] == before[0] || after[1] == before[1] {
			t.Errorf("after %s the NICs have sent %d packets, before it %d", r.name, after, before)
		}
		before = after
	}
	l.NoClients()
}

// sentPackets returns the number of packets that the NIC of each host has sent.
func sentPackets(l *lab.Lab) (n [2]uint64) {
	for i := range l.Host {
		for _, s := range lab.Query[[]api.Stat](l, i, "stat") {
			if s.NIC == l.Host[i].Device {
				n[i] = s.Counters["sent_pkts"]
			}
		}
	}
	return n
}
