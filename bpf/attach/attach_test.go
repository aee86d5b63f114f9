package attach

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testProtocol is an EtherType for local experiments (IEEE 802-2014, 9.2.3).
const testProtocol = 0x88b5

// bench is a veth between "left" and "right" in a new namespace, and the counters of the programs.
type bench struct {
	*testing.T
	ns          netns.NsHandle
	left, right int // indices
	seen        *ebpf.Map
	socket      int
}

// seen has the counters of a program.
type seen struct {
	Frames uint64
	Mark   uint32 // of the last frame: the numbers of the programs so far, one digit each
	_      uint32
}

func newBench(t *testing.T) *bench {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	ns, err := netns.New()
	must(t, err)
	t.Cleanup(func() { ns.Close() })
	must(t, os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0))
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "left"}, PeerName: "right"}))
	b := &bench{T: t, ns: ns}
	for name, index := range map[string]*int{"left": &b.left, "right": &b.right} {
		l, err := netlink.LinkByName(name)
		must(t, err)
		must(t, netlink.LinkSetUp(l))
		*index = l.Attrs().Index
	}
	b.waitUp()
	b.seen, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: 16})
	must(t, err)
	t.Cleanup(func() { b.seen.Close() })
	b.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(b.socket) })
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// waitUp waits until both ends have a queue. The first end was set up without carrier.
func (b *bench) waitUp() {
	b.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for _, index := range []int{b.left, b.right} {
		for {
			l, err := netlink.LinkByIndex(index)
			must(b, err)
			if l.Attrs().OperState == netlink.OperUp {
				break
			}
			if time.Now().After(deadline) {
				b.Fatalf("%s is %v", l.Attrs().Name, l.Attrs().OperState)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// program returns a program that counts test frames and appends its number to their mark.
func (b *bench) program(number int32) *ebpf.Program {
	b.Helper()
	const protocol, mark = 16, 8 // offsets in struct __sk_buff, linux/bpf.h
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "MIT",
		Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.LoadMem(asm.R2, asm.R6, protocol, asm.Word),
			asm.HostTo(asm.BE, asm.R2, asm.Half),
			asm.JNE.Imm(asm.R2, testProtocol, "out"),
			asm.LoadMem(asm.R7, asm.R6, mark, asm.Word),
			asm.LSh.Imm(asm.R7, 4),
			asm.Or.Imm(asm.R7, number),
			asm.StoreMem(asm.R6, mark, asm.R7, asm.Word),
			asm.StoreImm(asm.R10, -4, int64(number), asm.Word),
			asm.LoadMapPtr(asm.R1, b.seen.FD()),
			asm.Mov.Reg(asm.R2, asm.R10),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.StoreMem(asm.R0, 8, asm.R7, asm.Word),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, -1).WithSymbol("out"), // TC_ACT_UNSPEC
			asm.Return(),
		},
	})
	must(b, err)
	b.Cleanup(func() { p.Close() })
	return p
}

// attach attaches a new program with a number.
func (b *bench) attach(ifindex int, number int32, d Direction, m Mode) *Link {
	b.Helper()
	l, err := Attach(ifindex, b.program(number), d, m)
	must(b, err)
	return l
}

// die has the same effect on a filter as the kill of its process.
func (b *bench) die(l *Link) {
	b.Helper()
	must(b, unix.Close(l.Closer.(*filter).claim))
}

// send sends frames from left to right.
func (b *bench) send(n int) {
	b.Helper()
	frame := make([]byte, 60)
	binary.BigEndian.PutUint16(frame[12:], testProtocol)
	for range n {
		must(b, unix.Sendto(b.socket, frame, 0, &unix.SockaddrLinklayer{Ifindex: b.left}))
	}
}

// want waits until a program has counted this many frames.
func (b *bench) want(number int32, frames uint64, mark uint32) {
	b.Helper()
	var s seen
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		must(b, b.seen.Lookup(number, &s))
		if s.Frames == frames && s.Mark == mark {
			return
		}
		if s.Frames > frames || time.Now().After(deadline) {
			b.Fatalf("program %d has seen %d frames, the last with mark %#x; want %d and %#x", number, s.Frames, s.Mark, frames, mark)
		}
	}
}

