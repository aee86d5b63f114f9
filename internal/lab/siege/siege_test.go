package siege

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"roced.io/roced/internal/daemon"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/config"
	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/lab/withheld"
)

var only = flag.String("attack", "", "the one attack that there is to be; empty for all")

var duration = flag.Duration("siege", 0, "how long the siege lasts; 0 for a second and a half of each attack")

// attackerUID is the attacking, unprivileged user.
const attackerUID = 65533

func TestMain(m *testing.M) {
	if path := os.Getenv(daemonEnv); path != "" {
		cfg, err := config.Load(path)
		if err == nil {
			err = daemon.Run(cfg)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	var action, runDir string
	if n, _ := fmt.Sscan(os.Getenv(chargedEnv), &action, &runDir); n == 2 {
		if err := charged(action, runDir); err != nil {
			fmt.Fprintln(os.Stderr, action, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	Main()
	os.Exit(m.Run())
}

// castle is a daemon with the means to attack it.
type castle struct {
	t      testing.TB
	dir    string
	binary string // executable by all users
	cmd    *exec.Cmd
	log    logged
	// attacked is the number of the device that attackers use first.
	attacked int
}

// logged collects the daemon's log.
type logged struct {
	sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.buf.Write(b)
}

// lines returns the number of lines, and the last few lines.
func (l *logged) lines() (n int, last string) {
	l.Lock()
	defer l.Unlock()
	all := strings.Split(l.buf.String(), "\n")
	return len(all), strings.Join(all[max(0, len(all)-20):], "\n")
}

func (c *castle) runDir() string { return filepath.Join(c.dir, "run") }

func newCastle(t testing.TB) *castle {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("another user takes part, which takes root")
	}
	dir, err := os.MkdirTemp("", "siege")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	c := &castle{t: t, dir: dir, binary: filepath.Join(dir, "siege.test")}
	self, err := os.Executable()
	must(t, err)
	text, err := os.ReadFile(self)
	must(t, err)
	must(t, os.WriteFile(c.binary, text, 0o755))
	bed, err := netlab.NewDirect([2]bool{true, true})
	must(t, err)
	t.Cleanup(func() { bed.Close() })
	for i, n := range bed.NS {
		must(t, os.Symlink(n.Path(), namespace(c.runDir(), i)))
	}
	cfg := filepath.Join(dir, "roced.yaml")
	must(t, os.WriteFile(cfg, fmt.Appendf(nil, `
run_dir: %[1]s/run
nics:
  - {name: rxe_a, addresses: [198.18.0.1/24], port: {type: unix, local: %[1]s/a, remote: %[1]s/b}}
  - {name: rxe_b, addresses: [198.18.0.2/24], port: {type: unix, local: %[1]s/b, remote: %[1]s/a}}
  - {name: rxe_s, port: {type: udp, address: %[2]s}}
  - {name: rxe_d, addresses: [198.18.1.1/24], port: {type: unix, local: %[1]s/d, remote: %[1]s/m}}
  - {name: rxe_p, port: {type: packet, netns: %[3]q, interface: %[5]s}}
  - {name: rxe_q, port: {type: udp, netns: %[4]q, interface: %[5]s}}
  - {name: rxe_v, switch: s, addresses: [198.18.2.1/24], port: {type: unix, local: %[1]s/v, remote: %[1]s/w}}
  - {name: rxe_w, switch: s, addresses: [198.18.2.2/24], port: {type: unix, local: %[1]s/w, remote: %[1]s/v}}
  - {name: rxe_x, switch: s, addresses: [198.18.2.3/24], port: {type: unix, local: %[1]s/x, remote: %[1]s/y}}
  - {name: rxe_y, switch: s, addresses: [198.18.2.4/24], port: {type: unix, local: %[1]s/y, remote: %[1]s/x}}
  - {name: rxe_j, switch: s, shard: j, addresses: [198.18.2.5/24], port: {type: unix, local: %[1]s/j, remote: %[1]s/k}}
  - {name: rxe_k, switch: s, shard: j, addresses: [198.18.2.6/24], port: {type: unix, local: %[1]s/k, remote: %[1]s/j}}
  - {name: rxe_t, port: {type: udp, address: %[6]s, check_source: false}}
`, dir, net.IPv4(127, 9, byte(os.Getpid()>>8), byte(os.Getpid())), // addresses for each siege
		bed.NS[0].Path(), bed.NS[1].Path(), netlab.Veth, net.IPv4(127, 10, byte(os.Getpid()>>8), byte(os.Getpid()))), 0o600))
	c.cmd = exec.Command(c.binary)
	c.cmd.Env = append(os.Environ(), daemonEnv+"="+cfg)
	c.cmd.Stderr = &c.log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, c.cmd.Start())
	t.Cleanup(func() {
		_ = c.cmd.Process.Signal(syscall.SIGTERM)
		if err := c.cmd.Wait(); err != nil {
			_, last := c.log.lines()
			t.Errorf("the daemon: %v\n%s", err, last)
		}
	})
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if conn, err := net.Dial("unix", filepath.Join(c.runDir(), api.Socket)); err == nil { // the socket that the daemon opens last
			conn.Close()
			return c
		} else if time.Now().After(end) {
			_, last := c.log.lines()
			t.Fatalf("the daemon does not come up: %v\n%s", err, last)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// asRoot lists the attacks that run as root, because they act from the machine's network or as its administrator.
var asRoot = map[string]bool{"deaths": true, "addresses": true}

// attacker starts an attack or an honest program. stop kills it.
func (c *castle) attacker(name string, seed uint64) (stop func()) {
	c.t.Helper()
	cmd := exec.Command(c.binary)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d %d", environment, name, c.runDir(), seed, c.attacked))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if !asRoot[name] {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: attackerUID, Gid: attackerUID}
	}
	in, err := cmd.StdinPipe()
	must(c.t, err)
	out, err := cmd.StdoutPipe()
	must(c.t, err)
	cmd.Stderr = os.Stderr
	must(c.t, cmd.Start())
	going := func() {}
	switch name {
	case "stops":
		going = stopAndGo(cmd.Process, seed)
	case "addresses": // this program also judges, and must reach its verdict
		going = func() { _, _ = out.Read(make([]byte, 1)) }
	}
	return func() {
		going()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if cmd.ProcessState.Exited() {
			c.t.Errorf("the program %q has ended by itself: %v", name, cmd.ProcessState)
		}
		if name == "addresses" {
			must(c.t, tidy(c.runDir(), seed%2))
		}
		in.Close()
	}
}

// stopAndGo repeatedly stops and continues a program until the returned function is called.
func stopAndGo(p *os.Process, seed uint64) (end func()) {
	done := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 1))
		for {
			for _, sig := range []os.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
				_ = p.Signal(sig)
				select {
				case <-done:
					return
				case <-time.After(time.Duration(1+rng.IntN(200)) * time.Millisecond):
				}
			}
		}
	})
	return func() { close(done); all.Wait() }
}

