package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"roced.io/roced/bth"
	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/namespace"
	"roced.io/roced/internal/lab/netlab"
)

// planeCount is the number of planes in the tests of this file.
const planeCount = 4

// planeLab has NICs with several planes.
type planeLab struct {
	*rig
	own func(host, plane int) string // device of a NIC
}

// bypass limits the time until a plane is not used any more (MRC's paper: less than a second).
const bypass = time.Second

// TestPlanes: WRITEs of MRC in both directions use all planes of the NICs. A plane is lost on one side, on the other side, or
// between them, where neither side sees it. Both sides stop using it, and data continue. Afterwards they use it again. The timeout
// is several round trips: nothing else finds losses that neither side sees.
func TestPlanes(t *testing.T) {
	lab.Long(t)
	for _, kind := range []string{"tap", "packet", "xdp, mode: native"} {
		name, _, _ := strings.Cut(kind, ",")
		t.Run(name, func(t *testing.T) {
			o := netlab.LabOptions{Planes: planeCount, Extra: "    profile: mrc\n    max_unacked: 512\n", Shared: [2]string{kind, kind}}
			own := func(_, plane int) string { return netlab.PlaneDevice(plane) }
			if kind == "tap" {
				o.Shared, own = [2]string{}, func(host, plane int) string { return fmt.Sprintf("tap_%c%d", 'a'+host, plane) }
			}
			l := &planeLab{newLab(t, o), own}
			for _, c := range []struct {
				name  string
				plane int
				ns    *namespace.Namespace
				dev   string
			}{
				{"here", 1, l.Bed.NS[0], own(0, 1)},
				{"at the peer", 2, l.Bed.NS[1], own(1, 2)},
				{"between", 3, l.Bed.Middle, netlab.PlaneSwitch(3)},
				// The daemon takes addresses from the first of shared interfaces that is up.
				{"first here", 0, l.Bed.NS[0], own(0, 0)},
				{"first at the peer", 0, l.Bed.NS[1], own(1, 0)},
			} {
				if c.plane == 0 && kind != "packet" {
					continue
				}
				t.Run(c.name, func(t *testing.T) { l.lose(t, c.plane, c.ns, c.dev) })
			}
		})
	}
}

// lose sets a device down and up again while data move.
func (l *planeLab) lose(t *testing.T, plane int, ns *namespace.Namespace, dev string) {
	r := l.at(t)
	server, client := r.pair("write-bw", "-s", "64k", "--verify", "-D", "6s", "--timeout", "15")
	loadServer, load := r.pair("write-bw", "-s", "64k", "-b", "-D", "6s", "--timeout", "15")
	set := func(change func(netlink.Link) error) {
		t.Helper()
		lab.Must(t, ns.Do(func() error {
			d, err := netlink.LinkByName(dev)
			if err != nil {
				return err
			}
			return change(d)
		}))
	}
	for i := range l.Host {
		lab.Eventually(t, soon, fmt.Sprintf("data of host %d in all planes", i), func() bool { return len(usedPlanes(r, i)) == planeCount })
	}
	t.Cleanup(func() { set(netlink.LinkSetUp) })
	begin := time.Now()
	set(netlink.LinkSetDown)
	for i := range l.Host {
		var took time.Duration // until the sample that shows it
		lab.Eventually(t, soon, fmt.Sprintf("host %d to leave plane %d", i, plane), func() bool {
			took = time.Since(begin)
			used := usedPlanes(r, i)
			return len(used) == planeCount-1 && !used[plane]
		})
		if t.Logf("host %d has left plane %d in less than %v", i, plane, took); took > bypass {
			t.Errorf("that is more than %v", bypass)
		}
	}
	set(netlink.LinkSetUp)
	for i := range l.Host {
		lab.Eventually(t, soon, fmt.Sprintf("host %d to return to plane %d", i, plane), func() bool { return usedPlanes(r, i)[plane] })
	}
	for _, p := range []*lab.Proc{client, server, load, loadServer} {
		if code := p.Exit(lab.Limit); code != 0 {
			t.Errorf("exit code %d: %s", code, &p.Diag)
		}
	}
}

