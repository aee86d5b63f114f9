package attach

import (
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// filterName matches the names of the filters of this package. Each filter has a unique name. A live process claims the
// name of its filter with a socket of the same name in the abstract namespace of AF_UNIX. Like interfaces, abstract
// names belong to a network namespace, and the kernel frees them however the process ends. A PID has another meaning in
// another container, and may be reused. A local user can claim a name as well and prevent Attach or Clean, but cannot
// cause the removal of a filter.
var filterName = regexp.MustCompile(`^roced:[0-9a-f]{16}(` + madeClsact + `)?$`)

const (
	// madeClsact is the suffix of filters whose qdisc this package has made and removes with the last filter. The
	// first filter has the suffix because it made the qdisc; the others inherit it.
	madeClsact = ":qdisc"
	// firstPriority is the priority that the kernel assigns to the first filter without one. The kernel places later
	// filters without a priority before it (net/sched/cls_api.c).
	firstPriority = 0xc000
	lastPriority  = 0xffff
	filterHandle  = 1 // unique, because each filter has its own priority

	lockTimeout = 10 * time.Second
)

var parents = [...]uint32{Ingress: netlink.HANDLE_MIN_INGRESS, Egress: netlink.HANDLE_MIN_EGRESS}

// filter is a filter of this process.
type filter struct {
	ifindex int
	name    string
	claim   int // socket
}

// addFilter adds a program after all filters of a direction.
func addFilter(ifindex int, p *ebpf.Program, d Direction) (_ *filter, err error) {
	unlock, err := lock(ifindex)
	if err != nil {
		return nil, err
	}
	defer unlock()
	made, err := ensureClsact(ifindex)
	if err != nil {
		return nil, err
	}
	f, err := newFilter(ifindex, made)
	if err == nil {
		if err = f.add(p, d); err == nil {
			return f, nil
		}
		unix.Close(f.claim)
	}
	if made {
		err = errors.Join(err, removeIfEmpty(ifindex))
	}
	return nil, err
}

// ensureClsact adds the qdisc to an interface unless it exists. ours reports whether this package made it, now or for an
// existing filter.
func ensureClsact(ifindex int) (ours bool, err error) {
	err = netlink.QdiscAdd(clsact(ifindex))
	if err == nil {
		return true, nil
	}
	if errors.Is(err, unix.ENOENT) {
		return false, fmt.Errorf("the kernel lacks the clsact qdisc; build it with CONFIG_NET_SCH_INGRESS: %w", err)
	}
	if !errors.Is(err, unix.EEXIST) {
		return false, err
	}
	qdiscs, err := netlink.QdiscList(device(ifindex))
	if err != nil {
		return false, err
	}
	for _, q := range qdiscs {
		// In an ingress qdisc, egress filters process received frames.
		if q.Type() == "ingress" {
			return false, errors.New("the interface has an ingress qdisc, which excludes clsact: remove it (tc qdisc del dev ... ingress)")
		}
	}
	fs, err := ourFilters(ifindex)
	return slices.ContainsFunc(fs, hasMadeClsact), err
}

// newFilter generates a name and claims it.
func newFilter(ifindex int, made bool) (*filter, error) {
	var b [8]byte
	rand.Read(b[:]) // never fails
	f := &filter{ifindex: ifindex, name: fmt.Sprintf("roced:%x", b)}
	if made {
		f.name += madeClsact
	}
	var err error
	f.claim, err = claim(f.name)
	return f, err
}

func (f *filter) add(p *ebpf.Program, d Direction) error {
	there, err := netlink.FilterList(device(f.ifindex), parents[d])
	if err != nil {
		return err
	}
	priority := uint16(firstPriority)
	for _, o := range there {
		if o.Attrs().Priority == lastPriority {
			return errors.New("a filter has the last priority, 65535; give it an earlier one")
		}
		priority = max(priority, o.Attrs().Priority+1)
	}
	err = netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: f.ifindex, Parent: parents[d], Handle: filterHandle, Priority: priority, Protocol: unix.ETH_P_ALL,
		},
		Fd: p.FD(), Name: f.name, DirectAction: true,
	})
	runtime.KeepAlive(p)
	if errors.Is(err, unix.ENOENT) {
		err = fmt.Errorf("the kernel lacks BPF filters; build it with CONFIG_NET_CLS_BPF: %w", err)
	}
	return err
}

