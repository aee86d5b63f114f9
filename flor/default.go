package flor

import (
	"context"
	"net/netip"
	"sync"
)

// standard is the device of Dial and Listen.
var standard = sync.OnceValues(func() (*Device, error) { return Open(Config{}) })

// Dial connects to a Listener through the first NIC of this host. The NIC stays open afterwards.
func Dial(ctx context.Context, to netip.AddrPort) (*Conn, error) {
	d, err := standard()
	if err != nil {
		return nil, err
	}
	return d.Dial(ctx, to)
}

// Listen listens on the first NIC of this host. The NIC stays open afterwards.
func Listen(at netip.AddrPort) (*Listener, error) {
	d, err := standard()
	if err != nil {
		return nil, err
	}
	return d.Listen(at)
}
