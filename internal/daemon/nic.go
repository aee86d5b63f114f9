package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/fault"
	"roced.io/roced/internal/base/host"
	"roced.io/roced/internal/daemon/config"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/internal/daemon/server"
	"roced.io/roced/internal/daemon/shard"
	"roced.io/roced/internal/daemon/sysfs"
	"roced.io/roced/internal/observe/capture"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/planes"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
	"roced.io/roced/verbs"
)

// nic is a NIC with its port, shard, devices and observers.
type nic struct {
	cfg     *config.NIC                // of the start
	live    atomic.Pointer[config.NIC] // its access, fault rules and congestion control apply
	log     *slog.Logger
	port    *port.Faulty
	shared  *shared          // nil: the port is not shared with the kernel
	planes  *planes.Port     // the port, if it has several planes; else nil
	watched []*host.Follower // of the devices of planes that are not shared
	mac     inet.MAC         // at the start; the NIC's address follows its interface, GUIDs do not
	shard   *shard.NIC
	sw      *nicSwitch // nil: on no switch
	devices []*device
	quota   *quota.Ledger
	tree    *sysfs.Tree   // of this NIC alone
	showing sync.Mutex    // held during an update of the tree
	changed chan struct{} // signals a change of the port
	ending  chan struct{} // closed when the NIC shuts down; its streams then end
	end     func()        // closes ending
	events  *server.Events
	makers  atomic.Pointer[makers]
	failed  func(*rocev2.QueuePair, qp.Status) // reports a completion in error
	taps    taps
	// captures holds the captures that clients have named.
	captures named
	rules    []fault.Rule     // active rules; guarded by the shard
	file     *capture.Capture // capture of the configuration; nil: none

	// accessLog belongs to the shard: the time of the next line, and the number of suppressed lines.
	accessLog struct {
		next time.Time
		more int
	}
}

// startNIC starts a NIC of a configuration.
func (d *Daemon) startNIC(c *config.NIC, all *config.Config) (n *nic, err error) {
	ending := make(chan struct{})
	n = &nic{cfg: c, log: d.log.With("nic", c.Name), sw: d.switchOf(c.Switch), events: &server.Events{}, changed: make(chan struct{}, 1),
		ending: ending, end: sync.OnceFunc(func() { close(ending) })}
	n.live.Store(c)
	n.makers.Store(makersOf(c))
	n.failed = func(q *rocev2.QueuePair, s qp.Status) {
		e := newEvent(c.Name, "qp", uint32(q.Num()), server.OwnerOf(q.Ctx), 0)
		e.Event, e.Status = "completion_error", verbs.Status(s).String()
		d.events.send(e)
	}
	n.events.Observe = func(what string, num uint32, o *server.Owner, e qp.Event) {
		d.events.send(newEvent(c.Name, what, num, o, e))
		if what == "qp" && e == qp.EventQPAccessErr && o != nil {
			n.logAccessError(num, o)
		}
		if what == "port" {
			select {
			case n.changed <- struct{}{}:
			default: // a change is pending already
			}
		}
	}
	begun := n // an error return sets n to nil
	defer func() {
		if err != nil {
			err = errors.Join(err, begun.close())
		}
	}()
	if err := n.openPort(); err != nil {
		return nil, err
	}
	core, err := n.build(all.Metrics.Listen != "") // record distributions only for metrics
	if err != nil {
		return nil, err
	}
	if err := n.startShard(core, n.sw.beside(n)); err != nil {
		return nil, err
	}
	if err := n.join(); err != nil {
		return nil, err
	}
	n.quota = d.nicQuota(core.Limits())
	if c.Capture.File != "" {
		if err := n.captureFile(); err != nil {
			return nil, err
		}
	}
	if err := d.startDevices(n); err != nil {
		return nil, err
	}
	d.served.Go(func() { d.showChanges(n) })
	n.log.Info("NIC is up", "mac", n.mac, "port", c.Port.Type, "access", fmt.Sprintf("%#o", uint(c.Access.Mode)))
	return n, nil
}

// accessLogPause is the minimum time between log lines about remote access errors. Any client that can connect to a
// program can cause such errors.
const accessLogPause = time.Minute

// logAccessError logs a queue pair that an access error broke. It runs on the shard.
func (n *nic) logAccessError(num uint32, o *server.Owner) {
	l := &n.accessLog
	if now := time.Now(); now.After(l.next) {
		n.log.Warn("queue pair is broken: its peer has no right to the memory that it asked for",
			"qpn", num, "client", o.Client, "pid", o.PID, "uid", o.UID, "more", l.more)
		l.next, l.more = now.Add(accessLogPause), 0
		return
	}
	l.more++
}

