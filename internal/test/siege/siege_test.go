package siege

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
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

	"roced/internal/daemon"
	"roced/internal/daemon/config"
)

var only = flag.String("attack", "", "the one attack that there is to be; empty for all")

var duration = flag.Duration("siege", 0, "how long the siege lasts; 0 for a second and a half of each attack")

// daemonEnv makes the test binary a daemon with the configuration that it names.
const daemonEnv = "ROCED_SIEGE_DAEMON"

// outlaw is the user who attacks.
const outlaw = 65533

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
	Main()
	os.Exit(m.Run())
}

// castle is a daemon, and what is needed to besiege it.
type castle struct {
	t      *testing.T
	dir    string
	binary string // that everybody may run
	cmd    *exec.Cmd
	log    logged
}

// logged is what the daemon has logged.
type logged struct {
	sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.buf.Write(b)
}

// lines counts the lines, and returns the last few.
func (l *logged) lines() (n int, last string) {
	l.Lock()
	defer l.Unlock()
	all := strings.Split(l.buf.String(), "\n")
	return len(all), strings.Join(all[max(0, len(all)-20):], "\n")
}

func (c *castle) runDir() string { return filepath.Join(c.dir, "run") }

func newCastle(t *testing.T) *castle {
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
	cfg := filepath.Join(dir, "roced.yaml")
	must(t, os.WriteFile(cfg, fmt.Appendf(nil, `
run_dir: %[1]s/run
nics:
  - {name: rxe_a, addresses: [198.18.0.1/24], port: {type: unix, local: %[1]s/a, remote: %[1]s/b}}
  - {name: rxe_b, addresses: [198.18.0.2/24], port: {type: unix, local: %[1]s/b, remote: %[1]s/a}}
`, dir), 0o600))
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
		if p, err := newPair(c.runDir(), 1, 4096); err == nil {
			p.close()
			return c
		} else if time.Now().After(end) {
			_, last := c.log.lines()
			t.Fatalf("the daemon does not come up: %v\n%s", err, last)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// attacker starts a program that attacks; stop kills it.
func (c *castle) attacker(name string, seed uint64) (stop func()) {
	c.t.Helper()
	cmd := exec.Command(c.binary)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d", environment, name, c.runDir(), seed))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: outlaw, Gid: outlaw}, Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	must(c.t, err)
	cmd.Stderr = io.Discard
	must(c.t, cmd.Start())
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
		in.Close()
	}
}

// state is what the daemon has of what there is only so much of.
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
		case "RssAnon":
			s.rss = n >> 10
		}
	}
	return s
}

// Promises: the longest that one WRITE of the victim may take, and what the daemon may have
// beyond what it had before, during an attack and soon after it. MiB of memory that is its own.
const (
	patience    = 10 * time.Second
	moreThreads = 64
	moreFiles   = 1900
	moreRSS     = 512
	leftThreads = 40
	leftFiles   = 10
	leftRSS     = 128
)

// latencies of the victim.
type latencies []time.Duration

func (l latencies) at(p float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	slices.Sort(l)
	return l[int(p*float64(len(l)-1))]
}

// lookEvery is how often the daemon is looked at.
const lookEvery = 20 * time.Millisecond

// watch writes for d, calls each now and then, and reports how long each WRITE took.
func (c *castle) watch(p *pair, d time.Duration, each func()) (l latencies) {
	c.t.Helper()
	looked := time.Now()
	for end := looked.Add(d); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		took, err := p.write(ctx, byte(len(l)), 1024)
		cancel()
		if err != nil {
			_, last := c.log.lines()
			c.t.Fatalf("the victim's WRITE %d: %v\n%s", len(l), err, last)
		}
		l = append(l, took)
		if now := time.Now(); now.Sub(looked) > lookEvery {
			looked = now
			each()
		}
	}
	return l
}

// TestSiege lets each attack, or with -siege a random one after another, run beside a victim
// whose WRITEs all arrive; the daemon's threads, descriptors and memory are bounded and come back.
func TestSiege(t *testing.T) {
	c := newCastle(t)
	victim, err := newPair(c.runDir(), 1, 4096)
	must(t, err)
	defer victim.close()
	calm := c.watch(victim, time.Second, func() {})
	before := c.state()
	t.Logf("calm: p50 %v p99 %v, %+v", calm.at(0.5), calm.at(0.99), before)
	names := slices.Sorted(maps.Keys(attacks))
	if attacks[*only] != nil {
		names = []string{*only}
	}
	if *duration == 0 {
		for i, name := range names {
			c.besiege(victim, before, uint64(i), 1500*time.Millisecond, name)
		}
		return
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for end := time.Now().Add(*duration); time.Now().Before(end) && !t.Failed(); {
		rng.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
		c.besiege(victim, before, rng.Uint64(), time.Duration(1+rng.IntN(5))*time.Second, names[:min(1+rng.IntN(3), len(names))]...)
	}
}

// besiege runs attacks for d, two programs each, which are killed in the middle of what they do.
func (c *castle) besiege(victim *pair, before state, seed uint64, d time.Duration, names ...string) {
	c.t.Helper()
	lines, _ := c.log.lines()
	var stops []func()
	for i, name := range names {
		stops = append(stops, c.attacker(name, seed+2*uint64(i)), c.attacker(name, seed+2*uint64(i)+1))
	}
	most := before
	l := c.watch(victim, d, func() {
		s := c.state()
		most = state{max(most.threads, s.threads), max(most.files, s.files), max(most.rss, s.rss)}
	})
	for _, stop := range stops {
		stop()
	}
	if most.threads > before.threads+moreThreads || most.files > before.files+moreFiles || most.rss > before.rss+moreRSS {
		c.t.Errorf("%v: %+v, before %+v", names, most, before)
	}
	after := c.state()
	left := func() bool {
		after = c.state()
		return after.threads > before.threads+leftThreads || after.files > before.files+leftFiles
	}
	for end := time.Now().Add(20 * time.Second); left(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Errorf("%v: %+v are left, before %+v", names, after, before)
			break
		}
	}
	if after.rss > before.rss+moreRSS {
		c.t.Errorf("%v: %d MiB are left, %d before", names, after.rss, before.rss)
	}
	said, last := c.log.lines()
	if said-lines > 100+int(20*d/time.Second)*len(names) {
		c.t.Errorf("%v: %d lines in the log\n%s", names, said-lines, last)
	}
	c.t.Logf("%-20v %5d WRITEs p50 %-8v p99 %-8v most %-8v during %+v after %+v", names, len(l),
		l.at(0.5).Round(time.Microsecond), l.at(0.99).Round(time.Microsecond), l.at(1).Round(time.Microsecond), most, after)
}
