package daemon

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/daemon/accept"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/config"
	"roced.io/roced/internal/daemon/server"
	"roced.io/roced/internal/daemon/ucma"
)

// startUCMA serves rdma_cm for all NICs on one socket. The socket admits the users of any NIC.
func (d *Daemon) startUCMA() (err error) {
	c := ucma.Config{Path: filepath.Join(d.cfg.RunDir, ucma.Socket), Quota: d.quota, Log: d.log}
	for _, n := range d.nics() {
		c.NICs = append(c.NICs, n.ofUCMA())
	}
	c.Mode = d.cfg.SocketMode()
	d.ucma, err = ucma.New(c)
	return err
}

func (n *nic) ofUCMA() ucma.NIC {
	return ucma.NIC{Name: n.cfg.Name, GUID: server.GUID(n.mac), Shard: n.shard,
		May: func(cred *unix.Ucred) bool { return mayUse(&n.live.Load().Access, cred) }}
}

// mayUse reports whether a user can connect to the socket of a NIC.
func mayUse(a *config.Access, cred *unix.Ucred) bool {
	if accept.Allowed(cred, a.UIDs, a.GIDs) {
		return true
	}
	if len(a.UIDs)+len(a.GIDs) > 0 {
		return false
	}
	// The file mode decides: the daemon owns the socket.
	bits := a.Mode & 7
	if cred.Gid == uint32(os.Getegid()) {
		bits = a.Mode >> 3 & 7
	}
	return bits&2 != 0
}

// cmIDs describes the communication identifiers.
func (d *Daemon) cmIDs() []api.Resource {
	out := []api.Resource{}
	for _, i := range d.ucma.IDs() {
		c := &api.CMID{ID: i.ID, State: i.State, PS: i.PS, Src: i.Src.String(), QPN: i.QPN}
		if i.Dst.IsValid() {
			c.Dst = i.Dst.String()
		}
		out = append(out, api.Resource{NIC: i.NIC, PID: i.PID, UID: i.UID, CMID: c})
	}
	return out
}