// wantFilters checks the qdisc and the filters of an interface.
func (b *bench) wantFilters(ifindex int, qdisc bool, n int) {
	b.Helper()
	qdiscs, err := netlink.QdiscList(device(ifindex))
	must(b, err)
	there := false
	for _, q := range qdiscs {
		there = there || q.Type() == "clsact"
	}
	filters := 0
	for _, parent := range parents {
		fs, err := netlink.FilterList(device(ifindex), parent)
		must(b, err)
		filters += len(fs)
	}
	if there != qdisc || filters != n {
		b.Errorf("clsact: %t, %d filters; want %t, %d", there, filters, qdisc, n)
	}
}

// foreign adds a filter of another origin, with the default priority of the kernel.
func (b *bench) foreign(ifindex int, name string, number int32) {
	b.Helper()
	must(b, netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: ifindex, Parent: netlink.HANDLE_MIN_EGRESS, Protocol: unix.ETH_P_ALL},
		Fd:          b.program(number).FD(), Name: name, DirectAction: true,
	}))
}

func (b *bench) wantUsed(ifindex int, want bool) {
	b.Helper()
	if used, err := Used(ifindex); err != nil || used != want {
		b.Errorf("used: %t, %v, want %t", used, err, want)
	}
}

// TestAttach attaches programs in both directions and closes them.
func TestAttach(t *testing.T) {
	for _, m := range []Mode{TCX, Clsact} {
		t.Run(string(m), func(t *testing.T) {
			b := newBench(t)
			tx, rx := b.attach(b.left, 1, Egress, m), b.attach(b.right, 2, Ingress, m)
			if tx.Mode != m || rx.Mode != m {
				t.Errorf("attached by %s and %s", tx.Mode, rx.Mode)
			}
			b.send(5)
			b.want(1, 5, 0x1)
			b.want(2, 5, 0x12)
			b.wantUsed(b.left, true)
			must(t, Clean(b.left))
			must(t, tx.Close())
			b.send(2)
			b.want(2, 7, 0x2)
			b.want(1, 5, 0x1)
			must(t, rx.Close())
			for _, i := range []int{b.left, b.right} {
				b.wantUsed(i, false)
				b.wantFilters(i, false, 0)
			}
		})
	}
}

// TestAuto checks that Auto uses tcx if and only if the kernel supports it.
func TestAuto(t *testing.T) {
	b := newBench(t)
	want := TCX
	if l, err := Attach(b.left, b.program(1), Egress, TCX); err == nil {
		must(t, l.Close())
	} else if want = Clsact; !errors.Is(err, ebpf.ErrNotSupported) {
		t.Fatal(err)
	}
	l := b.attach(b.left, 1, Egress, Auto)
	if l.Mode != want {
		t.Errorf("attached by %s, want %s", l.Mode, want)
	}
	must(t, l.Close())
	if _, err := Attach(1<<30, b.program(1), Egress, Auto); err == nil || strings.Contains(err.Error(), "clsact") != (want == Clsact) {
		t.Errorf("no such interface: %v", err)
	}
}

// TestOrder checks that each program runs after the existing ones.
func TestOrder(t *testing.T) {
	for _, m := range []Mode{TCX, Clsact} {
		t.Run(string(m), func(t *testing.T) {
			b := newBench(t)
			one, two := b.attach(b.left, 1, Egress, m), b.attach(b.left, 2, Egress, m)
			three := b.attach(b.left, 3, Egress, m)
			b.send(1)
			b.want(3, 1, 0x123)
			must(t, one.Close())
			one = b.attach(b.left, 1, Egress, m)
			b.send(1)
			b.want(1, 2, 0x231)
			for _, l := range []*Link{one, three, two} {
				must(t, l.Close())
			}
			b.wantFilters(b.left, false, 0)
		})
	}
}

// TestForeign checks that filters and qdiscs of others stay.
func TestForeign(t *testing.T) {
	b := newBench(t)
	must(t, netlink.QdiscAdd(clsact(b.left)))
	l := b.attach(b.left, 1, Egress, Clsact)
	must(t, l.Close())
	b.wantFilters(b.left, true, 0)
	b.foreign(b.left, "other", 2)
	l = b.attach(b.left, 1, Egress, Clsact)
	b.send(1)
	b.want(1, 1, 0x21)
	must(t, l.Close())
	b.wantFilters(b.left, true, 1)
	b.send(1)
	b.want(2, 2, 0x2)

	l = b.attach(b.right, 3, Ingress, Clsact) // makes the qdisc
	b.foreign(b.right, "other", 4)
	must(t, l.Close())
	b.wantFilters(b.right, true, 1)
	b.wantUsed(b.right, false)
}