// withhold makes the file with a withheld page for the attack "withheld". release releases the page once a thread waits
// for it. The attackers need a while to get a connection if the attack "connections" of the same user runs too, or if
// the machine is loaded.
func (c *castle) withhold() (release func()) {
	c.t.Helper()
	f := withheld.New(c.t)
	for dir := filepath.Dir(f.Path); len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
		_ = os.Chmod(dir, 0o755) // the file system root refuses this and is open anyway
	}
	_ = os.Remove(withheldFile(c.runDir()))
	must(c.t, os.Symlink(f.Path, withheldFile(c.runDir())))
	return func() {
		select {
		case <-f.Waited():
		case <-time.After(timeout):
			c.t.Error("nobody has waited for the page that is withheld")
		}
		f.Release()
	}
}

// state is the daemon's use of limited resources.
type state struct{ threads, files, rss int }

func (c *castle) state() (s state) {
	c.t.Helper()
	proc := fmt.Sprintf("/proc/%d/", c.cmd.Process.Pid)
	files, err := os.ReadDir(proc + "fd")
	must(c.t, err)
	s.files = len(files)
	text, err := os.ReadFile(proc + "status")
	must(c.t, err)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		n, _ := strconv.Atoi(strings.Fields(value + " 0")[0])
		switch name {
		case "Threads":
			s.threads = n
		case "RssAnon", "RssShmem": // its own memory, and its clients' mapped memory
			s.rss += n >> 10
		}
	}
	return s
}

