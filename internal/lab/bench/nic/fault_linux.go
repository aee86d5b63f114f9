package nic

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"roced.io/roced/bpf/attach"
	bpffault "roced.io/roced/bpf/fault"
	"roced.io/roced/internal/base/fault"
	"roced.io/roced/internal/lab/bench/measure"
	"roced.io/roced/internal/lab/netlab"
)

// Lines of forwarding. A frame enters by one veth, passes a bridge, and leaves by another veth, with and without the
// fault program on the second one.
const (
	forwardBare   = "bridge to veth, 1 KiB RoCEv2 frames"
	forwardIdle   = forwardBare + ", a fault rule for another queue pair"
	forwardFlows  = forwardBare + ", a fault rule that counts transmissions"
	forwardRounds = 15
	forwardFrames = 200_000
)

// forwarding measures in short alternating rounds, because machines are noisy.
func (b *bench) forwarding() error {
	bed, err := netlab.New()
	if err != nil {
		return err
	}
	defer bed.Close()
	cases := []struct{ name, rule string }{{forwardBare, ""}, {forwardIdle, "tx drop qpn=0xfffffe psn=5"}, {forwardFlows, "tx drop qpn=0 psn=+5 n=9"}}
	var rates [][]float64
	err = bed.NS[0].Do(func() error {
		g, err := newGenerator()
		if err != nil {
			return err
		}
		defer g.close()
		rates, err = measure.Alternate(forwardRounds, len(cases), func(i int) (float64, error) { return g.with(cases[i].rule) })
		return err
	})
	if err != nil {
		return fmt.Errorf("forwarding: %w", err)
	}
	for i, c := range cases {
		b.add(c.name, "M/s of a core", rates[i]...)
	}
	return nil
}

// generator makes the kernel receive frames without a sending program: it runs an XDP program that passes every frame
// repeatedly on one frame.
type generator struct {
	prog    *ebpf.Program
	link    link.Link
	ifindex int
}

// xdpMD is struct xdp_md of linux/bpf.h.
type xdpMD struct{ Data, DataEnd, DataMeta, Ingress, Queue, Egress uint32 }

// newGenerator adds a port to the bridge of the thread's namespace. The frames arrive on this port.
func newGenerator() (_ *generator, err error) {
	g := &generator{}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "gen", MTU: 3000}, PeerName: "genpeer"}); err != nil {
		return nil, err
	}
	bridge, err := netlink.LinkByName(netlab.Bridge)
	if err != nil {
		return nil, err
	}
	port, err := netlink.LinkByName("gen")
	if err != nil {
		return nil, err
	}
	peer, err := netlink.LinkByName("genpeer")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(netlink.LinkSetMaster(port, bridge), netlink.LinkSetUp(peer), netlink.LinkSetUp(port)); err != nil {
		return nil, err
	}
	g.ifindex = port.Attrs().Index
	g.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}, // XDP_PASS
	})
	if err != nil {
		return nil, err
	}
	// The attached program makes the veth ready for XDP frames.
	g.link, err = link.AttachXDP(link.XDPOptions{Program: g.prog, Interface: g.ifindex, Flags: link.XDPDriverMode})
	time.Sleep(time.Second) // until the bridge forwards on the new port
	return g, err
}

func (g *generator) close() {
	if g.link != nil {
		g.link.Close()
	}
	if g.prog != nil {
		g.prog.Close()
	}
}

// with measures with a rule in force, or without a rule if it is empty. The unit is a million frames per second of CPU
// time.
func (g *generator) with(rule string) (rate float64, err error) {
	if rule != "" {
		r, err := fault.Parse(rule)
		if err != nil {
			return 0, err
		}
		a, err := bpffault.Attach(netlab.Veth, attach.Auto)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, a.Close()) }()
		if err := a.SetRules([]fault.Rule{r}); err != nil {
			return 0, err
		}
	}
	return g.run()
}

// run forwards frames and counts the frames that the veth has sent.
func (g *generator) run() (float64, error) {
	before, err := sentBy(netlab.Veth)
	if err != nil {
		return 0, err
	}
	frame := rawFrame(rawMAC, [6]byte{2, 0, 0, 0, 0, 1}, 0, 1024, 1)
	runtime.LockOSThread()
	start := threadCPU()
	_, err = g.prog.Run(&ebpf.RunOptions{
		Data: frame, Context: xdpMD{DataEnd: uint32(len(frame)), Ingress: uint32(g.ifindex)},
		Repeat: forwardFrames, Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES,
	})
	seconds := (threadCPU() - start).Seconds()
	runtime.UnlockOSThread()
	if err != nil {
		return 0, fmt.Errorf("generator: %w", err)
	}
	after, err := sentBy(netlab.Veth)
	if n := after - before; err == nil && n < forwardFrames {
		err = fmt.Errorf("%d of %d frames were forwarded", n, forwardFrames)
	}
	return forwardFrames / seconds / 1e6, err
}

func sentBy(name string) (uint64, error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return 0, err
	}
	return l.Attrs().Statistics.TxPackets, nil
}
