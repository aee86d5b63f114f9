package siege

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/verbs"
)

// namespace returns the name of one of the two network namespaces whose interfaces NICs share.
func namespace(runDir string, i int) string {
	return filepath.Join(filepath.Dir(runDir), fmt.Sprintf("net%d", i))
}

// bridgehead is the interface of a namespace, and the device of the NIC that shares it.
type bridgehead struct {
	nl     *netlink.Handle
	dev    netlink.Link
	device string
	stays  netip.Addr // a permanent address
	turn   string     // lock file of the program that sets an interface down
}

// addresses changes the addresses of two interfaces, and sets them down and up. Meanwhile it writes from one to the
// other over permanent and temporary addresses. It also judges: the program exits if a WRITE fails, never completes or
// has wrong bytes, or if an added address does not serve.
func addresses(runDir string, rng *rand.Rand) {
	var heads [2]bridgehead
	for i := range heads {
		h, err := newBridgehead(runDir, i)
		if err != nil {
			giveUp("the interface", err)
		}
		defer h.nl.Close()
		heads[i] = h
	}
	stay := mustConnect(heads, [2]netip.Addr{heads[0].stays, heads[1].stays})
	defer stay.close()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			if err := stay.writeSoon(byte(n)); err != nil {
				giveUp("a WRITE over addresses that stay", err)
			}
		}
	})
	for range 4 {
		comeAndGo(heads, [2]netip.Addr{ownAddr(0, twin), ownAddr(1, twin)}, rng)
		fmt.Println("held") // the siege waits for this line
	}
}

// ownAddr returns the temporary address of interface i for one of the two programs.
func ownAddr(i int, twin uint64) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, 0, byte(16 + 2*i + int(twin))})
}

// tidy restores the state after an earlier program was killed.
func tidy(runDir string, twin uint64) error {
	for i := range 2 {
		h, err := newBridgehead(runDir, i)
		if err != nil {
			return err
		}
		h.change(h.nl.AddrDel, ownAddr(i, twin))
		h.nl.Close()
	}
	return nil
}

// giveUp exits the program, which fails the siege.
func giveUp(what string, err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
	os.Exit(1)
}

func newBridgehead(runDir string, i int) (h bridgehead, err error) {
	ns, err := netns.GetFromPath(namespace(runDir, i))
	if err != nil {
		return h, err
	}
	defer ns.Close()
	h.turn = filepath.Join(filepath.Dir(runDir), "turn")
	if h.nl, err = netlink.NewHandleAt(ns, unix.NETLINK_ROUTE); err != nil {
		return h, err
	}
	h.device, h.stays = device(runDir, []int{onPacket, onPeer}[i]), netip.AddrFrom4([4]byte{198, 18, 0, byte(i + 1)})
	if h.dev, err = h.nl.LinkByName(netlab.Veth); err == nil {
		err = h.nl.LinkSetUp(h.dev) // a killed program may have left it down
	}
	return h, err
}

// change adds or removes an address. An address that exists or is gone already is no error.
func (h *bridgehead) change(f func(netlink.Link, *netlink.Addr) error, a netip.Addr) {
	addr, err := netlink.ParseAddr(a.String() + "/24")
	if err == nil {
		err = f(h.dev, addr)
	}
	if err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EADDRNOTAVAIL) {
		giveUp("change an address", err)
	}
}

// trouble removes an address, sets an interface down and up, adds the address again, and waits until the kernel passes
// packets. The kernel checks links once a second after they come up, and drops everything until then. With two such
// changes at once, the kernel might find a link down for longer than connections last.
func trouble(heads [2]bridgehead, own [2]netip.Addr, rng *rand.Rand) error {
	turn, err := os.OpenFile(heads[0].turn, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer turn.Close()
	if err := unix.Flock(int(turn.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	moment := func() { time.Sleep(time.Duration(1+rng.IntN(50)) * time.Millisecond) }
	k, down := rng.IntN(2), &heads[rng.IntN(2)]
	moment()
	heads[k].change(heads[k].nl.AddrDel, own[k])
	moment()
	err = down.nl.LinkSetDown(down.dev)
	moment()
	err = errors.Join(err, down.nl.LinkSetUp(down.dev))
	heads[k].change(heads[k].nl.AddrAdd, own[k])
	return errors.Join(err, heads[0].serves(), heads[1].serves())
}

// serves waits until the kernel reports that the interface is up.
func (h *bridgehead) serves() error {
	for end := time.Now().Add(timeout); ; time.Sleep(5 * time.Millisecond) {
		l, err := h.nl.LinkByIndex(h.dev.Attrs().Index)
		if err != nil || l.Attrs().OperState == netlink.OperUp {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("it is %v after %v", l.Attrs().OperState, timeout)
		}
	}
}

// comeAndGo adds an address on either side, and writes between them while an address goes and returns and the links go
// down and up. Connections survive, because the interruption is shorter than their retries.
func comeAndGo(heads [2]bridgehead, own [2]netip.Addr, rng *rand.Rand) {
	for i := range heads {
		heads[i].change(heads[i].nl.AddrAdd, own[i])
	}
	p := mustConnect(heads, own)
	defer p.close()
	var over atomic.Bool
	go func() {
		defer over.Store(true)
		if err := trouble(heads, own, rng); err != nil {
			giveUp("set an interface down and up", err)
		}
	}()
	for n, last := 0, 20; last > 0; n++ {
		if over.Load() {
			last--
		}
		if err := p.writeSoon(byte(n)); err != nil {
			giveUp("a WRITE over an address that went and came", err)
		}
	}
	for i := range heads {
		heads[i].change(heads[i].nl.AddrDel, own[i])
	}
}

// mustConnect calls connectOver as soon as the links are up. Other programs set them down, too.
func mustConnect(heads [2]bridgehead, addrs [2]netip.Addr) *pair {
	for end := time.Now().Add(timeout); ; time.Sleep(5 * time.Millisecond) {
		p, err := connectOver(heads, addrs)
		if err == nil {
			return p
		}
		if time.Now().After(end) {
			giveUp(fmt.Sprintf("connect %v", addrs), err)
		}
	}
}

// connectOver connects a queue pair of each NIC from one address to the other.
func connectOver(heads [2]bridgehead, addrs [2]netip.Addr) (*pair, error) {
	p := &pair{}
	err := p.open([2]string{heads[0].device, heads[1].device}, 1, 4096)
	var side [2]verbs.ConnParams
	for i := range side {
		side[i] = connParams()
		side[i].Timeout = 17 // 0.54 s, eight times: longer than the kernel's neighbour resolution
		if err == nil {
			side[i].SGIDIndex, err = gidOf(p.ctx[i], addrs[i])
		}
	}
	if err == nil {
		err = p.join(side)
	}
	if err != nil {
		p.close()
	}
	return p, err
}

// gidOf waits until a device has the GID of an address, and returns its index.
func gidOf(c *verbs.Context, a netip.Addr) (index int, err error) {
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		for i := range 64 {
			g, err := c.QueryGID(1, i)
			if err == nil && g.Addr() == a {
				return i, nil
			}
		}
	}
	return 0, fmt.Errorf("no GID of %v after %v", a, timeout)
}

// writeSoon calls write with a time limit.
func (p *pair) writeSoon(pattern byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, err := p.write(ctx, pattern, 1024)
	return err
}
