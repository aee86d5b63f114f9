package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"roced.io/roced/internal/base/fault"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/config"
	"roced.io/roced/internal/daemon/sysfs"
)

// Reload reads the configuration file again and applies its changes. It returns their keys. On error it has changed
// nothing. force removes NICs that have clients.
func (d *Daemon) Reload(force bool) (changed []string, err error) {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	if d.closed {
		return nil, errors.New("the daemon shuts down")
	}
	next, err := d.live.Load().Again()
	if err != nil {
		return nil, err
	}
	return d.change(next, force)
}

// change changes the running daemon to a configuration.
func (d *Daemon) change(next *config.Config, force bool) (changed []string, err error) {
	ch := next.ChangesFrom(d.live.Load())
	d.refuse(ch, next, force)
	if ch.Refused != nil {
		return nil, ch.Refused
	}
	r := &reload{Daemon: d, Changes: ch, old: d.live.Load(), next: next}
	if err := r.apply(); err != nil {
		r.rollBack()
		return nil, err
	}
	r.finish()
	changed = ch.Keys
	for _, name := range ch.Added {
		changed = append(changed, "nics["+name+"], added")
	}
	for _, name := range ch.Removed {
		changed = append(changed, "nics["+name+"], removed")
	}
	return changed, nil
}

// refuse refuses added NICs that need a dropped capability, and removed NICs with clients.
func (d *Daemon) refuse(ch *config.Changes, next *config.Config, force bool) {
	for i := range next.NICs {
		p := &next.NICs[i].Port
		if d.dropped && slices.Contains(ch.Added, next.NICs[i].Name) && (p.Netns != "" || p.Type == "tap" || p.Type == "packet" || p.Type == "xdp") {
			ch.Refused = append(ch.Refused, next.Fault(fmt.Sprintf("nics.%d.port", i),
				"this port needs capabilities that the daemon has dropped: restart it, for later reloads with privileges: keep"))
		}
	}
	for _, name := range ch.Removed {
		n := d.nic(name)
		for _, added := range ch.Added {
			if reflect.DeepEqual(next.NIC(added).Port, n.cfg.Port) {
				ch.Refused = append(ch.Refused, next.Fault("nics", "NIC %s has the port of NIC %s, which is removed: remove that in a reload of its own", added, name))
			}
		}
		if clients := n.clients() + d.ucma.Uses(name); clients > 0 && !force {
			ch.Refused = append(ch.Refused, next.Fault("nics",
				"NIC %s has %d clients: end them, or use roced reload --force, which disconnects them", name, clients))
		}
	}
}

// reload is a change of the running daemon. Each step that can fail adds its reversal to undo.
type reload struct {
	*Daemon
	*config.Changes
	old, next *config.Config
	undo      []func() error
}

// apply does the steps that can fail.
func (r *reload) apply() error {
	for _, name := range r.Added {
		if err := r.addNIC(r.next.NIC(name)); err != nil {
			return fmt.Errorf("NIC %s: %w", name, err)
		}
	}
	if err := r.permit(); err != nil {
		return err
	}
	for _, n := range r.kept() {
		if !r.Within("nics[" + n.cfg.Name + "].faults") {
			continue
		}
		if err := r.setFaults(n); err != nil {
			return fmt.Errorf("fault rules of NIC %s: %w", n.cfg.Name, err)
		}
	}
	if r.Within("metrics.") {
		if err := r.replace(&r.metricsServer, r.startMetrics); err != nil {
			return err
		}
	}
	if r.Within("web.") || r.Within("control.mode") || len(r.Added)+len(r.Removed) > 0 {
		return r.replace(&r.pageServer, r.startPage)
	}
	return nil
}

// rollBack undoes the steps, the last one first.
func (r *reload) rollBack() {
	for _, undo := range slices.Backward(r.undo) {
		if err := undo(); err != nil {
			r.log.Error("a part of a refused reload could not be undone", "err", err)
		}
	}
}

// kept returns the NICs of both configurations.
func (r *reload) kept() []*nic {
	return slices.DeleteFunc(slices.Clone(r.nics()), func(n *nic) bool {
		return slices.Contains(r.Removed, n.cfg.Name) || slices.Contains(r.Added, n.cfg.Name)
	})
}

