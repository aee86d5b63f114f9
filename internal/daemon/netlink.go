package daemon

import (
	"bytes"
	"context"
	"io/fs"
	"net"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/daemon/accept"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/nldev"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// netlinkServer serves RDMA netlink to the users of any NIC. The first message of a connection is the name of the only NIC
// to show, with a final zero byte; an empty name stands for all NICs.
type netlinkServer struct {
	*accept.Listener
	d       *Daemon
	timeout time.Duration // of a client that does not read an answer; the rest of a list occupies memory meanwhile

	// turn holds an element while a list of objects is made, because each one occupies the loop of a NIC. Its holder uses
	// next, the earliest time of the next list.
	turn chan struct{}
	next time.Time
}

func (d *Daemon) startNetlink() error {
	const timeout = 10 * time.Second
	s := &netlinkServer{d: d, timeout: timeout, turn: make(chan struct{}, 1)}
	if err := s.start(filepath.Join(d.cfg.RunDir, nldev.Socket), d.cfg.SocketMode()); err != nil {
		return err
	}
	d.netlink = s
	return nil
}

// start opens the socket and serves it.
func (s *netlinkServer) start(path string, mode fs.FileMode) (err error) {
	s.Listener, err = accept.New(accept.Config{Path: path, Mode: mode, Quota: s.d.quota, Kind: quota.NetlinkSockets, Files: 1, Log: s.d.log,
		Serve: s.serve})
	return err
}

// serve answers requests until the client disconnects, sends a message that is too long, or does not read.
func (s *netlinkServer) serve(conn *accept.Client) {
	buf := make([]byte, nldev.MaxRequest+1)
	n, err := conn.Read(buf)
	name, ended := bytes.CutSuffix(buf[:n], []byte{0})
	if err != nil || !ended {
		return
	}
	v := &netlinkView{netlinkServer: s, nic: string(name), cred: conn.Cred}
	for {
		n, err := conn.Read(buf)
		if err != nil || n == 0 || n > nldev.MaxRequest {
			return
		}
		err = nldev.Answer(context.Background(), buf[:n], v, func(m []byte) error {
			if err := conn.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil {
				return err
			}
			_, err := conn.Write(m)
			return err
		})
		if err != nil {
			return
		}
	}
}

// netlinkView is the part of the daemon that a user may see: the NICs that the user may use, and the user's objects. Users
// of the admin interface see all objects.
type netlinkView struct {
	*netlinkServer
	nic  string // the only NIC; empty: all
	cred *unix.Ucred
}

// nics returns the visible NICs.
func (v *netlinkView) nics() (list []*nic) {
	for _, n := range v.d.nics() {
		if (v.nic == "" || v.nic == n.cfg.Name) && mayUse(&n.live.Load().Access, v.cred) {
			list = append(list, n)
		}
	}
	return list
}

// Devices implements nldev.View.
func (v *netlinkView) Devices() (list []nldev.Device) {
	for _, n := range v.nics() {
		for _, dev := range n.devices {
			d := nldev.Device{Index: uint32(dev.shown.Index), Name: dev.shown.Name, Firmware: dev.shown.Firmware, GUID: dev.shown.GUID,
				Capabilities: uint64(dev.server.Capabilities())}
			if i, err := net.InterfaceByName(dev.shown.Netdev); err == nil {
				d.Netdev, d.NetdevIndex = i.Name, uint32(i.Index)
			}
			list = append(list, d)
		}
	}
	return list
}

// owner returns the visible NIC of a device, and whether the device is the NIC's default.
func (v *netlinkView) owner(device string) (*nic, bool) {
	for _, n := range v.nics() {
		for i, dev := range n.devices {
			if dev.shown.Name == device {
				return n, i == 0
			}
		}
	}
	return nil, false
}

// Active implements nldev.View.
func (v *netlinkView) Active(ctx context.Context, device string) (active bool, err error) {
	n, _ := v.owner(device)
	if n == nil {
		return false, unix.ENODEV
	}
	err = n.shard.Look(ctx, func(_ mono.Time, core *rocev2.NIC) { active = core.PortAttr().State == rocev2.PortActive })
	return active, err
}

// Limits of lists: the reciprocal of the share of time that they may take, the longest pause after a list, and the time
// that a request waits for its turn. Connections that a user has closed wait, too.
const (
	listShare = 10
	listPause = 100 * time.Millisecond
	listWait  = time.Second
)

// list calls f, which occupies the loop of a NIC. Calls come one at a time, with pauses. Under many requests it returns
// EBUSY.
func (s *netlinkServer) list(f func() error) error {
	select {
	case s.turn <- struct{}{}:
	case <-time.After(listWait):
		return unix.EBUSY
	case <-s.d.ending:
		return net.ErrClosed
	}
	defer func() { <-s.turn }()
	select {
	case <-time.After(time.Until(s.next)):
	case <-s.d.ending:
		return net.ErrClosed
	}
	begin := time.Now()
	defer func() { s.next = time.Now().Add(min((listShare-1)*time.Since(begin), listPause)) }()
	return f()
}

// Resources implements nldev.View.
func (v *netlinkView) Resources(ctx context.Context, device, kind string) ([]api.Resource, error) {
	n, standard := v.owner(device)
	if n == nil {
		return nil, unix.ENODEV
	}
	var all []api.Resource
	err := v.list(func() (err error) {
		all, err = v.d.objects(ctx, n, kind)
		return err
	})
	every := accept.Allowed(v.cred, v.d.live.Load().Control.UIDs, v.d.live.Load().Control.GIDs)
	var out []api.Resource
	for _, r := range all {
		of := r.Device == device || r.CMID != nil && standard
		if of && (every || r.UID == v.cred.Uid) {
			out = append(out, r)
		}
	}
	return out, err
}

// objects returns the objects of a kind of a NIC.
func (d *Daemon) objects(ctx context.Context, n *nic, kind string) (out []api.Resource, err error) {
	switch kind {
	case "qp":
		return n.queuePairs(ctx)
	case "cm_id":
		for _, r := range d.cmIDs() {
			if r.NIC == n.cfg.Name {
				out = append(out, r)
			}
		}
		return out, nil
	}
	err = n.shard.Look(ctx, func(_ mono.Time, core *rocev2.NIC) { out = listers[kind](n.cfg.Name, core) })
	return out, err
}
