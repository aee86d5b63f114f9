package programs

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

var endure = flag.Duration("endure", 0, "duration of TestEndure")

// Load of TestEndure.
const (
	spinning = 16    // processes
	nobody   = 65534 // an ordinary user
)

// TestEndure runs programs with reliable connections in a loop, on all kinds of ports at once, beside spinning processes
// in scheduling groups of their own and a compilation. No connection ends, and less than 1 % of the packets are
// retransmitted. An ordinary user, whose socket buffers are smaller, runs the programs on udp too.
func TestEndure(t *testing.T) {
	if *endure == 0 {
		t.Skip("make endure")
	}
	lab.Need(t, "ib_write_bw")
	if os.Geteuid() == nobody {
		endureOn(t, netlab.LabOptions{Loopback: true})
		return
	}
	burden(t)
	for name, o := range map[string]netlab.LabOptions{
		"udp": {Loopback: true}, "packet": {Shared: [2]string{"packet", "packet"}}, "tap": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endureOn(t, o)
		})
	}
	t.Run("udp as an ordinary user", func(t *testing.T) {
		t.Parallel()
		asNobody(t)
	})
}

// burden starts the load.
func burden(t *testing.T) {
	start := func(command ...string) {
		c := exec.Command(command[0], command[1:]...)
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
		lab.Must(t, c.Start())
		t.Cleanup(func() {
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
			_ = c.Wait()
		})
	}
	for range spinning {
		start("sh", "-c", "while :; do :; done")
	}
	start("sh", "-c", "while :; do go build -buildvcs=false -a -p 2 -o /dev/null roced.io/roced/cmd/rocectl; done")
}

// asNobody runs the test as an ordinary user, in a network namespace of its own.
func asNobody(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root changes the user")
	}
	bed, err := netlab.NewDirect([2]bool{true, true})
	lab.Must(t, err)
	t.Cleanup(func() { bed.Close() })
	dir := lab.Dir(t)
	lab.Must(t, os.Chmod(dir, 0o755))
	lab.Must(t, exec.Command("cp", "-r", lab.Bin, dir).Run())
	self, err := os.Executable()
	lab.Must(t, err)
	lab.Must(t, exec.Command("cp", self, filepath.Join(dir, "test")).Run())
	c := exec.Command(filepath.Join(dir, "test"), "-test.run=^TestEndure$", "-test.v", "-test.timeout=0", "-endure", endure.String())
	c.Env = append(os.Environ(), lab.BinEnv+"="+filepath.Join(dir, "bin"), "TMPDIR=/tmp")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	p := lab.LaunchCmd(t, bed.NS[0].Start, c)
	if err := p.Wait(*endure + 5*lab.Limit); err != nil {
		t.Errorf("%v", err)
	}
	t.Log(p.Out.String())
}

// endureOn runs programs in a loop.
func endureOn(t *testing.T, o netlab.LabOptions) {
	l := lab.New(t, o)
	runs := 0
	for end := time.Now().Add(*endure); time.Now().Before(end); {
		for _, r := range reliable(l) {
			if err := r.run(l); err != nil {
				t.Errorf("run %d, %s: %v", runs, r.name, err)
			}
			if runs++; time.Now().After(end) {
				break
			}
		}
	}
	for i := range l.Host {
		s := lab.Query[[]api.Stat](l, i, "stat")[0]
		sent, again := s.Counters["sent_pkts"], s.Counters["retransmitted_packets"]
		t.Logf("host %d: %d programs, %d packets, %d retransmitted (%.3f %%), %d timeouts, %d dropped by the kernel", i, runs, sent, again,
			100*float64(again)/float64(max(sent, 1)), s.Counters["local_ack_timeout_err"], s.Port.Overruns)
		if again*100 >= sent {
			t.Errorf("host %d: %d of %d packets were retransmitted", i, again, sent)
		}
		if n := s.Counters["retry_exceeded_err"]; n != 0 {
			t.Errorf("host %d: %d connections ended", i, n)
		}
	}
}

var making sync.Mutex // guards lastPort

// reliable returns the programs with reliable connections, without those that measure the processor for many sizes. A
// loopback address has no IPv6 GID beside it.
func reliable(l *lab.Lab) (out []rung) {
	making.Lock()
	defer making.Unlock()
	for _, p := range pingpongs {
		for _, o := range p.options {
			if p.refused[o] == "" && !strings.Contains(o, "-g") && (p.program == "ibv_rc_pingpong" || p.program == "ibv_srq_pingpong") {
				out = append(out, outOfBand(l, rung{name: p.program + " " + o}, strings.Fields(p.program+" "+o+" -n 300")...))
			}
		}
	}
	for _, p := range perftests {
		for _, o := range p.options {
			if p.services[0] == "RC" && o != "-a" && !strings.Contains(o, "--ipv6") {
				out = append(out, perftest(l, strings.TrimSpace(fmt.Sprintf("ib_%s_%s -c RC %s", p.operation, p.measure, o)), o))
			}
		}
	}
	return append(out, cmRungs(l, false)...)
}
