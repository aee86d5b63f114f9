package flor

import (
	"context"
	"net/netip"
	"sync"
)

// standard is the device that Dial and Listen use.
var standard = sync.OnceValues(func() (*Device, error) { return Open(Config{}) })

// Dial connects to a Listener by the first NIC of this host, which stays open from then on.
func Dial(ctx context.Context, to netip.AddrPort) (*Conn, error) {
	d, err := standard()
	if err != nil {
		return nil, err
	}
	return d.Dial(ctx, to)
}

// Listen listens at the first NIC of this host, which stays open from then on.
func Listen(at netip.AddrPort) (*Listener, error) {
	d, err := standard()
	if err != nil {
		return nil, err
	}
	return d.Listen(at)
}