// startShard starts the NIC's station, on the shard of another NIC if there is one beside it, and makes the NIC follow its interface.
func (n *nic) startShard(core *rocev2.NIC, beside *nic) (err error) {
	cfg := shard.Config{NIC: core, Port: n.port, Poll: n.cfg.Poll.Duration(), OnFault: func(addr uintptr) {
		n.log.Error("client memory vanished", "addr", addr)
	}}
	if n.shared != nil {
		cfg.Ask = n.shared.ask
	}
	if beside != nil {
		cfg.Beside = beside.shard
	}
	if n.shard, err = shard.New(cfg); err != nil {
		return err
	}
	if n.shared != nil {
		n.shared.run()
	}
	for _, f := range n.watched {
		f.Run(watcher{n})
	}
	return nil
}

// build creates the NIC and applies the fault rules of the configuration. distributions enables the recording of
// distributions.
func (n *nic) build(distributions bool) (*rocev2.NIC, error) {
	c := n.cfg
	var err error
	if n.rules, err = fault.ParseAll(c.Faults); err != nil {
		return nil, err
	}
	if err := n.port.SetRules(n.rules); err != nil {
		return nil, err
	}
	cfg, err := n.coreConfig()
	if err != nil {
		return nil, err
	}
	n.mac = cfg.MAC
	cfg.Events, cfg.Failed, cfg.MaxUnacked = n.events, n.failed, c.MaxUnacked
	if r, ok := n.roomy(); ok {
		cfg.PeerWindow = max(windowFor(r), c.MaxUnacked)
	}
	cfg.Local = c.Port.Type == "udp" || c.Port.Type == "unix"
	cfg.CNPInterval, cfg.CNPClass = c.Congestion.Interval(), rocev2.ClassOf(uint8(*c.Congestion.CNPDSCP), 0)
	cfg.SingleWrites = c.WriteSegments == config.SingleSegments
	cfg.Limits = nicLimits
	cfg.NewProfile = func(name string) (qp.Profile, error) { return n.makers.Load().byName(name) }
	cfg.MRCProfile = func(ev, cc uint64) (qp.Profile, error) { return n.makers.Load().byNumber(ev, cc) }
	cfg.Quantum, cfg.Distributions = int(c.Share.Quantum), distributions
	if _, err := rand.Read(cfg.Seed[:]); err != nil {
		return nil, err
	}
	return rocev2.New(cfg)
}

// makers are the factories for the plug-ins of new queue pairs.
type makers struct {
	byName   func(string) (qp.Profile, error)
	byNumber func(ev, cc uint64) (qp.Profile, error)
}

func makersOf(c *config.NIC) *makers {
	m := &makers{}
	m.byName, m.byNumber = c.Makers()
	return m
}

func limitsOf(l *config.Limits) server.Limits {
	return server.Limits{Connections: l.Connections, QPs: l.QPs, CQs: l.CQs, SRQs: l.SRQs, MRs: l.MRs, MWs: l.MWs,
		PDs: l.PDs, AHs: l.AHs, Channels: l.Channels, Memory: int64(l.Memory)}
}

// activity returns a number that changes with every frame, doorbell and command. idle reports that the NIC has no
// timer pending.
func (n *nic) activity(ctx context.Context) (work uint64, idle bool) {
	st, err := n.shard.Stats(ctx)
	if err != nil {
		return 0, false
	}
	err = n.shard.Do(ctx, func(_ mono.Time, core *rocev2.NIC) { idle = core.NextTimeout() == mono.Never })
	work = st.RxFrames + st.TxFrames + st.Doorbells
	for _, dev := range n.devices {
		work += dev.server.Commands()
	}
	return work, err == nil && idle
}

// setRules replaces the fault rules by the result of change.
func (n *nic) setRules(ctx context.Context, change func(old []fault.Rule) []fault.Rule) error {
	var err error
	derr := n.shard.Do(ctx, func(_ mono.Time, core *rocev2.NIC) {
		rules := change(n.rules)
		if err = n.port.SetRules(rules); err == nil {
			n.rules = rules
			core.SetOffload(n.port.Offload())
		}
	})
	return errors.Join(derr, err)
}

// close shuts the NIC down. It also works on a NIC that is only partly created.
func (n *nic) close() error {
	var errs []error
	n.end()
	for _, dev := range n.devices {
		errs = append(errs, dev.server.Close())
	}
	if n.tree != nil {
		errs = append(errs, n.tree.Close())
	}
	if n.file != nil {
		_, err := n.stopCapture(n.file)
		errs = append(errs, err)
	}
	if n.shared != nil {
		n.shared.close()
	}
	for _, f := range n.watched {
		f.Close()
	}
	if n.shard != nil {
		n.leave()
		errs = append(errs, n.shard.Close())
	}
	if n.port != nil {
		errs = append(errs, n.port.Close())
	}
	return errors.Join(errs...)
}