// TestCrash checks that Clean removes only the filters of killed processes.
func TestCrash(t *testing.T) {
	b := newBench(t)
	killed, alive := b.attach(b.left, 1, Egress, Clsact), b.attach(b.left, 2, Egress, Clsact)
	killed2 := b.attach(b.left, 3, Ingress, Clsact)
	b.foreign(b.left, "roced:0123", 4) // nearly as ours are named
	b.die(killed)
	b.die(killed2)
	b.send(1)
	b.want(2, 1, 0x412) // they are still at work
	must(t, Clean(b.left))
	b.wantFilters(b.left, true, 2)
	b.send(1)
	b.want(2, 2, 0x42)
	b.wantUsed(b.left, true)
	must(t, alive.Close())
	b.wantUsed(b.left, false)
	b.wantFilters(b.left, true, 1)

	b.die(b.attach(b.right, 5, Ingress, Clsact))
	b.die(b.attach(b.right, 6, Egress, Clsact))
	b.wantUsed(b.right, false)
	must(t, Clean(b.right))
	b.wantFilters(b.right, false, 0) // the qdisc was that of the first
	must(t, Clean(b.right))
}

// TestRefused checks errors of Attach, after which nothing may remain.
func TestRefused(t *testing.T) {
	b := newBench(t)
	must(t, netlink.QdiscAdd(&netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: b.left, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS,
	}}))
	wantError := func(d Direction, ifindex int, says string) {
		t.Helper()
		if _, err := Attach(ifindex, b.program(1), d, Clsact); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	wantError(Egress, b.left, "ingress qdisc")
	wantError(Ingress, b.left, "ingress qdisc")
	b.wantFilters(b.left, false, 0)

	wrong, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "MIT", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	must(t, err)
	defer wrong.Close()
	if _, err := Attach(b.right, wrong, Egress, Clsact); err == nil {
		t.Error("an XDP program is attached")
	}
	b.wantFilters(b.right, false, 0)

	must(t, netlink.QdiscAdd(clsact(b.right)))
	must(t, netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: b.right, Parent: netlink.HANDLE_MIN_EGRESS, Priority: lastPriority, Protocol: unix.ETH_P_ALL},
		Fd:          b.program(2).FD(), Name: "other", DirectAction: true,
	}))
	wantError(Egress, b.right, "last priority")
	b.wantFilters(b.right, true, 1)
	wantError(Egress, 1<<30, "no such device")
}

// TestInterfaceGone closes a link whose interface has been deleted.
func TestInterfaceGone(t *testing.T) {
	for _, m := range []Mode{TCX, Clsact} {
		t.Run(string(m), func(t *testing.T) {
			b := newBench(t)
			l := b.attach(b.left, 1, Egress, m)
			must(t, netlink.LinkDel(device(b.left)))
			must(t, l.Close())
		})
	}
}

// TestTogether attaches, closes, kills and cleans concurrently. No process may lose a filter, and nothing may remain.
func TestTogether(t *testing.T) {
	b := newBench(t)
	var programs []*ebpf.Program
	for i := range 4 {
		programs = append(programs, b.program(int32(i)))
	}
	var all sync.WaitGroup
	for i, p := range programs {
		all.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			if err := errors.Join(netns.Set(b.ns), b.comeAndGo(p, i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	must(t, Clean(b.left))
	b.wantFilters(b.left, false, 0)
}

// comeAndGo attaches and closes repeatedly. It kills one of four programs instead of closing it.
func (b *bench) comeAndGo(p *ebpf.Program, i int) error {
	for range 25 {
		l, err := Attach(b.left, p, Direction(i%2), Clsact)
		if err != nil {
			return err
		}
		f := l.Closer.(*filter)
		ours, err := ourFilters(b.left)
		if err != nil {
			return err
		}
		there := false
		for _, o := range ours {
			there = there || o.Name == f.name
		}
		if !there {
			return errors.New("a filter is gone: " + f.name)
		}
		if i == 0 {
			err = errors.Join(unix.Close(f.claim), Clean(b.left))
		} else {
			err = l.Close()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func TestParseMode(t *testing.T) {
	for _, m := range []Mode{Auto, TCX, Clsact} {
		if got, err := ParseMode(string(m)); err != nil || got != m {
			t.Errorf("%s: %s, %v", m, got, err)
		}
	}
	if _, err := ParseMode("xdp"); err == nil {
		t.Error("xdp is a mode")
	}
}
