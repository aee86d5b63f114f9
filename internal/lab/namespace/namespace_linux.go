// Package namespace makes network namespaces and their devices, and starts programs and daemons in them. The namespaces
// have no names in /run/netns. They exist as long as a process refers to them, so that nothing remains however the
// process ends. RerunInUserNS runs a program without the privileges of root.
package namespace

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	thread "roced.io/roced/internal/base/netns"
)

// MTU is the MTU of bridges and veths. It has room for path MTU 4096.
const MTU = 9000

// Namespace is a network namespace. A nil Namespace stands for the namespace of this process where a method says so.
type Namespace struct {
	handle netns.NsHandle
}

// New makes a namespace. It needs CAP_SYS_ADMIN.
func New() (*Namespace, error) {
	n := &Namespace{}
	err := thread.Do("", func() (err error) {
		n.handle, err = netns.New()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("new network namespace: %w", err)
	}
	return n, nil
}

// Close releases the namespace. The kernel deletes it, and its devices, with the last process in it.
func (n *Namespace) Close() error { return n.handle.Close() }

// Path returns a path of the namespace that other processes can use while this process runs.
func (n *Namespace) Path() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(n.handle))
}

// Do runs f on an OS thread in the namespace.
func (n *Namespace) Do(f func() error) error { return thread.Do(n.Path(), f) }

// Run runs a command in the namespace. See Start.
func (n *Namespace) Run(c *exec.Cmd) error {
	if err := n.Start(c); err != nil {
		return err
	}
	return c.Wait()
}

// Join connects two namespaces with a veth, which is down. Its ends have these names.
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

// Change applies f to an interface of the calling thread's namespace.
func Change(name string, f func(netlink.Link) error) error {
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = f(l)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// AddBridge adds a bridge to the calling thread's namespace, and sets it up.
func AddBridge(name string) error {
	snooping := false
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: MTU}, MulticastSnooping: &snooping}
	if err := netlink.LinkAdd(br); err != nil {
		return fmt.Errorf("bridge %s: %w", name, err)
	}
	return SetUp(name)
}

// SetUp sets an interface of the calling thread's namespace up.
func SetUp(name string) error { return Change(name, netlink.LinkSetUp) }

// AddAddr adds an address with its prefix length to an interface of the calling thread's namespace, and sets the
// interface up.
func AddAddr(name, addr string) error {
	return Change(name, func(l netlink.Link) error {
		a, err := netlink.ParseAddr(addr)
		if err != nil {
			return err
		}
		a.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(l, a); err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
		return netlink.LinkSetUp(l)
	})
}

// Enslave adds an interface of the calling thread's namespace to a bridge, and sets the interface up.
func Enslave(name, bridge string) error {
	return Change(name, func(l netlink.Link) error {
		br, err := netlink.LinkByName(bridge)
		if err == nil {
			err = netlink.LinkSetMaster(l, br)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", bridge, err)
		}
		return netlink.LinkSetUp(l)
	})
}

// starter runs jobs that start programs on a single thread. The kernel signals the programs (PR_SET_PDEATHSIG) when the
// thread that has started them ends. This thread ends only with the process, however that ends.
var starter = sync.OnceValue(func() chan<- func() {
	jobs := make(chan func())
	go func() {
		runtime.LockOSThread()
		for job := range jobs {
			job()
		}
	}()
	return jobs
})

// Start starts a command in the namespace, or in that of this process if n is nil. The command receives SIGTERM when this
// process ends.
func (n *Namespace) Start(c *exec.Cmd) error {
	if c.SysProcAttr == nil {
		c.SysProcAttr = new(syscall.SysProcAttr)
	}
	c.SysProcAttr.Pdeathsig = syscall.SIGTERM
	done := make(chan error, 1)
	starter() <- func() { done <- n.start(c) }
	return <-done
}

// start returns the thread to its own namespace, because a namespace exists as long as a thread is in it. It does not
// enter the thread's own namespace, which an unprivileged user is not allowed to do.
func (n *Namespace) start(c *exec.Cmd) error {
	if n == nil {
		return c.Start()
	}
	home, err := netns.Get()
	if err != nil {
		return fmt.Errorf("own namespace: %w", err)
	}
	defer home.Close()
	if err := netns.Set(n.handle); err != nil {
		return fmt.Errorf("enter namespace: %w", err)
	}
	defer netns.Set(home)
	return c.Start()
}
