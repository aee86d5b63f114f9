package programs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// program is a third-party program that shell commands run on both hosts. In the commands $SERVER and
// $CLIENT are the addresses of the NICs and of their hosts, $DEV is the device and $DIR a folder of the host.
type program struct {
	group, name string
	need        string // a required program or package of Debian; the test is skipped without it
	server      string // empty if there is only a client
	client      string
	moves       string // payload that the client has to move over the NIC; empty for any
	ready       func(l *lab.Lab, server *lab.Proc, dir string) error
	says        string // output of a successful client
	endless     bool   // the server does not end on its own
	// fails is the observed failure by release. The table lists it; the program does not run.
	fails map[string]string
}

const (
	rsockets  = "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"
	openMPI   = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi -np 2 --oversubscribe "
	initiator = "iqn.2026-11.test:initiator"
	target    = "iqn.2026-11.test:disk"
)

// Observed failures; docs/results/known-problems.md has details.
const (
	blockingOnly = "librspreload uses TCP for sockets with SOCK_NONBLOCK"
	otherSocket  = "librspreload's select() reports the wrong descriptor"
	cancels      = "it cancels a thread inside a call of rsockets and hangs"
	noAccept4    = "librspreload lacks accept4()"
	loopbackOnly = "its client is rejected: the server listens on 127.0.0.1"
	noExtended   = "UCX 1.10 needs extended completion queues, which this rxe provider lacks"
	withoutUCX   = "it is built without UCX and uses TCP"
	closesUnused = "librspreload hangs in close() of a datagram socket that has sent nothing"
	withoutIB    = "Debian's UCX 1.23 is built without verbs"
)

// others returns all these programs.
func others() []program {
	list := []program{
		{group: "librdmacm", name: "udpong", need: "udpong", server: "udpong -b $SERVER", client: "udpong -s $SERVER -S 1000 -C 400",
			ready: soon, endless: true, says: "custom    1000"},
		{group: "librdmacm", name: "udpong -T e", need: "udpong", server: "udpong -b $SERVER -T e", client: "udpong -s $SERVER -S 1000 -C 400 -T e",
			ready: soon, endless: true, says: "custom    1000"},
		{group: "fio", name: "rdma, write", need: "fio", ready: listensCM,
			server: "fio --thread --name=s --ioengine=rdma --port=8765 --bs=64k --size=16m --rw=read --iodepth=8",
			client: "fio --thread --name=c --ioengine=rdma --hostname=$SERVER --port=8765 --verb=write --bs=64k --size=16m --rw=write --iodepth=8"},
		{group: "iSER", name: "tgtd, iscsi-inq", need: "tgtd", ready: saysReady, endless: true, says: "Vendor:IET",
			// tgt requires both address and name of an iSER initiator to be bound (iser_text.c:502-515), of a TCP one either.
			server: fmt.Sprintf("truncate -s 16M $DIR/lun; tgtd -f -C 9 & sleep 2; t='tgtadm -C 9 --lld iser --mode'; $t target --op new --tid 1 -T %s &&"+
				" $t logicalunit --op new --tid 1 --lun 1 -b $DIR/lun && $t target --op bind --tid 1 -I ALL && $t target --op bind --tid 1 -Q %s && touch $DIR/ready; wait", target, initiator),
			client: fmt.Sprintf("iscsi-inq -i %s iser://$SERVER:3260/%s/1", initiator, target)},
		{group: "rsockets (librspreload)", name: "nc.traditional", need: "nc.traditional", says: "hello", ready: listensCM, endless: true,
			server: "echo hello | nc.traditional -l -p 5002", client: "nc.traditional $SERVER 5002 </dev/null & sleep 2; kill $!; true"},
		{group: "rsockets (librspreload)", name: "curl", need: "nc.traditional", says: "hello", ready: listensCM, endless: true,
			server: "printf 'HTTP/1.0 200 OK\\r\\nContent-Length: 6\\r\\n\\r\\nhello\\n' | nc.traditional -l -p 5003", client: "curl -s http://$SERVER:5003/",
			fails: map[string]string{"11": closesUnused, "13": blockingOnly, "sid": closesUnused}},
		{group: "rsockets (librspreload)", name: "iperf3", need: "iperf3", server: "iperf3 -s -1", client: "iperf3 -c $SERVER -t 1", ready: listensCM,
			fails: map[string]string{"11": otherSocket, "12": otherSocket, "13": cancels}},
		{group: "rsockets (librspreload)", name: "nc.openbsd", need: "nc.openbsd", says: "hello", ready: listensCM, endless: true,
			server: "echo hello | nc.openbsd -N -l 5004", client: "nc.openbsd $SERVER 5004 </dev/null",
			fails: map[string]string{"11": noAccept4, "12": noAccept4, "13": noAccept4}},
		{group: "rsockets (librspreload)", name: "iperf", need: "iperf", says: "bits/sec", ready: listensCM, endless: true,
			server: "iperf -s", client: "iperf -c $SERVER -t 1"},
	}
	list = append(append(list, libfabric()...), mpi()...)
	list = append(append(list, qperf()...), ucx()...)
	list = append(list, built()...)
	return append(list, program{group: "Ceph", name: "async+rdma: mon, mgr, 2 OSDs; rados put, get", need: "ceph-osd", says: "all is well", moves: "4m",
		server: "sh testdata/ceph.sh cluster", client: "sh testdata/ceph.sh client", ready: saysReady, endless: true})
}

