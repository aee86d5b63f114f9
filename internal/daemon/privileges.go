package daemon

import (
	"roced.io/roced/internal/base/host"
	"roced.io/roced/internal/daemon/config"
)

// dropPrivileges drops the capabilities that only opening links needs, if the configuration requests it. Afterwards
// the daemon cannot recreate a deleted TAP device. It also cannot open a port on an interface that replaces its own.
// All other interface events need no privilege.
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
	d.dropped = true
	d.log.Info("privileges are dropped", "capabilities", host.NetworkCaps)
	return nil
}

// dropsPrivileges evaluates the setting: auto keeps the capabilities for TAP devices, because the daemon creates
// those.
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
