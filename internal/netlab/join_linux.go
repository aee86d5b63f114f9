package netlab

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// NewNamespace makes one for networks of another shape than a Bed. It needs CAP_SYS_ADMIN.
func NewNamespace() (*Namespace, error) {
	h, err := newNamespace()
	if err != nil {
		return nil, fmt.Errorf("new network namespace: %w", err)
	}
	return &Namespace{handle: h}, nil
}

// Close gives the namespace up; it goes with the last process in it, and its devices with it.
func (n *Namespace) Close() error { return n.handle.Close() }

// Join connects two namespaces by a veth, which is called name here and peerName there, and is down.
func (n *Namespace) Join(name string, peer *Namespace, peerName string) error {
	return n.Do(func() error {
		err := netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: name, MTU: MTU}, PeerMTU: MTU,
			PeerName: peerName, PeerNamespace: netlink.NsFd(int(peer.handle)),
		})
		if err != nil {
			return fmt.Errorf("veth %s: %w", name, err)
		}
		return nil
	})
}
