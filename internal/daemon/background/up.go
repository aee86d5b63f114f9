package background

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/rundir"
	"roced.io/roced/internal/base/suggest"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/config"
	"roced.io/roced/internal/daemon/environment"
	"roced.io/roced/internal/daemon/transport"
)

const (
	// upLimit limits the time from the start of a daemon to its first answer. An XDP port waits until the kernel
	// frees its queues.
	upLimit = 20 * time.Second
	// activeLimit limits the time until the links of a pair are active.
	activeLimit = 10 * time.Second
	// downLimit limits the daemon's shutdown: the daemon lets programs finish.
	downLimit = 30 * time.Second
	// addressTries limits the choices of loopback addresses that other daemons take first.
	addressTries = 5
	upLook       = 20 * time.Millisecond // polling interval

	daemonName = "roced"
	daemonLog  = "roced.log" // file in the run directory
	upLock     = "up.lock"   // file in the run directory; a lock for starting and ending a daemon
)

// ports are the port types that need only an interface. pairPorts are the port types that support a pair.
var (
	ports     = []string{"udp", "packet", "xdp"}
	pairPorts = []string{"udp", "unix"}
)

// wish is the configuration that the user requests.
type wish struct {
	port     string
	place    string // interface, address, or empty
	pair     bool
	noSwitch bool   // the NICs of a pair use their ports only
	captures string // folder, or empty
	keep     string // bound of each NIC's captures, or empty
	snap     int
	share    bool         // all users may use the NICs
	chosen   []netip.Addr // loopback addresses that were free
	first    byte         // where the search for them begins
	web      bool         // serve the live page
	segments string       // write_segments of the NICs; empty: the default
	transport.Choice
}

func (w *wish) validate() error {
	may := ports
	if w.pair {
		may = pairPorts
	}
	switch {
	case !slices.Contains(may, w.port) && w.pair:
		return fmt.Errorf("--pair and --port %w", suggest.OneOf(w.port, may))
	case !slices.Contains(may, w.port):
		return fmt.Errorf("--port %w", suggest.OneOf(w.port, may))
	case w.noSwitch && !w.pair:
		return errors.New("--no-switch requires --pair")
	case w.pair && w.place != "":
		return fmt.Errorf("--pair takes no %s, because its NICs are connected to each other", w.place)
	case w.segments != "" && w.segments != config.StandardSegments && w.segments != config.SingleSegments:
		return fmt.Errorf("--write-segments %q: must be %s or %s", w.segments, config.StandardSegments, config.SingleSegments)
	case w.segments == config.SingleSegments && w.pair && !w.noSwitch:
		return errors.New("--write-segments single: the NICs of a pair exchange packets in memory, without segments; add --no-switch")
	}
	return w.Choice.Validate()
}

