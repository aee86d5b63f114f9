package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/fault"
	"roced.io/roced/internal/daemon/config"
	"roced.io/roced/internal/daemon/shard"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
	"roced.io/roced/rocev2/nictest"
	"roced.io/roced/rocev2/queue"
)

// shards are the values of the key shard of two NICs: one shard for both, and one for each.
var shards = map[string][2]string{"one shard": {}, "two shards": {"x", "y"}}

// switched starts a daemon with NICs on one switch, which are on the given shards. Each port is linked with that of the NIC
// after it, or before it.
func switched(t *testing.T, shards []string, addrs ...string) *Daemon {
	t.Helper()
	dir := t.TempDir()
	text := fmt.Sprintf("run_dir: %s/run\nnics:\n", dir)
	for i, a := range addrs {
		text += fmt.Sprintf("  - {name: rxe_%d, switch: s, shard: %q, addresses: [%s/24], port: {type: unix, local: %s, remote: %s}}\n", i, shards[i], a,
			filepath.Join(dir, fmt.Sprint(i)), filepath.Join(dir, fmt.Sprint(i^1)))
	}
	cfg, err := config.Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	d, err := Start(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	for _, n := range d.nics() { // of two sockets, the first one has no peer when it opens
		eventually(t, "the link is down", func() bool {
			l, err := n.link(t.Context())
			return err == nil && l.State == "ACTIVE"
		})
	}
	return d
}

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// end is one end of a connection.
type end struct {
	n    *nic
	q    *rocev2.QueuePair
	sq   *queue.Send
	ring *queue.Ring
	mr   *rocev2.MR
	mem  []byte
}

// memoryOf maps memory that a test may unmap.
func memoryOf(t *testing.T, size int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	return mem
}

func newEnd(t *testing.T, n *nic) *end {
	t.Helper()
	e := &end{n: n, sq: queue.NewSend(16), ring: queue.NewRing(16), mem: memoryOf(t, 1<<20)}
	e.do(t, func(_ mono.Time, core *rocev2.NIC) error {
		pd, err := core.AllocPD(nil)
		if err != nil {
			return err
		}
		cq, err := core.CreateCQ(rocev2.CQAttr{Entries: 16, Ring: e.ring})
		if err != nil {
			return err
		}
		if e.mr, err = core.RegMR(pd, rocev2.MRAttr{Length: 1 << 20, Access: nictest.AllAccess, Mem: rocev2.NewBytes(e.mem)}); err != nil {
			return err
		}
		e.q, err = core.CreateQP(rocev2.QPAttr{Type: qp.RC, PD: pd, SendCQ: cq, RecvCQ: cq, SQ: e.sq, RQ: queue.NewRecv(16),
			Caps: rocev2.QPCaps{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}})
		return err
	})
	return e
}

func (e *end) do(t *testing.T, f func(now mono.Time, core *rocev2.NIC) error) {
	t.Helper()
	var err error
	derr := e.n.shard.Do(t.Context(), func(now mono.Time, core *rocev2.NIC) { err = f(now, core) })
	if derr != nil || err != nil {
		t.Fatal(derr, err)
	}
}

func (e *end) connect(t *testing.T, o *end, addr string) {
	t.Helper()
	av := rocev2.AddressVector{DGID: inet.GIDOf(netip.MustParseAddr(addr))}
	e.do(t, func(now mono.Time, core *rocev2.NIC) error {
		for _, s := range []struct {
			attr qp.Attr
			mask qp.AttrMask
			av   *rocev2.AddressVector
		}{
			{qp.Attr{State: qp.Init, Port: 1, AccessFlags: qp.AccessRemoteWrite}, qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccessFlags, nil},
			{qp.Attr{State: qp.RTR, PathMTU: 5, DestQPN: uint32(o.q.Num()), MaxDestRdAtomic: 1, MinRNRTimer: 1},
				qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN | qp.AttrMaxDestRdAtomic | qp.AttrMinRNRTimer, &av},
			{qp.Attr{State: qp.RTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1},
				qp.AttrSQPSN | qp.AttrTimeout | qp.AttrRetryCnt | qp.AttrRNRRetry | qp.AttrMaxRdAtomic, nil},
		} {
			if err := core.ModifyQP(now, e.q, s.attr, s.mask|qp.AttrState, s.av); err != nil {
				return err
			}
		}
		return nil
	})
}

// write has a write all its memory to b, and compares.
func (e *end) write(t *testing.T, o *end) {
	t.Helper()
	e.post(t, o)
	e.written(t, o)
}

// post begins a write.
func (e *end) post(t *testing.T, o *end) {
	t.Helper()
	e.do(t, func(now mono.Time, core *rocev2.NIC) error {
		for i := range e.mem {
			e.mem[i] += byte(i*7 + 1)
		}
		err := e.sq.Post(qp.SendWQE{Opcode: qp.WRWrite, Flags: qp.SendSignaled, RKey: o.mr.RKey, Length: 1 << 20,
			SGEs: []qp.SGE{{LKey: e.mr.LKey, Length: 1 << 20}}})
		core.Doorbell(now, e.q)
		return err
	})
}

// written waits for the end of a write.
func (e *end) written(t *testing.T, o *end) {
	t.Helper()
	eventually(t, "the WRITE does not complete", func() (done bool) {
		e.do(t, func(mono.Time, *rocev2.NIC) error { _, done = e.ring.Poll(); return nil })
		return done
	})
	o.do(t, func(mono.Time, *rocev2.NIC) error {
		if !bytes.Equal(e.mem, o.mem) {
			t.Error("the data differ")
		}
		return nil
	})
}

// crossed starts a daemon whose first NIC has the first shard, and whose third NIC has the second one. Their ports are not
// linked with each other.
func crossed(t *testing.T, on [2]string) *Daemon {
	t.Helper()
	return switched(t, []string{on[0], on[0], on[1], on[1]}, "198.18.0.1", "198.18.1.1", "198.18.0.2", "198.18.1.2")
}

// connected returns the ends of a new connection between the first and the third NIC of crossed.
func connected(t *testing.T, d *Daemon) (a, b *end) {
	t.Helper()
	a, b = newEnd(t, d.nics()[0]), newEnd(t, d.nics()[2])
	a.connect(t, b, "198.18.0.2")
	b.connect(t, a, "198.18.0.1")
	return a, b
}

// counter returns a counter of the end's NIC.
func (e *end) counter(t *testing.T, name string) (v uint64) {
	t.Helper()
	e.do(t, func(_ mono.Time, core *rocev2.NIC) error {
		for _, c := range core.CounterSnapshot() {
			if c.Name == name {
				v = c.Value
				return nil
			}
		}
		return fmt.Errorf("no counter %s", name)
	})
	return v
}

// TestSwitch writes between two NICs of a switch. Nothing is lost, and the receiver gets frames only from another shard.
func TestSwitch(t *testing.T) {
	for name, on := range shards {
		t.Run(name, func(t *testing.T) {
			a, b := connected(t, crossed(t, on))
			before, err := b.n.shard.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for range 5 {
				a.write(t, b)
			}
			after, err := b.n.shard.Stats(t.Context())
			if n := after.RxFrames - before.RxFrames; err != nil || (n > 8) != (on[0] != on[1]) { // address resolution
				t.Errorf("%d frames received, %v", n, err)
			}
			if lost := b.n.port.Stats().Overruns + b.counter(t, "out_of_sequence"); lost != 0 {
				t.Errorf("%d losses", lost)
			}
		})
	}
}

// icrcs counts frames of RoCE with right and wrong ICRCs.
type icrcs struct{ right, wrong int }

// Frame implements link.Observer.
func (c *icrcs) Frame(_ mono.Time, _ link.Direction, frame []byte, _ string) {
	if _, _, _, ok := link.Destination(frame); !ok {
		return
	}
	if _, l2, _ := inet.EtherType(frame); bth.CheckICRC(frame[l2:]) == nil {
		c.right++
	} else {
		c.wrong++
	}
}

// TestSwitchUnsealed: frames between shards have no ICRCs, but observers of either NIC see right ones, with rules and
// without.
func TestSwitchUnsealed(t *testing.T) {
	a, b := connected(t, crossed(t, shards["two shards"]))
	b.do(t, func(mono.Time, *rocev2.NIC) error {
		posted := make(chan struct{})
		go func() { defer close(posted); a.post(t, b) }()
		for range posted {
		}
		buf := make([]byte, 1<<17)
		for { // takes a frame in place of the loop; its packets are retransmitted
			frame, _, err := b.n.port.Recv(shard.Now(), buf)
			if err == nil && len(frame) > 4096 {
				break
			}
		}
		if !b.n.port.Unsealed() {
			t.Error("the receiver has got ICRCs")
		}
		return nil
	})
	a.written(t, b)
	for _, c := range []struct {
		at   *end
		rule string
	}{{a, ""}, {b, ""}, {a, "tx delay 1ms count=3"}, {b, "rx delay 1ms count=3"}, {b, "tx delay 1ms op=ack count=1"}} {
		var rules []fault.Rule
		if c.rule != "" {
			r, err := fault.Parse(c.rule)
			if err != nil {
				t.Fatal(err)
			}
			rules = append(rules, r)
		}
		seen := &icrcs{}
		observe := func(o link.Observer) {
			c.at.do(t, func(_ mono.Time, core *rocev2.NIC) error {
				core.SetObserver(o)
				c.at.n.port.SetObserver(o)
				return nil
			})
		}
		observe(seen)
		if err := c.at.n.setRules(t.Context(), func([]fault.Rule) []fault.Rule { return rules }); err != nil {
			t.Fatal(err)
		}
		a.write(t, b)
		observe(nil)
		if seen.wrong > 0 || seen.right < 1<<20/4096 {
			t.Errorf("%q at %s: %+v", c.rule, c.at.n.cfg.Name, seen)
		}
		if err := c.at.n.setRules(t.Context(), func([]fault.Rule) []fault.Rule { return nil }); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSwitchFaults: the rules of either NIC act on the packets between them.
func TestSwitchFaults(t *testing.T) {
	for name, on := range shards {
		t.Run(name, func(t *testing.T) { switchFaults(t, on) })
	}
}

func switchFaults(t *testing.T, on [2]string) {
	d := crossed(t, on)
	for _, c := range []struct {
		receiver int // the NIC with the rule
		rule     string
		counter  string // of the receiver or sender that grows
		at       int
	}{
		{0, "tx drop count=5", "retransmitted_packets", 0},
		{1, "rx drop count=5", "retransmitted_packets", 0},
		{1, "tx drop op=ack count=5", "sent_pkts", 1},
		{0, "tx delay 30ms count=20", "rx_dropped_out_of_order", 1},
		{0, "tx duplicate count=5", "rx_dropped_duplicate", 1},
		{1, "rx corrupt count=5", "rx_dropped_icrc", 1},
	} {
		a, b := connected(t, d)
		ends := [2]*end{a, b}
		n, before := ends[c.receiver].n, ends[c.at].counter(t, c.counter)
		rule, err := fault.Parse(c.rule)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.setRules(t.Context(), func([]fault.Rule) []fault.Rule { return []fault.Rule{rule} }); err != nil {
			t.Fatal(err)
		}
		a.write(t, b)
		ends[c.receiver].do(t, func(mono.Time, *rocev2.NIC) error {
			if s := n.port.FaultStats().Rules; s[0].Hit != rule.Count {
				t.Errorf("%s: acted on %d frames", c.rule, s[0].Hit)
			}
			return nil
		})
		if ends[c.at].counter(t, c.counter) == before {
			t.Errorf("%s: %s is as before", c.rule, c.counter)
		}
		if err := n.setRules(t.Context(), func([]fault.Rule) []fault.Rule { return nil }); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSwitchInFlight stops the receiver's shard while frames wait in its inbox. Meanwhile the sender's memory region is
// deregistered, all its objects are destroyed as after the exit of a program, or its memory is overwritten or unmapped.
// The receiver still gets the data that were sent, and no access faults. A receiver that has deregistered its own memory gets
// nothing.
func TestSwitchInFlight(t *testing.T) {
	const size = 64 << 10
	dereg := func(e *end) func(mono.Time, *rocev2.NIC) error {
		return func(_ mono.Time, core *rocev2.NIC) error { return core.DeregMR(e.mr) }
	}
	for name, c := range map[string]struct {
		sender   func(t *testing.T, a *end)
		receiver func(b *end) func(mono.Time, *rocev2.NIC) error
	}{
		"deregistered": {sender: func(t *testing.T, a *end) { a.do(t, dereg(a)) }},
		"exit": {sender: func(t *testing.T, a *end) {
			a.do(t, func(now mono.Time, core *rocev2.NIC) error {
				return errors.Join(core.DestroyQP(a.q), core.DeregMR(a.mr))
			})
		}},
		"overwritten": {sender: func(t *testing.T, a *end) { clear(a.mem) }},
		"unmapped": {sender: func(t *testing.T, a *end) {
			a.do(t, func(now mono.Time, core *rocev2.NIC) error {
				return errors.Join(core.DestroyQP(a.q), core.DeregMR(a.mr), unix.Munmap(a.mem))
			})
		}},
		"receiver deregistered": {receiver: dereg},
		"receiver unmapped": {receiver: func(b *end) func(mono.Time, *rocev2.NIC) error {
			return func(_ mono.Time, core *rocev2.NIC) error {
				return errors.Join(core.DeregMR(b.mr), unix.Munmap(b.mem))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := connected(t, crossed(t, shards["two shards"]))
			want := make([]byte, size)
			for i := range want {
				want[i] = byte(i*7 + 1)
			}
			copy(a.mem, want)
			stopped, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error)
			go func() {
				done <- b.n.shard.Do(context.Background(), func(now mono.Time, core *rocev2.NIC) {
					close(stopped)
					<-goOn
					if c.receiver != nil {
						if err := c.receiver(b)(now, core); err != nil {
							t.Error(err)
						}
					}
				})
			}()
			<-stopped
			before := a.counter(t, "sent_pkts")
			a.do(t, func(now mono.Time, core *rocev2.NIC) error {
				err := a.sq.Post(qp.SendWQE{Opcode: qp.WRWrite, RKey: b.mr.RKey, Length: size, SGEs: []qp.SGE{{LKey: a.mr.LKey, Length: size}}})
				core.Doorbell(now, a.q)
				return err
			})
			eventually(t, "the packets are not sent", func() bool { return a.counter(t, "sent_pkts") >= before+size/4096 })
			if c.sender != nil {
				c.sender(t, a)
			}
			close(goOn)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			eventually(t, "the packets do not arrive", func() bool { return b.counter(t, "rcvd_pkts") >= size/4096 })
			for _, e := range []*end{a, b} {
				if s, err := e.n.shard.Stats(t.Context()); err != nil || s.MemFaults != 0 || e.counter(t, "memory_faults") != 0 {
					t.Errorf("%d accesses to memory that is gone, %v", s.MemFaults, err)
				}
			}
			if refused := b.counter(t, "rx_dropped_access"); (refused > 0) != (c.receiver != nil) {
				t.Errorf("%d packets refused", refused)
			}
			b.do(t, func(mono.Time, *rocev2.NIC) error {
				if c.receiver == nil && !bytes.Equal(b.mem[:size], want) {
					t.Error("the data are not those that were sent")
				}
				return nil
			})
		})
	}
}

// TestSwitchShardStops stops the shard of one receiver while packets are on their way to it. The sender's shard, and the
// other NICs, go on.
func TestSwitchShardStops(t *testing.T) {
	d := switched(t, []string{"x", "x", "y", "z"}, "198.18.0.1", "198.18.1.1", "198.18.0.2", "198.18.1.2")
	e := [4]*end{}
	for i := range e {
		e[i] = newEnd(t, d.nics()[i])
	}
	e[0].connect(t, e[2], "198.18.0.2")
	e[2].connect(t, e[0], "198.18.0.1")
	e[1].connect(t, e[3], "198.18.1.2")
	e[3].connect(t, e[1], "198.18.1.1")
	stopped, goOn := make(chan struct{}), make(chan struct{})
	go func() {
		_ = e[2].n.shard.Do(context.Background(), func(mono.Time, *rocev2.NIC) { close(stopped); <-goOn })
	}()
	<-stopped
	e[0].do(t, func(now mono.Time, core *rocev2.NIC) error {
		err := e[0].sq.Post(qp.SendWQE{Opcode: qp.WRWrite, RKey: e[2].mr.RKey, Length: 1 << 20, SGEs: []qp.SGE{{LKey: e[0].mr.LKey, Length: 1 << 20}}})
		core.Doorbell(now, e[0].q)
		return err
	})
	for range 3 {
		e[1].write(t, e[3])
	}
	close(goOn)
	e[1].write(t, e[3])
}

// TestSwitchMembership refuses an address of another shard, and follows a change of addresses and the end of a NIC.
func TestSwitchMembership(t *testing.T) {
	d := crossed(t, shards["two shards"])
	sw := d.nics()[0].sw
	peers := func() (addrs []string) {
		for _, m := range sw.peers("x") {
			for _, g := range m.GIDs {
				if a := g.GID.Addr(); a.Is4() {
					addrs = append(addrs, m.Name+" "+a.String())
				}
			}
		}
		return addrs
	}
	if got := peers(); !slices.Equal(got, []string{"rxe_2 198.18.0.2", "rxe_3 198.18.1.2"}) {
		t.Errorf("remote members: %v", got)
	}
	twin, err := rocev2.New(rocev2.Config{Name: "twin", MAC: inet.MAC{2}, MTU: 1500, Addrs: []netip.Prefix{netip.MustParsePrefix("198.18.0.2/24")}})
	if err != nil {
		t.Fatal(err)
	}
	n := &nic{cfg: &config.NIC{Switch: "s", Shard: "x"}, sw: sw, port: port.NewFaulty(d.nics()[0].port, nil)}
	n.shard, err = shard.New(shard.Config{NIC: twin, Port: n.port, Beside: sw.beside(n).shard})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.join(); !errors.Is(err, rocev2.ErrSwitchAddr) || !strings.Contains(err.Error(), "198.18.0.2 on rxe_2 and twin") {
		t.Errorf("a second NIC with an address of another shard: %v", err)
	}
	n.leave()
	if err := n.shard.Close(); err != nil {
		t.Error(err)
	}
	moved := d.nics()[2]
	_ = moved.shard.Do(t.Context(), func(now mono.Time, core *rocev2.NIC) {
		err = core.SetAddrs(now, []netip.Prefix{netip.MustParsePrefix("198.18.0.9/24")}, nil)
	})
	moved.readdress()
	across := func(last byte) (to any) {
		frame := make([]byte, 14+20+8+16)
		copy(frame, "\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x08\x00\x45\x00\x00\x2c\x00\x00\x40\x00\x40\x11\x00\x00\xc6\x12\x00\x01\xc6\x12\x00")
		frame[33] = last
		copy(frame[34:], "\xc1\x23\x12\xb7\x00\x18")
		frame[47] = 9 // queue pair
		_ = d.nics()[0].shard.Look(t.Context(), func(_ mono.Time, core *rocev2.NIC) { to = core.Across(frame) })
		return to
	}
	if across(9) != moved.port || across(2) != nil || err != nil {
		t.Errorf("after a change of the address, frames go to %v and %v; %v", across(9), across(2), err)
	}
	moved.leave()
	if across(9) != nil {
		t.Error("frames go to a NIC that has left")
	}
}