// libfabric returns fi_pingpong with all kinds of endpoints. Its server of connections listens on 127.0.0.1 and sends that
// address to its client.
func libfabric() (list []program) {
	for _, o := range []string{"-p verbs -e dgram", "-p 'verbs;ofi_rxd' -e rdm", "-p verbs -e msg", "-p 'verbs;ofi_rxm' -e rdm"} {
		p := program{group: "libfabric", name: "fi_pingpong " + o, need: "fi_pingpong", ready: listens(47592),
			server: "fi_pingpong " + o, client: "fi_pingpong " + o + " $SERVER"}
		connected := strings.HasSuffix(o, "msg") || strings.Contains(o, "rxm")
		if connected {
			p.fails = map[string]string{"11": loopbackOnly, "12": loopbackOnly, "13": loopbackOnly, "sid": loopbackOnly}
		}
		list = append(list, p)
		if connected {
			list = append(list, program{group: "libfabric", name: "fi_pingpong " + o + " (loopback)", need: "fi_pingpong",
				client: fmt.Sprintf("fi_pingpong %[1]s & sleep 2; timeout 20 fi_pingpong %[1]s 127.0.0.1 && wait $!", o)})
		}
	}
	return list
}

// mpi returns two ranks on one host that may only communicate through the NIC.
func mpi() []program {
	const well = "all is well"
	const rc = "UCX_NET_DEVICES=$DEV:1 UCX_TLS=rc,self "
	return []program{
		{group: "MPI", name: "Open MPI, UCX over rc", need: "mpicc.openmpi", says: well, fails: map[string]string{"11": noExtended, "sid": withoutIB},
			client: rc + openMPI + "--mca pml ucx -x UCX_TLS -x UCX_NET_DEVICES $DIR/openmpi"},
		{group: "MPI", name: "Open MPI, btl ofi, two-sided", need: "mpicc.openmpi", says: well,
			client: "FI_PROVIDER=verbs,ofi_rxm " + openMPI + "-x FI_PROVIDER --mca pml ob1 --mca btl ofi,self --mca btl_ofi_mode 2 $DIR/openmpi"},
		{group: "MPI", name: "MPICH, UCX over rc", need: "mpicc.mpich", says: well, fails: map[string]string{"11": withoutUCX, "sid": withoutIB},
			client: rc + "MPIR_CVAR_NOLOCAL=1 mpirun.mpich -np 2 $DIR/mpich"},
		{group: "MPI", name: "mpi4py on Open MPI, UCX over rc", need: "python3-mpi4py", says: well, moves: "2m",
			fails:  map[string]string{"11": noExtended, "sid": withoutIB},
			client: rc + openMPI + "--mca pml ucx -x UCX_TLS -x UCX_NET_DEVICES /usr/bin/python3 testdata/ring.py"},
		{group: "Gloo", name: "ring allreduce, ibverbs", need: "libgloo-dev", says: well, moves: "4m",
			client: "mkdir $DIR/store && { $DIR/gloo $DEV 0 $DIR/store & $DIR/gloo $DEV 1 $DIR/store && wait $!; }"},
	}
}

