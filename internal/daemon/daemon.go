// Package daemon assembles roced. From a configuration it creates ports, NICs with their shards and servers, and the
// admin interface. It shuts them down in order.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/rundir"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/config"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/internal/daemon/sysfs"
	"roced.io/roced/internal/daemon/ucma"
)

// Daemon is a running daemon.
type Daemon struct {
	cfg  *config.Config // of the start
	live atomic.Pointer[config.Config]
	log  *slog.Logger
	lock *os.File
	list atomic.Pointer[[]*nic]
	// switches are the switches by their names in the configuration.
	switches map[string]*nicSwitch
	tree     *sysfs.Tree
	guard    *shm.Guard    // of memory of clients; nil if the kernel has none
	quota    *quota.Ledger // of the resources that all NICs share
	ucma     *ucma.Server
	netlink  *netlinkServer
	events   broadcast
	admin    *http.Server
	served   sync.WaitGroup
	// ending is closed when the daemon shuts down; streams of the admin interface then end.
	ending  chan struct{}
	metrics http.Handler
	page    atomic.Pointer[api.Page] // nil: no page
	token   string                   // of the page

	reloading sync.Mutex // held during a reload and the shutdown; guards the fields below
	closed    bool
	dropped   bool // the daemon has dropped the capabilities for opening links
	output    *logOutput
	// metricsServer and pageServer are nil without an address in the configuration.
	metricsServer, pageServer *service
}

// Start starts a daemon. On error it releases everything that it created.
func Start(cfg *config.Config, log *slog.Logger) (*Daemon, error) {
	d := &Daemon{cfg: cfg, log: log, ending: make(chan struct{}), switches: map[string]*nicSwitch{}}
	d.live.Store(cfg)
	d.quota = daemonQuota(&cfg.Limits)
	d.metrics = d.newMetrics()
	err := d.start()
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func (d *Daemon) start() (err error) {
	if d.lock, err = lockRunDir(d.cfg.RunDir); err != nil {
		return err
	}
	if d.tree, err = sysfs.New(filepath.Join(d.cfg.RunDir, "sysfs")); err != nil {
		return err
	}
	if err = os.RemoveAll(filepath.Join(d.cfg.RunDir, nicTrees)); err != nil { // left by a daemon that died
		return err
	}
	if d.guard, err = shm.NewGuard(); err != nil {
		d.log.Warn("memory that programs register can count as memory of this daemon", "err", err)
	}
	for i := range d.cfg.NICs {
		n, err := d.startNIC(&d.cfg.NICs[i], d.cfg)
		if err != nil {
			return fmt.Errorf("NIC %s: %w", d.cfg.NICs[i].Name, err)
		}
		d.setNICs(append(d.nics(), n))
	}
	if err := d.startUCMA(); err != nil {
		return fmt.Errorf("rdma_cm: %w", err)
	}
	if err := d.startNetlink(); err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	return d.startAdmin()
}

// ErrRunning reports that another daemon uses the run directory.
var ErrRunning = errors.New("another roced uses it: end that with \"rocectl down\", or set another run_dir or --run-dir")

// lockRunDir creates the run directory and locks it. The kernel releases the lock when the process ends.
func lockRunDir(dir string) (*os.File, error) {
	if err := rundir.Create(dir); err != nil {
		return nil, err
	}
	f, err := rundir.Open(filepath.Join(dir, "lock"), 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("run directory %s: %w", dir, ErrRunning)
		}
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return f, nil
}

// nics returns the NICs. The list does not change; a reload makes a new one.
func (d *Daemon) nics() []*nic {
	if l := d.list.Load(); l != nil {
		return *l
	}
	return nil
}

func (d *Daemon) setNICs(l []*nic) { d.list.Store(&l) }

// nic returns the NIC of that name, or nil.
func (d *Daemon) nic(name string) *nic {
	for _, n := range d.nics() {
		if n.cfg.Name == name {
			return n
		}
	}
	return nil
}

// unknown is the answer to a request for a NIC that does not exist.
func (d *Daemon) unknown(name string) api.Fault {
	var names []string
	for _, n := range d.nics() {
		names = append(names, n.cfg.Name)
	}
	return api.Fault{Error: fmt.Sprintf("no such NIC: %s; there are %s", name, strings.Join(names, ", "))}
}

// drainLook is the interval between two checks of a draining daemon.
const drainLook = 50 * time.Millisecond

// drainQuiet is the number of consecutive checks without client activity that end a drain. One check is not enough: a
// client may just have connected.
const drainQuiet = 10

// Drain refuses new clients. It returns when all clients have left, when they have been idle for a while, or when ctx
// ends.
func (d *Daemon) Drain(ctx context.Context) error {
	d.ucma.StopAccepting()
	for _, n := range d.nics() {
		for _, dev := range n.devices {
			dev.server.StopAccepting()
		}
	}
	nics := d.nics()
	last := make([]uint64, len(nics))
	tick := time.NewTicker(drainLook)
	defer tick.Stop()
	for quiet := 0; ; {
		clients, busy := 0, false
		for i, n := range nics {
			work, idle := n.activity(ctx)
			here := n.clients()
			clients += here
			busy = busy || here > 0 && (!idle || work != last[i])
			last[i] = work
		}
		if quiet++; busy {
			quiet = 0
		}
		if clients == 0 || quiet > drainQuiet {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close shuts everything down and releases the run directory.
func (d *Daemon) Close() error {
	var errs []error
	d.reloading.Lock()
	d.closed = true
	d.reloading.Unlock()
	close(d.ending)
	d.unshareTurns()
	for _, n := range d.nics() {
		n.end()
	}
	if d.admin != nil {
		errs = append(errs, d.admin.Close())
		errs = append(errs, remove(filepath.Join(d.cfg.RunDir, api.Socket)))
	}
	if d.netlink != nil {
		errs = append(errs, d.netlink.Close())
	}
	d.served.Wait()
	if d.ucma != nil {
		errs = append(errs, d.ucma.Close()) // its connections need the NICs
	}
	for _, n := range d.nics() {
		errs = append(errs, n.close())
	}
	if d.guard != nil {
		errs = append(errs, d.guard.Close())
	}
	if d.tree != nil {
		errs = append(errs, d.tree.Close(), remove(filepath.Join(d.cfg.RunDir, nicTrees)))
	}
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
	}
	return errors.Join(errs...)
}

// remove removes a file; a missing file is no error.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