// Close removes the filter, and the qdisc if this package made it and it has no other filter.
func (f *filter) Close() error {
	err := remove(f.ifindex, func(name string) (bool, error) { return name == f.name, nil })
	return errors.Join(err, unix.Close(f.claim))
}

// Clean removes the filters that killed processes have left on an interface, and the qdisc if this package made it and
// it has no other filter.
func Clean(ifindex int) error {
	fs, err := ourFilters(ifindex)
	if err == nil && len(fs) > 0 {
		err = remove(ifindex, isFree)
	}
	if err != nil {
		return fmt.Errorf("clsact: stale filters: %w", err)
	}
	return nil
}

// remove removes the filters of this package whose names are chosen. The lock prevents other processes from reusing the
// priority of a filter before its removal.
func remove(ifindex int, chosen func(name string) (bool, error)) error {
	unlock, err := lock(ifindex)
	if err != nil {
		return err
	}
	defer unlock()
	fs, err := ourFilters(ifindex)
	if err != nil {
		return err
	}
	made := false
	for _, f := range fs {
		yes, err := chosen(f.Name)
		if err == nil && yes {
			made = made || hasMadeClsact(f)
			err = netlink.FilterDel(f)
		}
		if err != nil {
			return err
		}
	}
	if !made {
		return nil
	}
	return removeIfEmpty(ifindex)
}

// removeIfEmpty removes the qdisc if it has no filter of any origin.
func removeIfEmpty(ifindex int) error {
	for _, parent := range parents {
		if fs, err := netlink.FilterList(device(ifindex), parent); err != nil || len(fs) > 0 {
			return err
		}
	}
	return netlink.QdiscDel(clsact(ifindex))
}

// ourFilters returns the filters of this package on an interface, including those of killed processes.
func ourFilters(ifindex int) (ours []*netlink.BpfFilter, err error) {
	for _, parent := range parents {
		fs, err := netlink.FilterList(device(ifindex), parent)
		if err != nil {
			return nil, fmt.Errorf("filters: %w", err)
		}
		for _, f := range fs {
			if b, ok := f.(*netlink.BpfFilter); ok && filterName.MatchString(b.Name) {
				ours = append(ours, b)
			}
		}
	}
	return ours, nil
}

func hasMadeClsact(f *netlink.BpfFilter) bool { return strings.HasSuffix(f.Name, madeClsact) }

// claim claims a name until the socket is closed. It returns EADDRINUSE if another process has claimed it.
func claim(name string) (socket int, err error) {
	socket, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	if err := unix.Bind(socket, &unix.SockaddrUnix{Name: "@" + name}); err != nil {
		unix.Close(socket)
		return -1, fmt.Errorf("name %s: %w", name, err)
	}
	return socket, nil
}

// isFree reports whether no process has claimed a name.
func isFree(name string) (bool, error) {
	socket, err := claim(name)
	if errors.Is(err, unix.EADDRINUSE) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, unix.Close(socket)
}

// lock prevents other processes from adding and removing filters of this package.
func lock(ifindex int) (unlock func(), err error) {
	name := fmt.Sprintf("roced:lock:%d", ifindex)
	for deadline := time.Now().Add(lockTimeout); ; time.Sleep(time.Millisecond) {
		socket, err := claim(name)
		if err == nil {
			return func() { unix.Close(socket) }, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) || time.Now().After(deadline) {
			return nil, fmt.Errorf("lock: %w", err)
		}
	}
}

func clsact(ifindex int) netlink.Qdisc {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
}

func device(ifindex int) netlink.Link {
	return &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: ifindex}}
}