// Limits on the daemon's growth during an attack and soon after it. The unit is MiB of memory, its own and its
// clients'.
const (
	moreThreads = 64
	moreFiles   = 1900
	moreRSS     = 512
	leftThreads = 40
	leftFiles   = 10
	leftRSS     = 24
)

// Limits on the victim's slowdown. The unit is the 99th percentile of the victim's WRITEs over the same percentile next
// to as many honest computing programs. One limit is for the median of all rounds, another for each round. In a single
// round noise is a WRITE duration that is always accepted. With few processors, they can be unavailable for longer than
// a WRITE takes, and no budget of the daemon helps. So a single round says little.
const (
	times  = 3
	noise  = 200 * time.Millisecond
	rounds = 5 // fewer rounds have no useful median
)

// verdict is the effect of one attack, or of several at a time, on the victim.
type verdict struct {
	names                []string
	honest, busy, attack latencies
}

// ratio compares the 99th percentile with the one next to other programs.
func (v *verdict) ratio(others latencies) float64 {
	return float64(v.attack.at(0.99)) / float64(max(others.at(0.99), 1))
}

// row formats the verdict for the table of docs/design/siege.md.
func (v *verdict) row() string {
	ms := func(l latencies, p float64) string { return fmt.Sprintf("%.2f", float64(l.at(p))/1e6) }
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %.1f | %.1f |", strings.Join(v.names, ", "), ms(v.honest, 0.99), ms(v.busy, 0.99),
		ms(v.attack, 0.99), ms(v.attack, 1), v.ratio(v.honest), v.ratio(v.busy))
}

// judge lists the violated limits.
func judge(verdicts []verdict) (faults []string) {
	var ratios []float64
	for _, v := range verdicts {
		ratios = append(ratios, v.ratio(v.busy))
		if p99 := v.attack.at(0.99); p99 > times*max(v.honest.at(0.99), v.busy.at(0.99), noise) {
			faults = append(faults, fmt.Sprintf("%v: p99 %v, beside honest programs %v, beside busy ones %v", v.names, p99, v.honest.at(0.99), v.busy.at(0.99)))
		}
	}
	slices.Sort(ratios)
	if n := len(ratios); n >= rounds && ratios[n/2] > times {
		faults = append(faults, fmt.Sprintf("p99 is %.1f times what it is beside busy programs, in the middle of %d rounds", ratios[n/2], n))
	}
	return faults
}

