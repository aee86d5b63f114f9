package daemon

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/config"
	"roced.io/roced/internal/lab/namespace"
	"roced.io/roced/internal/lab/netlab"
)

// followed is a daemon in this process with a NIC on an interface of a namespace.
type followed struct {
	*testing.T
	bed *netlab.Bed
	api *http.Client
	nic int
}

func newBed(t *testing.T) *netlab.Bed {
	t.Helper()
	bed, err := netlab.NewDirect([2]bool{true, true})
	if err != nil {
		if os.Geteuid() != 0 {
			t.Skipf("needs CAP_NET_ADMIN: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { bed.Close() })
	return bed
}

// startOn starts a daemon with a NIC on an interface of namespace 0.
func startOn(t *testing.T, bed *netlab.Bed, kind, iface string) (d *Daemon, runDir string, err error) {
	t.Helper()
	runDir = filepath.Join(t.TempDir(), "run")
	cfg, err := config.Read(strings.NewReader(fmt.Sprintf("run_dir: %s\nnics: [{name: rxe_a, port: {type: %s, netns: %s, interface: %s}}]",
		runDir, kind, bed.NS[0].Path(), iface)))
	if err != nil {
		t.Fatal(err)
	}
	d, err = Start(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	return d, runDir, err
}

func follow(t *testing.T, kind string, bed *netlab.Bed) *followed {
	t.Helper()
	d, runDir, err := startOn(t, bed, kind, netlab.Veth)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return &followed{T: t, bed: bed, api: client(t, runDir)}
}

// becomes waits until the link has the expected state.
func (f *followed) becomes(what string, ok func(api.Link) bool) {
	f.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var links []api.Link
		call(f.T, f.api, "GET", "/v1/links", "", 200, &links)
		if ok(links[f.nic]) {
			return
		}
		if time.Now().After(deadline) {
			f.Fatalf("waited in vain for %s: %+v", what, links[f.nic])
		}
	}
}

// on changes the interface.
func (f *followed) on(change func(netlink.Link) error) {
	f.Helper()
	changeVeth(f.T, f.bed, change)
}

func changeVeth(t *testing.T, bed *netlab.Bed, change func(netlink.Link) error) {
	t.Helper()
	err := bed.NS[0].Do(func() error {
		l, err := netlink.LinkByName(netlab.Veth)
		if err != nil {
			return err
		}
		return change(l)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSharedInterface changes an interface in all supported ways. It runs in this process so that the race detector
// sees the daemon.
func TestSharedInterface(t *testing.T) {
	for _, kind := range []string{"packet", "udp", "xdp"} {
		t.Run(kind, func(t *testing.T) {
			f := follow(t, kind, newBed(t))
			has := func(l api.Link, gid string) bool { return slices.Contains(l.GIDs, gid) }
			f.becomes("the address", func(l api.Link) bool { return l.State == "ACTIVE" && has(l, "fd00::1") && l.Port == kind })
			addr, err := netlink.ParseAddr("fd00::99/64")
			if err != nil {
				t.Fatal(err)
			}
			addr.Flags = unix.IFA_F_NODAD
			f.on(func(l netlink.Link) error { return netlink.AddrAdd(l, addr) })
			f.becomes("another address", func(l api.Link) bool { return has(l, "fd00::99") })
			f.on(func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1500) })
			f.becomes("another path MTU", func(l api.Link) bool { return l.ActiveMTU == 1024 && l.State == "ACTIVE" })
			f.on(netlink.LinkDel)
			f.becomes("no interface", func(l api.Link) bool { return l.State == "DOWN" && l.Reason != "" && !has(l, "fd00::1") })
			if err := f.bed.Wire(); err != nil {
				t.Fatal(err)
			}
			f.becomes("a new interface", func(l api.Link) bool {
				return l.State == "ACTIVE" && l.MTU == namespace.MTU && has(l, "fd00::1") && !has(l, "fd00::99")
			})
		})
	}
}

// TestSharedInterfaceDownAtFirst starts on an interface that is down.
func TestSharedInterfaceDownAtFirst(t *testing.T) {
	for _, kind := range []string{"packet", "udp", "xdp"} {
		t.Run(kind, func(t *testing.T) {
			bed := newBed(t)
			changeVeth(t, bed, netlink.LinkSetDown)
			f := follow(t, kind, bed)
			f.becomes("down", func(l api.Link) bool { return l.State == "DOWN" && strings.Contains(l.Reason, "down") })
			f.on(netlink.LinkSetUp)
			f.becomes("active", func(l api.Link) bool { return l.State == "ACTIVE" && l.Reason == "" })
		})
	}
}

// TestSharedInterfaceFaults checks the start errors for unusable interfaces.
func TestSharedInterfaceFaults(t *testing.T) {
	bed := newBed(t)
	changeVeth(t, bed, func(l netlink.Link) error { return netlink.LinkSetMTU(l, 300) })
	for _, kind := range []string{"packet", "udp", "xdp"} {
		for iface, want := range map[string]string{
			"nothing": "no such interface", "lo": "not an Ethernet interface", netlab.Veth: "MTU 300",
		} {
			if kind == "udp" && iface == "lo" {
				continue // udp accepts any interface
			}
			d, _, err := startOn(t, bed, kind, iface)
			if err == nil {
				d.Close()
				t.Errorf("%s on %s: started", kind, iface)
			} else if !strings.Contains(err.Error(), want) {
				t.Errorf("%s on %s: %v", kind, iface, err)
			}
		}
	}
}

// TestAddresses runs NICs on several addresses of one machine, including loopback addresses. One NIC follows its
// address.
func TestAddresses(t *testing.T) {
	bed := newBed(t)
	runDir := filepath.Join(t.TempDir(), "run")
	text := fmt.Sprintf("run_dir: %s\nnics:\n", runDir)
	for i, a := range []string{"127.0.0.1", "127.0.0.2", "::1", "fd00::1", "198.18.0.1"} {
		text += fmt.Sprintf("  - {name: rxe_%d, port: {type: udp, netns: %s, address: %q}}\n", i, bed.NS[0].Path(), a)
	}
	start := func() (*Daemon, error) {
		cfg, err := config.Read(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return Start(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	}
	d, err := start()
	if err != nil {
		t.Fatal(err)
	}
	var links []api.Link
	c := client(t, runDir)
	call(t, c, "GET", "/v1/links", "", 200, &links)
	macs := map[string]bool{}
	for _, l := range links {
		macs[l.MAC] = true
		if l.State != "ACTIVE" || len(l.GIDs) != 1 {
			t.Errorf("%+v", l)
		}
	}
	if len(macs) != 5 || links[0].Device != "lo" || links[4].Device != netlab.Veth || links[0].ActiveMTU != 4096 {
		t.Errorf("%+v", links)
	}
	addr, err := netlink.ParseAddr("198.18.0.1/24")
	if err != nil {
		t.Fatal(err)
	}
	f := &followed{T: t, bed: bed, api: c, nic: 4}
	f.on(func(l netlink.Link) error { return netlink.AddrDel(l, addr) })
	f.becomes("without its address", func(l api.Link) bool {
		return l.State == "DOWN" && strings.Contains(l.Reason, "198.18.0.1 does not exist") && !slices.Contains(l.GIDs, "198.18.0.1")
	})
	f.on(func(l netlink.Link) error { return netlink.AddrAdd(l, addr) })
	f.becomes("with its address", func(l api.Link) bool { return l.State == "ACTIVE" && slices.Contains(l.GIDs, "198.18.0.1") })
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	f.on(func(l netlink.Link) error { return netlink.AddrDel(l, addr) })
	if d, err := start(); err == nil || !strings.Contains(err.Error(), "address 198.18.0.1: no interface of this network namespace has this address") {
		t.Errorf("without its address: %v", err)
		d.Close()
	}
}

// TestTaken: the start fails if the kernel or another daemon uses the port of RoCEv2.
func TestTaken(t *testing.T) {
	bed := newBed(t)
	var other int
	err := bed.NS[0].Do(func() (err error) {
		// As in rxe: a socket for all addresses.
		other, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return errors.Join(err, unix.Bind(other, &unix.SockaddrInet4{Port: 4791}))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other)
	d, _, err := startOn(t, bed, "udp", netlab.Veth)
	if err == nil || !strings.Contains(err.Error(), "198.18.0.1: UDP port 4791 is taken") {
		t.Errorf("%v", err)
		d.Close()
	}
}

// TestWindowFor: a NIC sends no more than the receive buffer of the peer's socket holds.
func TestWindowFor(t *testing.T) {
	for room, want := range map[int]uint32{0: 32, 212992 * 2: 52, 8 << 20: 1024, 64 << 20: 8192} {
		if got := windowFor(room); got != want {
			t.Errorf("%d bytes: %d packets, want %d", room, got, want)
		}
	}
}
