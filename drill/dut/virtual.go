package dut

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"roced.io/roced/drill/engine"
	"roced.io/roced/drill/script"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
	"roced.io/roced/rocev2"
)

// Addresses of the tester and of the device on every link that this package makes.
var (
	testerIP, dutIP   = netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2")
	testerIP6, dutIP6 = netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	otherIP           = netip.MustParseAddr("198.19.0.2") // of the device outside of the run's VLAN
	secondIP          = netip.MustParseAddr("198.18.0.3") // of the device, which its queue pairs do not have
	secondIP6         = netip.MustParseAddr("fd00::3")
	testerMAC, dutMAC = [6]byte{2, 0, 0, 0, 0, 1}, [6]byte{2, 0, 0, 0, 0, 2}
)

// vlanID is the VLAN of a virtual link whose script needs one.
const vlanID = 7

// virtualID is the tester's communication ID: each run has a device of its own.
const virtualID = 0x1234

// virtualDelay is the time of a frame on the virtual link.
const virtualDelay = time.Microsecond

// VirtualCaps are the capabilities of our NIC on the virtual clock.
var VirtualCaps = []string{"rc", "uc", "ud", "srq", "mw", "atomic", "flush", "awrite", "ipv4", "ipv6", "vlan", "ecn", "inval", "multicast", "virtual", "cm",
	"retries", "zero_based", "second", "irn", "melo", "mp_rdma", "eunomia", "dcqcn", "mrc"}

// options returns the options of a run between the addresses of this package.
func options(seed uint64) engine.Options {
	return engine.Options{Seed: seed, Tester: testerIP, DUT: dutIP, Tester6: testerIP6, DUT6: dutIP6, Second: secondIP, Second6: secondIP6,
		TesterMAC: testerMAC, DUTMAC: dutMAC}
}

// Virtual runs scripts against one NIC of ours on a virtual clock. Runs are deterministic: times are exact.
type Virtual struct {
	Memory uint64 // Options.Memory of engines
	Traffic
	// Tamper changes the frames of the link, as a defective device would; it may be nil. A nil frame is lost.
	Tamper func(toDUT bool, frame []byte) []byte
	dead   bool // the NIC receives no frames, and neither its frames nor its reports reach the tester
}

// virtual is one run.
type virtual struct {
	Virtual
	now   mono.Time
	e     *engine.Engine
	agent *nicAgent
	link  []flight // in order of arrival
}

// flight is a frame on the link.
type flight struct {
	at    mono.Time
	toDUT bool
	frame []byte
}

// Run runs a script with a seed. The error is a *script.Error or ctx's.
func (d Virtual) Run(ctx context.Context, s *script.Script, seed uint64) (*engine.Result, error) {
	o := options(seed)
	if slices.Contains(s.Need, "tagged") && d.VLAN == 0 {
		d.VLAN = vlanID
	}
	d.apply(&o)
	o.ID, o.Caps, o.Limit, o.Memory, o.Interrupted = virtualID, VirtualCaps, 10*time.Second, d.Memory, ctx.Err
	e, err := engine.New(s, o)
	if err != nil {
		return nil, err
	}
	v := &virtual{Virtual: d, now: mono.Time(time.Second), e: e}
	cfg := rocev2.Config{Name: "dut", MAC: dutMAC, MTU: 4300, Addrs: []netip.Prefix{netip.PrefixFrom(dutIP, 15), netip.PrefixFrom(dutIP6, 64),
		netip.PrefixFrom(secondIP, 15), netip.PrefixFrom(secondIP6, 64)}}
	if d.VLAN != 0 {
		cfg.Addrs, cfg.VLANs = []netip.Prefix{netip.PrefixFrom(otherIP, 24)}, []rocev2.VLAN{{ID: d.VLAN, Addrs: cfg.Addrs}}
	}
	cfg.NewProfile = newProfile
	binary.LittleEndian.PutUint64(cfg.Seed[:], seed)
	if v.agent, err = newNICAgent(cfg); err != nil {
		return nil, err
	}
	v.run(ctx)
	return e.Result(), ctx.Err()
}

// newProfile makes the transport of a queue pair: "irn", or with congestion control "rc+dcqcn".
func newProfile(name string) (qp.Profile, error) {
	transport, control, _ := strings.Cut(name, "+")
	p := profile.Part{Name: control}
	if control != "" {
		p.Params = map[string]float64{"line_rate_bps": 1e9}
	}
	return profile.NewMaker(profile.Link{}).New(transport, profile.Spec{Congestion: p})
}

// idle bounds the rounds at one instant: more mean that the time stands still.
const idle = 10000

// run moves frames and time until the script or ctx has ended.
func (v *virtual) run(ctx context.Context) {
	last, rounds := v.now, 0
	for v.exchange(); !v.e.Done(); v.exchange() {
		if ctx.Err() != nil {
			v.e.Stop()
			return
		}
		next := v.agent.nic.NextTimeout().Min(v.e.NextTimeout())
		if len(v.link) > 0 {
			next = next.Min(v.link[0].at)
		}
		if rounds++; v.now != last {
			last, rounds = v.now, 0
		}
		if next == mono.Never || rounds > idle {
			v.e.Lost(v.now, errors.New("the virtual time does not advance"))
			return
		}
		v.now = max(v.now, next)
		v.deliver()
		v.agent.nic.Advance(v.now)
		v.e.Advance(v.now)
	}
}

// exchange takes all frames, commands and reports that are ready now.
func (v *virtual) exchange() {
	for busy := true; busy; {
		busy = false
		for o, ok := v.e.Poll(v.now); ok; o, ok = v.e.Poll(v.now) {
			busy = true
			if o.Command != "" {
				v.e.Reply(v.now, v.agent.run(v.now, o.Command))
			} else {
				v.send(true, o.Frame)
			}
		}
		for f := v.agent.nic.PollTransmit(v.now); f != nil; f = v.agent.nic.PollTransmit(v.now) {
			busy = true
			v.fromDUT(f)
		}
		for _, line := range v.agent.reports() {
			busy = true
			if !v.dead {
				v.e.Reply(v.now, line)
			}
		}
	}
}

// fromDUT puts a frame of the NIC on the link. The tester's side of the link resolves addresses.
func (v *virtual) fromDUT(f *link.Frame) {
	b := slices.Concat(f.Bufs...)
	if reply := answer(b, v.VLAN, testerMAC, testerIP, testerIP6); reply != nil {
		v.send(true, reply)
		return
	}
	v.send(false, b)
}

func (v *virtual) send(toDUT bool, frame []byte) {
	if v.Tamper != nil {
		frame = v.Tamper(toDUT, frame)
	}
	if v.dead || frame == nil {
		return
	}
	v.link = append(v.link, flight{v.now.Add(virtualDelay), toDUT, frame})
}

// deliver delivers the frames that have arrived.
func (v *virtual) deliver() {
	for len(v.link) > 0 && v.link[0].at <= v.now {
		f := v.link[0]
		v.link = v.link[1:]
		if f.toDUT {
			v.agent.nic.Receive(v.now, f.frame, 0)
		} else {
			v.e.Frame(v.now, f.frame)
		}
	}
}