// addNIC starts a NIC and shows it to programs.
func (r *reload) addNIC(c *config.NIC) error {
	n, err := r.startNIC(c, r.next)
	if err != nil {
		return err
	}
	r.undo = append(r.undo, func() error { return r.dropNIC(n) })
	if err := r.ucma.Add(n.ofUCMA()); err != nil {
		return err
	}
	r.setNICs(append(slices.Clone(r.nics()), n))
	return nil
}

// dropNIC ends a NIC and its clients.
func (d *Daemon) dropNIC(n *nic) error {
	d.setNICs(slices.DeleteFunc(slices.Clone(d.nics()), func(m *nic) bool { return m == n }))
	var devices []*sysfs.Device
	for _, dev := range n.devices {
		devices = append(devices, &dev.shown)
	}
	n.end()
	n.showing.Lock() // no update of the files follows
	err := d.tree.Remove(devices...)
	n.showing.Unlock()
	d.ucma.Remove(n.cfg.Name)
	return errors.Join(err, n.close())
}

// permit changes the modes and users of sockets.
func (r *reload) permit() error {
	set := func(c *config.Config) error {
		errs := []error{os.Chmod(filepath.Join(r.cfg.RunDir, api.Socket), fs.FileMode(c.Control.Mode)),
			r.ucma.Permit(c.SocketMode()), r.netlink.Permit(c.SocketMode(), nil, nil)}
		for _, n := range r.kept() {
			a := &c.NIC(n.cfg.Name).Access
			for _, dev := range n.devices {
				errs = append(errs, dev.server.Permit(fs.FileMode(a.Mode), a.UIDs, a.GIDs))
			}
		}
		return errors.Join(errs...)
	}
	r.undo = append(r.undo, func() error { return set(r.old) })
	return set(r.next)
}

// setFaults replaces the fault rules of a NIC, also those that were added since the start.
func (r *reload) setFaults(n *nic) error {
	rules, err := fault.ParseAll(r.next.NIC(n.cfg.Name).Faults)
	if err != nil {
		return err
	}
	var before []fault.Rule
	err = n.setRules(context.Background(), func(old []fault.Rule) []fault.Rule {
		before = old
		return rules
	})
	if err == nil {
		r.undo = append(r.undo, func() error {
			return n.setRules(context.Background(), func([]fault.Rule) []fault.Rule { return before })
		})
	}
	return err
}

// replace replaces a server by that of the new configuration, which listens before the old one ends.
func (r *reload) replace(s **service, start func(*config.Config, *service) (*service, error)) error {
	change := func(to *config.Config) error {
		next, err := start(to, *s)
		if (*s).hinders(err) {
			(*s).end(nil)
			*s = nil
			next, err = start(to, nil)
		}
		if err != nil {
			return err
		}
		(*s).end(next)
		*s = next
		return nil
	}
	was := *s
	r.undo = append(r.undo, func() error {
		if *s == was {
			return nil
		}
		return change(r.old)
	})
	return change(r.next)
}

// finish does the steps that cannot fail, and removes NICs.
func (r *reload) finish() {
	limits := limitsOf(&r.next.Limits)
	each, _ := daemonAmounts(&r.next.Limits)
	r.quota.SetEach(each)
	for _, n := range r.nics() {
		c := r.next.NIC(n.cfg.Name)
		if c == nil {
			continue // it is removed below
		}
		n.quota.SetEach(limits.Amounts())
		for _, dev := range n.devices {
			dev.server.SetLimits(limits)
		}
		n.makers.Store(makersOf(c))
		n.live.Store(c)
	}
	if r.output != nil {
		r.output.set(&r.next.Log)
	}
	r.live.Store(r.next)
	for _, name := range r.Removed {
		if err := r.dropNIC(r.nic(name)); err != nil {
			r.log.Error("NIC is removed", "nic", name, "err", err)
		}
	}
}

// postReload reloads the configuration. A refusal has status 409.
func (d *Daemon) postReload(w http.ResponseWriter, r *http.Request) {
	var in api.Reload
	if err := readBody(w, r, &in); err != nil {
		answer(w, http.StatusBadRequest, api.Fault{Error: err.Error()})
		return
	}
	changed, err := d.Reload(in.Force)
	if err != nil {
		d.log.Warn("reload refused, nothing has changed", "err", err)
		answer(w, http.StatusConflict, api.Fault{Error: err.Error()})
		return
	}
	d.log.Info("configuration reloaded", "changed", changed)
	answer(w, http.StatusOK, api.Reloaded{Changed: changed})
}