// up starts a daemon in a run directory if none runs. It returns the state of the running daemon.
func up(ctx context.Context, runDir string, w *wish) (*State, error) {
	dir, err := filepath.Abs(runDir)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(rundir.CheckLength(dir), rundir.Create(dir)); err != nil {
		return nil, err
	}
	unlock, err := lock(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	s := &State{RunDir: dir, Log: filepath.Join(dir, daemonLog)}
	client := api.NewClient(filepath.Join(dir, api.Socket))
	defer client.Close()
	if client.Get(ctx, &s.NICs, "links") == nil {
		err = w.suits(ctx, client, s)
	} else {
		err = w.start(ctx, client, s)
	}
	if err != nil {
		return nil, err
	}
	if s.PID, err = daemonPID(dir); errors.Is(err, errElsewhere) {
		err = nil
	}
	return s, err
}

// lock blocks until it holds the lock of the run directory. Only one program at a time may start or end a daemon.
func lock(dir string) (unlock func(), err error) {
	if err := rundir.Check(dir); err != nil {
		return nil, err
	}
	f, err := rundir.Open(filepath.Join(dir, upLock), 0o600)
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("%w: the run directory belongs to another user; select your own with --run-dir or ROCED_RUN_DIR", err)
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil
}

// suits returns an error if the running daemon differs from the request.
func (w *wish) suits(ctx context.Context, client *api.Client, s *State) error {
	on := func(l api.Link) bool { return l.Device == w.place || slices.Contains(l.GIDs, w.place) }
	differs := ""
	switch {
	case w.place != "" && !slices.ContainsFunc(s.NICs, on):
		differs = "it has no NIC on " + w.place
	case w.pair && len(s.NICs) < 2:
		differs = "it has one NIC only"
	case w.noSwitch && slices.ContainsFunc(s.NICs, func(l api.Link) bool { return l.Switch != "" }):
		differs = "its NICs are on a switch"
	case w.web && client.Get(ctx, &api.Page{}, "page") != nil:
		differs = "it serves no page"
	case w.segments != "":
		differs = "--write-segments applies only to new NICs"
	}
	for i := range s.NICs {
		if err := w.Suits(&s.NICs[i]); err != nil && differs == "" {
			differs = err.Error()
		}
	}
	if differs == "" {
		return nil
	}
	return fmt.Errorf("a daemon runs in %s, but %s (%s down ends it)", s.RunDir, differs, daemonName)
}

// start starts a daemon. Another one that starts at the same moment can take an address that looked free: then it chooses anew.
func (w *wish) start(ctx context.Context, client *api.Client, s *State) error {
	for try := 1; ; try++ {
		text, err := w.configuration(s.RunDir)
		if err != nil {
			return err
		}
		err = w.launch(ctx, client, s, text)
		if !errors.Is(err, errEnded) || !w.taken() || try == addressTries {
			return err
		}
		w.first = byte(rand.IntN(200)) // so that daemons that started together part
	}
}

var errEnded = errors.New("roced has not started")

// taken reports whether another daemon has an address that was chosen because it was free.
func (w *wish) taken() bool {
	return slices.ContainsFunc(w.chosen, func(a netip.Addr) bool { return !free(a) })
}

// launch starts a daemon that outlives this program, and waits for its first answer.
func (w *wish) launch(ctx context.Context, client *api.Client, s *State, text string) error {
	program, err := environment.Program(daemonName)
	if err != nil {
		return err
	}
	log, err := rundir.Replace(s.Log, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.Command(program, "run", "--config", "/dev/stdin")
	c.Stdin, c.Stderr = strings.NewReader(text), log
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // shields the daemon from signals of the terminal
	if err := c.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, upLimit)
	defer cancel()
	for since := time.Now(); ; {
		var links []api.Link
		if client.Get(ctx, &links, "links") == nil && (!w.pair || active(links) || time.Since(since) > activeLimit) {
			s.NICs = links
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("%w: %s", errEnded, lastWords(s.Log))
		case <-ctx.Done():
			err := c.Process.Signal(unix.SIGTERM)
			return errors.Join(fmt.Errorf("roced does not answer: %s", lastWords(s.Log)), err)
		case <-time.After(upLook):
		}
	}
}

// active reports whether all links are up.
func active(links []api.Link) bool {
	return !slices.ContainsFunc(links, func(l api.Link) bool { return l.State != "ACTIVE" })
}

// lastWords returns the last line of a log, in which a daemon reports the reason for its end.
func lastWords(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.TrimPrefix(lines[len(lines)-1], daemonName+": ")
}

var errElsewhere = errors.New("end it there")

// down terminates the daemon of a run directory. It returns the daemon's process ID, or 0 if no daemon ran.
func down(runDir string) (pid int, err error) {
	if _, err := os.Stat(runDir); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	unlock, err := lock(runDir)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if pid, err = daemonPID(runDir); err != nil || pid == 0 {
		return 0, err
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return 0, fmt.Errorf("process %d: %w", pid, err)
	}
	if err := p.Signal(unix.SIGTERM); err != nil {
		return 0, fmt.Errorf("process %d: %w", pid, err)
	}
	for deadline := time.Now().Add(downLimit); time.Now().Before(deadline); time.Sleep(upLook) {
		if ended(p) {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("process %d does not end", pid)
}

// ended reports whether a process has ended. The first process of a container may never wait for it.
func ended(p *os.Process) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid)) // an error means that the process has ended
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z") || errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// daemonPID returns the process ID of the peer of the administration socket, or 0 if no daemon listens.
func daemonPID(runDir string) (int, error) {
	if err := rundir.CheckLength(runDir); err != nil {
		return 0, err
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(runDir, api.Socket)})
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var cerr error
	err = raw.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, cerr); err != nil {
		return 0, err
	}
	if cred.Pid == 0 {
		return 0, fmt.Errorf("the daemon of %s is in another PID namespace: %w", runDir, errElsewhere)
	}
	return int(cred.Pid), nil
}