// TestJudge: one round in which all programs wait is too much, and so are many rounds in which all wait a little
// longer. One round with a small delay is accepted.
func TestJudge(t *testing.T) {
	round := func(busy, attack time.Duration) verdict {
		return verdict{names: []string{"x"}, honest: latencies{time.Millisecond}, busy: latencies{busy}, attack: latencies{attack}}
	}
	const ms = time.Millisecond
	for _, c := range []struct {
		name   string
		rounds []verdict
		faults int
	}{
		{"nothing", nil, 0},
		{"as beside others", slices.Repeat([]verdict{round(10*ms, 25*ms)}, rounds), 0},
		{"longer in one round", append(slices.Repeat([]verdict{round(10*ms, 25*ms)}, rounds), round(10*ms, 500*ms)), 0},
		{"longer in all rounds", slices.Repeat([]verdict{round(10*ms, 35*ms)}, rounds), 1},
		{"everybody waits", []verdict{round(10*ms, 700*ms)}, 1},
		{"where others cost as much", []verdict{round(300*ms, 700*ms)}, 0},
	} {
		if got := judge(c.rounds); len(got) != c.faults {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// latencies are the durations of the victim's WRITEs.
type latencies []time.Duration

func (l latencies) at(p float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	slices.Sort(l)
	return l[int(p*float64(len(l)-1))]
}

// lookEvery is the interval between samples of the daemon's state.
const lookEvery = 20 * time.Millisecond

// watch writes for d next to the named programs, calls each now and then, and returns the duration of each WRITE.
func (c *castle) watch(p *pair, d time.Duration, each func(), beside ...string) (l latencies) {
	c.t.Helper()
	looked := time.Now()
	for end := looked.Add(d); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		took, err := p.write(ctx, byte(len(l)), 1024)
		cancel()
		if err != nil {
			_, last := c.log.lines()
			c.t.Fatalf("the victim's WRITE %d beside %v, after %v: %v\n%s", len(l), beside, took, err, last)
		}
		l = append(l, took)
		if now := time.Now(); now.Sub(looked) > lookEvery {
			looked = now
			each()
		}
	}
	return l
}

// TestSiege runs each attack next to a victim; with -siege it runs random attacks in sequence. All WRITEs of the victim
// arrive. The daemon's threads, descriptors and memory are bounded and return to their earlier values.
func TestSiege(t *testing.T) {
	lab.Long(t)
	c := newCastle(t)
	victim, err := newPair(c.runDir(), 1, 4096)
	must(t, err)
	defer victim.close()
	calm := c.watch(victim, time.Second, func() {})
	before := c.state()
	t.Logf("calm: p50 %v p99 %v, %+v", calm.at(0.5), calm.at(0.99), before)
	var verdicts []verdict
	defer func() {
		fmt.Println("99th percentile of a WRITE in ms, beside as many programs that are honest, that are honest and compute, that attack")
		fmt.Println("| attack | honest | busy | attacked | worst | to honest | to busy |\n|---|--:|--:|--:|--:|--:|--:|")
		for _, v := range verdicts {
			fmt.Println(v.row())
		}
		for _, fault := range judge(verdicts) {
			t.Error(fault)
		}
	}()
	names := slices.Sorted(maps.Keys(attacks))
	if attacks[*only] != nil {
		names = []string{*only}
	}
	if *duration == 0 {
		for i, name := range names {
			verdicts = append(verdicts, c.besiege(victim, before, uint64(i), 1500*time.Millisecond, name))
		}
		return
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for end := time.Now().Add(*duration); time.Now().Before(end) && !t.Failed(); {
		rng.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
		some := slices.Sorted(slices.Values(names[:min(1+rng.IntN(3), len(names))]))
		verdicts = append(verdicts, c.besiege(victim, before, rng.Uint64(), time.Duration(1+rng.IntN(5))*time.Second, some...))
	}
}

// Devices on the switch: a pair for the victim and a pair for attackers, which one shard serves, and a pair on another shard.
const (
	victimOnSwitch   = 6
	attackerOnSwitch = 8
	apartOnSwitch    = 10
)

// TestSiegeOnSwitch attacks from stations of the victim's shard, then between that shard and another one. Finally the
// victim's connection, too, passes from shard to shard.
func TestSiegeOnSwitch(t *testing.T) {
	lab.Long(t)
	c := newCastle(t)
	for _, s := range []struct {
		name    string
		victim  [2]int
		first   int // device of the attackers
		attacks []string
	}{
		{"one shard", [2]int{victimOnSwitch, victimOnSwitch + 1}, attackerOnSwitch, []string{"traffic", "stops", "flush", "bells", "holes", "withheld"}},
		{"another shard", [2]int{victimOnSwitch, victimOnSwitch + 1}, attackerOnSwitch + 1, []string{"traffic", "stops", "flush"}},
		{"between shards", [2]int{victimOnSwitch, apartOnSwitch}, attackerOnSwitch + 1, []string{"traffic", "stops", "withheld"}},
	} {
		t.Run(s.name, func(t *testing.T) {
			c.t = t
			c.onSwitch(s.victim, s.first, s.attacks)
		})
	}
}

// TestSiegeOnSockets attacks a NIC on UDP sockets, to which every user can send, beside a victim on it.
func TestSiegeOnSockets(t *testing.T) {
	lab.Long(t)
	newCastle(t).onSwitch([2]int{onTarget, onTarget}, 0, []string{"frames", "segments"})
}

// onSwitch runs attacks beside a victim with these devices.
func (c *castle) onSwitch(devices [2]int, first int, attacks []string) {
	c.t.Helper()
	c.attacked = first
	victim := &pair{}
	defer victim.close()
	must(c.t, victim.connect([2]string{device(c.runDir(), devices[0]), device(c.runDir(), devices[1])}, 1, 4096))
	c.watch(victim, time.Second, func() {})
	before := c.state()
	var verdicts []verdict
	for i, name := range attacks {
		verdicts = append(verdicts, c.besiege(victim, before, uint64(i), 1500*time.Millisecond, name))
	}
	for _, fault := range judge(verdicts) {
		c.t.Error(fault)
	}
}

// beside measures the victim next to programs, two of each name, for d, and calls each now and then.
func (c *castle) beside(victim *pair, seed uint64, d time.Duration, each func(), names ...string) latencies {
	c.t.Helper()
	var stops []func()
	for i, name := range names {
		if name == "withheld" {
			stops = append(stops, c.withhold())
		}
		stops = append(stops, c.attacker(name, seed+2*uint64(i)), c.attacker(name, seed+2*uint64(i)+1))
	}
	l := c.watch(victim, d, each, names...)
	for _, stop := range stops {
		stop()
	}
	return l
}

// besiege runs attacks for d, two programs each, and kills them in the middle. Before, it measures the victim next to
// as many honest programs, and next to as many that compute as well.
func (c *castle) besiege(victim *pair, before state, seed uint64, d time.Duration, names ...string) verdict {
	c.t.Helper()
	v := verdict{names: names}
	v.honest = c.beside(victim, seed, max(d/3, time.Second/2), func() {}, slices.Repeat([]string{honest}, len(names))...)
	v.busy = c.beside(victim, seed, max(d/3, time.Second/2), func() {}, slices.Repeat([]string{busy}, len(names))...)
	lines, _ := c.log.lines()
	most := before
	v.attack = c.beside(victim, seed, d, func() {
		s := c.state()
		most = state{max(most.threads, s.threads), max(most.files, s.files), max(most.rss, s.rss)}
	}, names...)
	if most.threads > before.threads+moreThreads || most.files > before.files+moreFiles || most.rss > before.rss+moreRSS {
		c.t.Errorf("%v: %+v, before %+v", names, most, before)
	}
	after := c.settle(before)
	if !after.flat(before) {
		c.t.Errorf("%v: %+v are left, before %+v", names, after, before)
	}
	said, last := c.log.lines()
	if said-lines > 100+int(20*d/time.Second)*len(names) {
		c.t.Errorf("%v: %d lines in the log\n%s", names, said-lines, last)
	}
	c.t.Logf("%-20v %5d WRITEs p50 %-8v p99 %-8v most %-8v during %+v after %+v", names, len(v.attack),
		v.attack.at(0.5).Round(time.Microsecond), v.attack.at(0.99).Round(time.Microsecond), v.attack.at(1).Round(time.Microsecond), most, after)
	return v
}

// flat reports whether the daemon's resources are back at their earlier values, within the tolerance.
func (s state) flat(before state) bool {
	return s.threads <= before.threads+leftThreads && s.files <= before.files+leftFiles && s.rss <= before.rss+leftRSS
}

// settle waits at most 20 s until the daemon has freed the attackers' resources.
func (c *castle) settle(before state) state {
	c.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if s := c.state(); s.flat(before) || time.Now().After(end) {
			return s
		}
	}
}