// sampleBytes is the number of bytes that a host sends during a sample: some hundred super-frames.
const sampleBytes = 16 << 20

// usedPlanes returns the planes in which host i sends at least a quarter of its equal share. EV probes are fewer bytes.
func usedPlanes(r *rig, i int) map[int]bool {
	before := r.Link(i).Planes
	var sent [planeCount]uint64
	for total, end := uint64(0), time.Now().Add(bypass); total < sampleBytes && time.Now().Before(end); {
		after := r.Link(i).Planes
		total = 0
		for p := range sent {
			sent[p] = after[p].Sent - before[p].Sent
			total += sent[p]
		}
	}
	r.T.Logf("host %d: %d bytes", i, sent)
	used := map[int]bool{}
	for p, n := range sent {
		if 4*planeCount*n > sent[0]+sent[1]+sent[2]+sent[3] {
			used[p] = true
		}
	}
	return used
}

// TestPlanesStatus: an idle NIC whose port goes down or up knows it from rtnetlink, and tells its peer.
func TestPlanesStatus(t *testing.T) {
	lab.Long(t)
	for kind, o := range map[string]netlab.LabOptions{"tap": {}, "packet": {Shared: [2]string{"packet", "packet"}}} {
		t.Run(kind, func(t *testing.T) {
			o.Planes, o.Extra = planeCount, "    profile: mrc\n"
			l := newLab(t, o)
			dev := func(plane int) string {
				if kind == "tap" {
					return fmt.Sprintf("tap_a%d", plane)
				}
				return netlab.PlaneDevice(plane)
			}
			server, client := l.pair("write-lat", "-s", "64", "-D", "2s")
			lab.Eventually(t, soon, "queue pairs", func() bool { return len(l.queuePairs(1, server.PID())) > 0 })
			stop := l.capture(1)
			for plane := range planeCount {
				becomes := func(state string) {
					is := func() bool { return l.Link(0).Planes[plane].State == state }
					lab.Eventually(t, bypass/2, fmt.Sprintf("plane %d is %s", plane, state), is)
					is() // when it is answered, the loop has passed the state to the NIC
				}
				l.onLink(0, dev(plane), netlink.LinkSetDown)
				becomes("DOWN")
				l.onLink(0, dev(plane), netlink.LinkSetUp)
				becomes("ACTIVE")
			}
			told := map[uint32]bool{}
			for _, r := range l.decoded(stop()) {
				if m := r.MRC; m != nil && m.PortMask != nil && *m.Op == uint8(bth.MRCPortStatus) {
					told[*m.PortMask] = true
				}
			}
			for _, mask := range []uint32{0b1110, 0b1101, 0b1011, 0b0111, 0b1111} {
				if !told[mask] {
					t.Errorf("no port status %#b: %v", mask, told)
				}
			}
			for _, p := range []*lab.Proc{client, server} {
				if code := p.Exit(lab.Limit); code != 0 {
					t.Errorf("exit code %d: %s", code, &p.Diag)
				}
			}
		})
	}
}

// TestPlanesAddress: the daemon refuses interfaces with different Ethernet addresses, and names the remedy.
func TestPlanesAddress(t *testing.T) {
	lab.Long(t)
	l := newLab(t, netlab.LabOptions{Planes: 2, Extra: "    profile: mrc\n", Shared: [2]string{"packet", "packet"}})
	l.onLink(0, "e1", func(d netlink.Link) error { return netlink.LinkSetHardwareAddr(d, net.HardwareAddr{2, 0, 0, 0, 9, 9}) })
	file := filepath.Join(l.Dir, "c.yaml")
	text := fmt.Sprintf("run_dir: %q\nnics: [{name: c, port: {type: packet, netns: %q, planes: [{interface: e0}, {interface: e1}]}}]\n",
		filepath.Join(l.Dir, "c"), l.Bed.NS[0].Path())
	lab.Must(t, os.WriteFile(file, []byte(text), 0o600))
	l.Start(0, lab.Program("roced"), "run", "--config", file).Fails(soon, "ip link set e1 address 02:00:00:00:01:01")
}