func qperf() (list []program) {
	for _, test := range []string{"rc_bw", "rc_lat", "uc_bw", "ud_lat", "rc_rdma_read_bw", "rc_rdma_write_bw", "rc_rdma_write_poll_lat",
		"rc_fetch_add_mr", "ver_rc_compare_swap"} {
		list = append(list, program{group: "qperf", name: test, need: "qperf", says: test, ready: listens(19765), endless: true,
			server: "qperf", client: "qperf -t 1 $SERVER " + test})
	}
	return list
}

// onTerminal runs a shell command on a terminal. Without one, the tests of UCX on Debian 13 must be ranks of an MPI program.
func onTerminal(command string) string { return fmt.Sprintf("script -qec \"%s\" /dev/null", command) }

// ucx returns UCX's own tests. Those of UCT (put, am) take the device as an option, those of UCP from the environment.
func ucx() (list []program) {
	for _, tls := range []string{"rc", "ud"} {
		for _, test := range []string{"tag_lat", "tag_bw", "stream_bw", "put_lat", "am_lat"} {
			size := 4096
			command := fmt.Sprintf("UCX_NET_DEVICES=$DEV:1 UCX_TLS=%s ucx_perftest -t %s", tls, test)
			if test == "put_lat" || test == "am_lat" {
				command, size = fmt.Sprintf("ucx_perftest -d $DEV:1 -x %s_verbs -t %s", tls, test), 64
			}
			if test == "put_lat" && tls == "ud" {
				continue // UD has no write
			}
			command += fmt.Sprintf(" -n 500 -w 10 -s %d", size)
			list = append(list, program{group: "UCX", name: fmt.Sprintf("ucx_perftest -t %s, %s", test, tls), need: "ucx_perftest",
				server: onTerminal(command), client: onTerminal(command + " $SERVER"), ready: listens(13337), says: "Final:",
				fails: map[string]string{"11": noExtended, "sid": withoutIB}})
		}
	}
	return list
}

// TestOthers uses ports of type packet, which share the kernel's address, because most of these programs use one address
// for RDMA and for TCP.
func TestOthers(t *testing.T) {
	if !*all {
		t.Skip("needs packages that tools/scripts/setup.sh does not install: make programs")
	}
	l := lab.New(t, netlab.LabOptions{Shared: [2]string{"packet", "packet"}})
	dirs := [2]string{t.TempDir(), t.TempDir()}
	compileMPI(t, dirs[clientHost])
	compileGloo(t, dirs[clientHost])
	for _, p := range others() {
		t.Run(strings.ReplaceAll(p.group+" "+p.name, " ", "_"), func(t *testing.T) { p.test(l.At(t), dirs) })
	}
	l.NoClients()
}

// test runs a program or skips it with a reason. A missing program enters the table only if -update writes it.
func (p *program) test(l *lab.Lab, dirs [2]string) {
	r := row{group: p.group, name: p.name, outcome: pass}
	switch fails := p.fails[release()]; {
	case fails != "":
		r.outcome, r.why = skip, "not run: "+fails
	case !installed(p.need):
		r.outcome, r.why = skip, p.need+" is not installed"
		if !*update {
			l.T.Skip(r.why)
		}
	default:
		if err := p.run(l, dirs); err != nil {
			r.outcome, r.why = fail, err.Error()
		}
	}
	record(l.T, r)
	if r.outcome == skip {
		l.T.Skip(r.why)
	}
}

// installed reports whether a program or package is installed.
func installed(need string) bool {
	if _, err := exec.LookPath(need); err == nil {
		return true
	}
	out, err := exec.Command("dpkg-query", "-W", "-f", "${db:Status-Status}", need).Output()
	return err == nil && string(out) == "installed"
}

