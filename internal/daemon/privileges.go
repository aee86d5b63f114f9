package daemon

import (
	"roced.io/roced/internal/base/host"
	"roced.io/roced/internal/daemon/config"
)

// dropPrivileges gives the capabilities up that only opening the links has needed, if
// the configuration wants that. A TAP device that somebody deletes can then not be made
// anew, nor can a port be opened on another interface that takes the place of its own;
// everything else that happens to interfaces needs no privilege.
func (d *Daemon) dropPrivileges() error {
	if !dropsPrivileges(d.cfg) {
		return nil
	}
	if err := host.DropCaps(host.NetworkCaps); err != nil {
		if d.cfg.Privileges == config.DropPrivileges {
			return err
		}
		d.log.Warn("privileges are kept", "err", err)
		return nil
	}
	d.log.Info("privileges are dropped", "capabilities", host.NetworkCaps)
	return nil
}

// dropsPrivileges tells what the setting means: automatic keeps them for TAP devices,
// which are ours to make.
func dropsPrivileges(c *config.Config) bool {
	if c.Privileges != config.AutoPrivileges {
		return c.Privileges == config.DropPrivileges
	}
	for i := range c.NICs {
		if c.NICs[i].Port.Type == "tap" {
			return false
		}
	}
	return true
}
