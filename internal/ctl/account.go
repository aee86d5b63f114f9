package ctl

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"roced.io/roced/internal/daemon/api"
)

// settle is the time that the daemon has to report contexts of processes that have ended.
const settle = 10 * time.Second

// maxReport limits the length of a report.
const maxReport = 8192

// account collects the daemon's reports about the contexts of a program and its children (EXT_REPORT).
type account struct {
	dir string
	ln  *net.UnixListener
	wg  sync.WaitGroup

	mu      sync.Mutex // guards the rest
	conns   []*net.UnixConn
	reports []*api.Report // one for each process and device with queue pairs
	live    int           // contexts that have not ended
}

// newAccount listens for reports.
func newAccount() (*account, error) {
	dir, err := os.MkdirTemp("", "rocectl-")
	if err != nil {
		return nil, err
	}
	a := &account{dir: dir, reports: []*api.Report{}}
	a.ln, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: a.socket(), Net: "unixpacket"})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	a.wg.Go(a.accept)
	return a, nil
}

// socket returns the address for reports (ROCED_REPORT).
func (a *account) socket() string { return filepath.Join(a.dir, "report") }

// last is the address of the connection after which accept ends.
func (a *account) last() *net.UnixAddr {
	return &net.UnixAddr{Name: filepath.Join(a.dir, "last"), Net: "unixpacket"}
}

// accept serves connections until the last.
func (a *account) accept() {
	for {
		conn, err := a.ln.AcceptUnix()
		if err != nil {
			return
		}
		if conn.RemoteAddr().String() == a.last().Name {
			conn.Close()
			return
		}
		a.mu.Lock()
		a.conns = append(a.conns, conn)
		a.mu.Unlock()
		a.wg.Go(func() { a.read(conn) })
	}
}

// read takes the report of one context when the context ends.
func (a *account) read(conn *net.UnixConn) {
	defer conn.Close()
	b := make([]byte, maxReport)
	n, err := conn.Read(b)
	a.mu.Lock()
	defer a.mu.Unlock()
	var r api.Report
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		a.live++
	case err == nil && json.Unmarshal(b[:n], &r) == nil && len(r.QPs) > 0:
		a.add(&r)
	}
}

// add adds a report to those of the same process and device.
func (a *account) add(r *api.Report) {
	for _, known := range a.reports {
		if known.PID == r.PID && known.Program == r.Program && known.Device == r.Device {
			known.Add(r)
			return
		}
	}
	a.reports = append(a.reports, r)
}

// close waits for the reports of contexts that have ended. Call it after the end of the program.
func (a *account) close() error {
	// Connections are accepted in order, so accept has served all others before this one.
	conn, err := net.DialUnix("unixpacket", a.last(), &net.UnixAddr{Name: a.socket(), Net: "unixpacket"})
	if err != nil {
		a.ln.Close()
	} else {
		conn.Close()
	}
	a.mu.Lock()
	for _, c := range a.conns {
		_ = c.SetReadDeadline(time.Now().Add(settle)) // it may be closed already
	}
	a.mu.Unlock()
	a.wg.Wait()
	a.ln.Close()
	return errors.Join(err, os.RemoveAll(a.dir))
}