// run runs both sides.
func (p *program) run(l *lab.Lab, dirs [2]string) error {
	said := func() string { return "" }
	if p.server != "" {
		if err := os.RemoveAll(filepath.Join(dirs[serverHost], readyFile)); err != nil { // of an earlier program
			return err
		}
		server := p.start(l, serverHost, dirs[serverHost], "exec", "--", "sh", "-c", p.server)
		said = server.Said
		defer server.Kill()
		if err := p.ready(l, server, dirs[serverHost]); err != nil {
			return fmt.Errorf("server: %w", err)
		}
		if !p.endless {
			defer func() { _ = server.Wait(5 * time.Second) }()
		}
	}
	client := p.start(l, clientHost, dirs[clientHost], "exec", "--require-traffic", cmp.Or(p.moves, "1"), "--", "sh", "-c", p.client)
	if err := client.Wait(lab.Limit); err != nil {
		return fmt.Errorf("client: %w\nserver: %s", err, said())
	}
	if !strings.Contains(client.Said(), p.says) {
		return fmt.Errorf("client does not say %q:\n%s\nserver: %s", p.says, client.Said(), said())
	}
	return nil
}

// start runs rocectl on host i in its own process group, so that its children end with it.
func (p *program) start(l *lab.Lab, i int, dir string, args ...string) *lab.Proc {
	c := exec.Command(lab.Program("rocectl"), append([]string{"--run-dir", l.Host[i].RunDir}, args...)...)
	c.Env = append(os.Environ(), "SERVER="+l.Host[serverHost].Addr, "CLIENT="+l.Host[clientHost].Addr, "DEV="+l.Host[i].Device, "DIR="+dir)
	if strings.Contains(p.group, "rsockets") {
		c.Env = append(c.Env, rsockets)
	}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.WaitDelay = 5 * time.Second // leftover children hold its output open
	return lab.LaunchCmd(l.T, l.NS(i).Start, c)
}

// listens waits for a TCP port.
func listens(port int) func(*lab.Lab, *lab.Proc, string) error {
	return func(_ *lab.Lab, server *lab.Proc, _ string) error { return server.Listens(port) }
}

// listensCM waits until a program of the server's process group listens with rdma_cm.
func listensCM(l *lab.Lab, server *lab.Proc, _ string) error {
	return l.ListensCM(serverHost, server, func(r api.Resource) bool {
		group, err := syscall.Getpgid(int(r.PID))
		return err == nil && group == server.PID()
	})
}

// readyFile is in the folder of a server that works.
const readyFile = "ready"

// saysReady waits until the server makes the file.
func saysReady(_ *lab.Lab, server *lab.Proc, dir string) error {
	return server.Ready("it is ready", func() (bool, error) {
		_, err := os.Stat(filepath.Join(dir, readyFile))
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	})
}

// soon waits one second for a server of datagrams, because its readiness is not visible.
func soon(*lab.Lab, *lab.Proc, string) error {
	time.Sleep(time.Second)
	return nil
}

// compileMPI compiles the program for both MPIs.
func compileMPI(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"openmpi", "mpich"} {
		if _, err := exec.LookPath("mpicc." + name); err != nil {
			continue
		}
		out, err := exec.Command("mpicc."+name, "-O1", "-o", filepath.Join(dir, name), "testdata/mpi.c").CombinedOutput()
		if err != nil {
			t.Fatalf("mpicc.%s: %v\n%s", name, err, out)
		}
	}
}

// compileGloo compiles the program for Gloo.
func compileGloo(t *testing.T, dir string) {
	t.Helper()
	if !installed("libgloo-dev") {
		return
	}
	out, err := exec.Command("g++", "-O1", "-o", filepath.Join(dir, "gloo"), "testdata/gloo.cc", "-lgloo", "-libverbs", "-pthread").CombinedOutput()
	if err != nil {
		t.Fatalf("g++: %v\n%s", err, out)
	}
}
