package daemon

import (
	"log/slog"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/daemon/accept"
	"roced.io/roced/internal/daemon/quota"
)

// admission is a listener on a Unix socket of the admin interface. It limits the connections of each user.
type admission struct {
	net.Listener
	quota *quota.Ledger
	log   *slog.Logger
}

// visitor is an admitted connection.
type visitor struct {
	net.Conn
	cred    *unix.Ucred
	account *quota.Account
	once    sync.Once
}

// Accept implements net.Listener. It closes connections of users that exceed their limit.
func (l *admission) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if v := l.admit(c); v != nil {
			return v, nil
		}
		c.Close()
	}
}

func (l *admission) admit(c net.Conn) *visitor {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil
	}
	cred, err := accept.PeerCred(u)
	if err != nil {
		return nil
	}
	account, err := accept.Charge(l.quota, cred, quota.AdminConnections, 1)
	if err != nil {
		l.log.Warn("connection to the admin interface refused", "err", err)
		return nil
	}
	return &visitor{Conn: c, cred: cred, account: account}
}

// Close implements net.Conn.
func (v *visitor) Close() error {
	v.once.Do(v.account.Close)
	return v.Conn.Close()
}
