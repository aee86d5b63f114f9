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

// A filter of ours has a name that no other has. While its process lives, that holds a
// socket in the abstract namespace of AF_UNIX with the same name. Like interfaces, those
// names belong to a network namespace, and they vanish with the process however it ends;
// a PID would mean something else in another container, and could be another process's
// by now. A local user can take a name, too, and so keep something from being attached or
// cleaned; nothing is removed for it.
var filterName = regexp.MustCompile(`^roced:[0-9a-f]{16}(` + madeClsact + `)?$`)

const (
	// madeClsact ends the names of filters whose qdisc is ours, to be removed with the
	// last filter. The first one has it from making the qdisc, the others from the first.
	madeClsact = ":qdisc"
	// firstPriority is what the kernel gives the first filter that asks for none; others
	// that ask for none come in front of it (net/sched/cls_api.c).
	firstPriority = 0xc000
	lastPriority  = 0xffff
	filterHandle  = 1 // each filter has a priority for itself

	lockPatience = 10 * time.Second
)

var parents = [...]uint32{Ingress: netlink.HANDLE_MIN_INGRESS, Egress: netlink.HANDLE_MIN_EGRESS}

// filter is a filter that this process has made.
type filter struct {
	ifindex int
	name    string
	claim   int // socket
}

// addFilter puts a program behind all filters of a direction.
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

// ensureClsact gives an interface the qdisc. It is ours if we have made it, now or for
// a filter that is still there.
func ensureClsact(ifindex int) (ours bool, err error) {
	err = netlink.QdiscAdd(clsact(ifindex))
	if err == nil {
		return true, nil
	}
	if errors.Is(err, unix.ENOENT) {
		return false, fmt.Errorf("the kernel has no such qdisc (CONFIG_NET_SCH_INGRESS): %w", err)
	}
	if !errors.Is(err, unix.EEXIST) {
		return false, err
	}
	qdiscs, err := netlink.QdiscList(device(ifindex))
	if err != nil {
		return false, err
	}
	for _, q := range qdiscs {
		// In an ingress qdisc, filters for egress get what comes in.
		if q.Type() == "ingress" {
			return false, errors.New("the interface has an ingress qdisc, which keeps clsact out: remove that (tc qdisc del dev ... ingress)")
		}
	}
	fs, err := ourFilters(ifindex)
	return slices.ContainsFunc(fs, hasMadeClsact), err
}

// newFilter makes up a name and claims it.
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
			return errors.New("a filter has the last priority: there is no place behind it")
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
		err = fmt.Errorf("the kernel has no BPF filters (CONFIG_NET_CLS_BPF): %w", err)
	}
	return err
}

// Close removes the filter, and the qdisc if that was ours and is not needed any more.
func (f *filter) Close() error {
	err := remove(f.ifindex, func(name string) (bool, error) { return name == f.name, nil })
	return errors.Join(err, unix.Close(f.claim))
}

// Clean removes the filters that killed processes have left on an interface, and the
// qdisc if that was made for them and is not needed any more.
func Clean(ifindex int) error {
	fs, err := ourFilters(ifindex)
	if err == nil && len(fs) > 0 {
		err = remove(ifindex, isFree)
	}
	if err != nil {
		return fmt.Errorf("clsact: left over filters: %w", err)
	}
	return nil
}

// remove removes those filters of ours that are chosen by their names. Under the lock,
// nobody else gives their priorities to new filters before they are removed.
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

// removeIfEmpty removes the qdisc if it has no filter, whoever has made that.
func removeIfEmpty(ifindex int) error {
	for _, parent := range parents {
		if fs, err := netlink.FilterList(device(ifindex), parent); err != nil || len(fs) > 0 {
			return err
		}
	}
	return netlink.QdiscDel(clsact(ifindex))
}

// ourFilters are the filters of an interface that we have made, processes that were
// killed among us.
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

// claim takes a name until the socket is closed; EADDRINUSE says that a process has it.
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

// isFree tells whether no process has claimed a name.
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

// lock keeps other processes from adding and removing filters of ours.
func lock(ifindex int) (unlock func(), err error) {
	name := fmt.Sprintf("roced:lock:%d", ifindex)
	for deadline := time.Now().Add(lockPatience); ; time.Sleep(time.Millisecond) {
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
