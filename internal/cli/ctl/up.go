package ctl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"roced/internal/daemon/api"
)

const (
	// upLimit is how long a daemon may take to answer after its start: an XDP port waits for the kernel to give queues
	// back.
	upLimit = 20 * time.Second
	// downLimit is how long it may take to end: it lets programs finish.
	downLimit = 30 * time.Second
	upLook    = 20 * time.Millisecond // between looks

	daemonName = "roced"
	daemonLog  = "roced.log" // in the run directory
	upNIC      = "rxe_a"     // name of the NIC
)

// upPorts are the types of port that need nothing but an interface.
var upPorts = []string{"udp", "packet", "xdp"}

func (a *app) up() *cobra.Command {
	var port string
	cmd := &cobra.Command{
		Use: "up [INTERFACE|ADDRESS]", Short: "Start a daemon with one NIC in the background",
		Long: `Starts roced with one NIC, rxe_a, and shows it. A daemon that runs already is shown
as it is. The NIC is on UDP sockets, which take no privilege, of all addresses of the
interface that the default route leads out by, or of one that is named; other types of
port take those rights that docs/ports.md tells. The daemon's log is roced.log in the
run directory.`,
		Example: `  rocectl up                      no privilege needed, and no configuration
  rocectl up eth1
  rocectl up 127.0.0.2 --run-dir /tmp/b
  sudo rocectl up eth1 --port packet
  rocectl down`,
		Args: between(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if !slices.Contains(upPorts, port) {
				return usageError{fmt.Errorf("--port %q: it can be %s", port, strings.Join(upPorts, ", "))}
			}
			place := ""
			if len(args) > 0 {
				place = args[0]
			}
			links, err := a.bring(c.Context(), port, place)
			if err != nil {
				return err
			}
			return a.showLinks(links)
		},
	}
	cmd.Flags().StringVar(&port, "port", upPorts[0], "type of port: "+strings.Join(upPorts, ", "))
	return cmd
}

// bring returns the NICs of a daemon that runs, or of one that it starts. place is an interface, an address, or empty.
func (a *app) bring(ctx context.Context, port, place string) (links []api.Link, err error) {
	if a.client().Get(ctx, &links, "links") == nil {
		if place != "" && !slices.ContainsFunc(links, func(l api.Link) bool { return l.Device == place || slices.Contains(l.GIDs, place) }) {
			return nil, fmt.Errorf("a daemon runs in %s that has no NIC on %s (rocectl down ends it)", a.runDir, place)
		}
		return links, nil
	}
	if place == "" {
		if place, err = outward(); err != nil {
			return nil, err
		}
	}
	where := "interface"
	if _, err := netip.ParseAddr(place); err == nil {
		where = "address"
	}
	dir, err := filepath.Abs(a.runDir)
	if err != nil {
		return nil, err
	}
	return a.launch(ctx, dir, fmt.Sprintf("run_dir: %q\nnics:\n  - {name: %s, port: {type: %s, %s: %q}}\n", dir, upNIC, port, where, place))
}

// outward returns the interface that the default route leads out by; without one, the first that is up and has an
// address, which may be the loopback interface.
func outward() (string, error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		// A dump that was interrupted is as good as one of a moment before.
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_DST)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return "", fmt.Errorf("routes: %w", err)
		}
		if len(routes) == 0 {
			continue
		}
		best := slices.MinFunc(routes, func(a, b netlink.Route) int { return a.Priority - b.Priority })
		if i, err := net.InterfaceByIndex(best.LinkIndex); err == nil {
			return i.Name, nil
		}
	}
	all, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	loopback := ""
	for _, i := range all {
		addrs, err := i.Addrs()
		switch {
		case err != nil || len(addrs) == 0 || i.Flags&net.FlagUp == 0:
		case i.Flags&net.FlagLoopback != 0:
			loopback = i.Name
		default:
			return i.Name, nil
		}
	}
	if loopback == "" {
		return "", errors.New("no interface is up and has an address")
	}
	return loopback, nil
}

// launch starts a daemon that outlives this program, and waits until it answers.
func (a *app) launch(ctx context.Context, dir, configuration string) ([]api.Link, error) {
	program, err := findDaemon()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, daemonLog))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c := exec.Command(program, "run", "--config", "/dev/stdin")
	c.Stdin, c.Stderr = strings.NewReader(configuration), log
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the terminal's signals are not for it
	if err := c.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, upLimit)
	defer cancel()
	for {
		var links []api.Link
		if a.client().Get(ctx, &links, "links") == nil {
			return links, nil
		}
		select {
		case <-ended:
			return nil, fmt.Errorf("roced has not started: %s", lastWords(log.Name()))
		case <-ctx.Done():
			err := c.Process.Signal(unix.SIGTERM)
			return nil, errors.Join(fmt.Errorf("roced does not answer: %s", lastWords(log.Name())), err)
		case <-time.After(upLook):
		}
	}
}

// findDaemon finds roced: beside this program, or where others look for programs.
func findDaemon() (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), daemonName)
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	return exec.LookPath(daemonName)
}

// lastWords is the last line of a log, in which a daemon says why it has ended.
func lastWords(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.TrimPrefix(lines[len(lines)-1], daemonName+": ")
}

func (a *app) down() *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "End the daemon", Args: between(0, 0),
		Long: `Ends the daemon of the run directory, whoever has started it, as SIGTERM does: it lets
programs finish for a while. Without a daemon there is nothing to do.`,
		Example: "  rocectl down",
		RunE: func(c *cobra.Command, _ []string) error {
			pid, err := a.daemonPID()
			if err != nil || pid == 0 {
				return err
			}
			p, err := os.FindProcess(pid)
			if err == nil {
				err = p.Signal(unix.SIGTERM)
			}
			if err != nil {
				return fmt.Errorf("process %d: %w", pid, err)
			}
			for deadline := time.Now().Add(downLimit); time.Now().Before(deadline); time.Sleep(upLook) {
				if errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone) {
					fmt.Fprintf(a.diag, "rocectl: the daemon of %s has ended\n", a.runDir)
					return nil
				}
			}
			return fmt.Errorf("process %d does not end", pid)
		},
	}
}

// daemonPID returns the process behind the administration socket, 0 if there is none.
func (a *app) daemonPID() (int, error) {
	socket := a.socket
	if socket == "" {
		socket = filepath.Join(a.runDir, api.Socket)
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket})
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
		return 0, fmt.Errorf("the daemon of %s is in another PID namespace: it can be ended there", a.runDir)
	}
	return int(cred.Pid), nil
}
