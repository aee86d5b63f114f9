package udp

import (
	"errors"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
	"roced.io/roced/internal/lab/namespace"
)

// asAnother runs f in a namespace as another user, on a thread that ends.
func asAnother(t *testing.T, ns *namespace.Namespace, f func() error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- ns.Do(func() error {
			if _, _, e := syscall.RawSyscall(unix.SYS_SETRESUID, 65533, 65533, 65533); e != 0 {
				return e
			}
			return f()
		})
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestSourceIsHeld: another user can send from addresses of the host, but not with the source port of a NIC.
func TestSourceIsHeld(t *testing.T) {
	b, tx, rx := openBoth(t)
	for _, a := range []netip.Addr{addr4[0], addr6[0]} {
		if !tx.Bound(a, 0xc000) || tx.Bound(a, 0xc001) {
			t.Errorf("%v: bound %v, a port without a socket %v", a, tx.Bound(a, 0xc000), tx.Bound(a, 0xc001))
		}
		if rx.Bound(a, 0xc000) {
			t.Errorf("%v is bound on another host", a)
		}
	}
	asAnother(t, b.NS[0], func() error {
		for _, a := range []string{"198.18.0.1", "127.0.0.9", "0.0.0.0", "fd00::1", "::1", "::"} {
			for _, share := range []int{0, unix.SO_REUSEADDR, unix.SO_REUSEPORT} {
				addr, family := netip.MustParseAddr(a), unix.AF_INET
				var to unix.Sockaddr = &unix.SockaddrInet4{Port: 0xc000, Addr: v4Bytes(addr)}
				if addr.Is6() {
					family, to = unix.AF_INET6, &unix.SockaddrInet6{Port: 0xc000, Addr: addr.As16()}
				}
				fd, err := unix.Socket(family, unix.SOCK_DGRAM, 0)
				if err != nil {
					return err
				}
				if share != 0 {
					err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, share, 1)
				}
				if bind := unix.Bind(fd, to); !errors.Is(bind, unix.EADDRINUSE) {
					t.Errorf("%s with option %d: %v", a, share, bind)
				}
				if unix.Close(fd); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// TestFromItself: the port drops and counts datagrams whose source is its own address.
func TestFromItself(t *testing.T) {
	b, tx, rx := openBoth(t)
	for _, a := range []netip.Addr{addr4[1], addr6[1]} {
		before := rx.Stats().RecvDropped
		if err := b.NS[1].Do(func() error {
			family := unix.AF_INET
			var from, to unix.Sockaddr = &unix.SockaddrInet4{Addr: v4Bytes(a)}, &unix.SockaddrInet4{Port: bth.UDPPort, Addr: v4Bytes(a)}
			if a.Is6() {
				family, from, to = unix.AF_INET6, &unix.SockaddrInet6{Addr: a.As16()}, &unix.SockaddrInet6{Port: bth.UDPPort, Addr: a.As16()}
			}
			fd, err := unix.Socket(family, unix.SOCK_DGRAM, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return errors.Join(unix.Bind(fd, from), unix.Sendto(fd, packet(0, 100), 0, to))
		}); err != nil {
			t.Fatal(err)
		}
		mustRecvNothing(t, rx)
		if got := rx.Stats().RecvDropped; got != before+1 {
			t.Errorf("%v: %d dropped, want 1", a, got-before)
		}
	}
	mustSend(t, tx, frame(addr4[0], addr4[1], 0xc000, 0, packet(0, 100)))
	recvAll(t, rx, 1)
}
