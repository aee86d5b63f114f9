package daemon

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"roced.io/roced/internal/daemon/server"
	"roced.io/roced/internal/daemon/sysfs"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// device is a verbs device of a NIC. A NIC has one device for each transport profile; programs choose a profile by
// the device that they open.
type device struct {
	shown  sysfs.Device
	server *server.Server
}

// deviceName returns the name of a NIC's device for a profile. The provider in libibverbs recognizes its devices by
// the first letters.
func deviceName(nic, profile string, standard bool) string {
	name := nic
	if !strings.HasPrefix(name, "rxe") {
		name = "rxe_" + name
	}
	if !standard {
		name += "_" + strings.ReplaceAll(profile, "-", "_")
	}
	return name
}

// nicTrees is the folder of per-NIC sysfs trees in the run directory.
const nicTrees = "nic"

// firmware is the firmware version that programs see.
const firmware = "1.0.0"

// startDevices creates a device for each profile, the default profile first.
func (d *Daemon) startDevices(n *nic) error {
	var err error
	if n.tree, err = sysfs.New(filepath.Join(d.cfg.RunDir, nicTrees, n.cfg.Name)); err != nil {
		return err
	}
	for i, p := range n.cfg.Profiles() {
		if err := d.startDevice(n, p, i == 0); err != nil {
			return err
		}
	}
	return nil
}

func (d *Daemon) startDevice(n *nic, profile string, standard bool) error {
	c, index := n.cfg, d.freeIndex(n)
	name := deviceName(c.Name, profile, standard)
	dev := &device{shown: sysfs.Device{Name: name, Index: index, GUID: server.GUID(n.mac),
		Firmware: firmware, Netdev: n.netdev()}}
	owner := &dev.shown // device that owns the port's files
	if !standard {
		owner = &n.devices[0].shown
		dev.shown.PortOf = owner.Name
	}
	srv, err := server.New(server.Config{
		Path: d.socket(index), Mode: fs.FileMode(c.Access.Mode),
		UIDs: c.Access.UIDs, GIDs: c.Access.GIDs, Shard: n.shard, Device: name, Profile: profile, Profiles: c.Profiles(),
		MAC: n.mac, Limits: limitsOf(&d.live.Load().Limits), Quota: n.quota, Guard: d.guard, Log: n.log,
		Share: func(uid uint32, client uint64) rocev2.Share {
			return c.Share.Of(uid, uint64(index)<<48|client) // the clients of all devices share the link
		},
		Refresh: func(ctx context.Context) error {
			return errors.Join(d.show(ctx, n, owner), d.tree.ListKernel(), n.tree.ListKernel())
		},
	})
	if err != nil {
		return err
	}
	dev.server = srv
	n.devices = append(n.devices, dev)
	n.events.Attach(srv)
	p, err := n.portShown(context.Background())
	if err == nil {
		err = d.tree.Add(&dev.shown, p)
	}
	if err == nil {
		err = n.tree.Alias(d.tree, &dev.shown)
	}
	return err
}

// freeIndex returns the lowest number that no verbs device has. n is a NIC that starts.
func (d *Daemon) freeIndex(n *nic) (index int) {
	used := map[int]bool{}
	for _, m := range append(slices.Clone(d.nics()), n) {
		for _, dev := range m.devices {
			used[dev.shown.Index] = true
		}
	}
	for used[index] {
		index++
	}
	return index
}

// portShown returns the state of the NIC's port for the sysfs tree.
func (n *nic) portShown(ctx context.Context) (*sysfs.Port, error) {
	p := &sysfs.Port{}
	err := n.shard.Do(ctx, func(_ mono.Time, core *rocev2.NIC) {
		p.Active, p.LID = core.PortAttr().State == rocev2.PortActive, core.LID()
		for _, g := range core.GIDs() {
			p.GIDs = append(p.GIDs, g.GID)
		}
		for _, c := range core.CounterSnapshot() {
			p.Counters = append(p.Counters, sysfs.Counter{Name: c.Name, Value: c.Value})
		}
	})
	return p, err
}

// show updates the port files of a NIC. They belong to the device owner.
func (d *Daemon) show(ctx context.Context, n *nic, owner *sysfs.Device) error {
	n.showing.Lock() // an older state must not overwrite a newer one
	defer n.showing.Unlock()
	p, err := n.portShown(ctx)
	if err != nil {
		return err
	}
	return d.tree.Update(owner, p)
}

// showChanges updates the tree after each port event, until the NIC ends.
func (d *Daemon) showChanges(n *nic) {
	for {
		select {
		case <-n.changed:
			if err := d.show(context.Background(), n, &n.devices[0].shown); err != nil {
				n.log.Warn("sysfs", "err", err)
			}
		case <-n.ending:
			return
		}
	}
}

// clients returns the number of clients of all devices.
func (n *nic) clients() int {
	total := 0
	for _, dev := range n.devices {
		total += dev.server.Clients()
	}
	return total
}
