package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/host"
)

// service is a server that a reload can replace: the metrics on TCP, or the live page.
type service struct {
	address string       // of the configuration
	ln      net.Listener // on TCP; nil: path is set
	path    string       // of its Unix socket
	stop    func()
}

// end ends a server that next replaces. Either may be nil.
func (s *service) end(next *service) {
	if s == nil {
		return
	}
	s.stop()
	if s.path != "" && (next == nil || next.path != s.path) {
		os.Remove(s.path)
	}
}

// listen opens a TCP listener for the configuration key. It takes that of the server that it will replace, if the address is the
// same: no other program can get the port meanwhile.
func listen(key, address string, old *service) (net.Listener, error) {
	ln, err := listenAgain(address, old)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("%s: %w: another program, or another roced, uses this port; choose a free one", key, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return ln, nil
}

func listenAgain(address string, old *service) (net.Listener, error) {
	if old == nil || old.ln == nil || old.address != address {
		return host.Listen(address)
	}
	f, err := old.ln.(*net.TCPListener).File()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileListener(f)
}

// hinders reports whether err says that an address is in use, by s: one of two addresses with the same port includes the other,
// as 0.0.0.0 does.
func (s *service) hinders(err error) bool {
	var op *net.OpError
	if s == nil || s.ln == nil || !errors.Is(err, unix.EADDRINUSE) || !errors.As(err, &op) {
		return false
	}
	wanted, ok := op.Addr.(*net.TCPAddr)
	return ok && wanted.Port == s.ln.Addr().(*net.TCPAddr).Port
}
