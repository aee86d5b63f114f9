package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/lab/vm"
)

// Links between our NICs and the machine's devices rxe0, rxe1 and so on.
const (
	linkUnix   = iota // AF_UNIX datagrams
	linkTAP           // TAPs in two namespaces, bridges and a veth pair between them
	linkWire          // AF_UNIX datagrams through our wire, which may change frames
	linkSingle        // as linkTAP, by a NIC of ours with write_segments: single
	linkUDP           // UDP sockets of an unprivileged user, and a TAP of the machine
	links
)

// firstPair is the number of the first device of the pair. The numbers of the other devices are those of their links.
const firstPair = 10

// roceName names the NIC of ours with a number.
func roceName(number int) string { return fmt.Sprintf("rxe_%d", number) }

// rxeName names a device in the machine, and the port of its agent.
func rxeName(number int) string { return fmt.Sprintf("rxe%d", number) }

var linkNames = [links]string{"AF_UNIX", "TAP", "wire", "TAP, single segments", "UDP sockets"}

// lab is a daemon with a NIC for each link, connected to a virtual machine.
type lab struct {
	dir   string
	bin   string
	image vm.Image
	bed   *netlab.Bed
	host  *netlab.Host
	user  *netlab.Host // the daemon with linkUDP
	vm    *vm.VM
	wire  *wire
	ours  [links]*ours
	rxe   [links]*rxe
	pair  [2]*rxe // two devices inside the machine, connected by a veth pair
}

// addresses returns the addresses of our side or of the machine's side on a link.
func addresses(link, side int) (v4, v6 netip.Addr) {
	return netip.MustParseAddr(fmt.Sprintf("198.18.%d.%d", 10+link, side+1)),
		netip.MustParseAddr(fmt.Sprintf("fd00:%d::%d", 10+link, side+1))
}

// bootLimit is generous: QEMU emulates, and other work may use the processors.
const bootLimit = 180 * time.Second

// newLab starts the daemons and the machine.
func newLab(bin, dir string, image vm.Image, cpus int) (*lab, error) {
	l := &lab{dir: dir, bin: bin, image: image}
	err := l.start(cpus)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *lab) start(cpus int) (err error) {
	if l.bed, err = netlab.New(); err != nil {
		return err
	}
	if err = l.addTAPs(); err != nil {
		return err
	}
	if l.wire, err = newWire(l.path("a2"), l.path("w2"), l.path("w3"), l.path("b2")); err != nil {
		return err
	}
	if err = errors.Join(l.startDaemon(), l.startUser()); err != nil {
		return err
	}
	o := vm.Options{Image: l.image, Dir: l.dir, CPUs: cpus, Start: l.bed.NS[1].Start}
	for i := range links {
		o.Ports = append(o.Ports, rxeName(i))
		k := vm.Link{MAC: fmt.Sprintf("02:00:00:00:0a:%02x", i)}
		switch i {
		case linkTAP:
			k.TAP = tapName
		case linkSingle:
			k.TAP = tapSingle
		case linkUDP:
			k.TAP = tapUser
		case linkWire:
			k.Local, k.Remote = l.path("b2"), l.path("w3")
		default:
			k.Local, k.Remote = l.path("b0"), l.path("a0")
		}
		o.Links = append(o.Links, k)
	}
	for i := range l.pair {
		o.Ports = append(o.Ports, rxeName(firstPair+i))
	}
	if l.vm, err = vm.Start(o, bootLimit); err != nil {
		return err
	}
	return l.open()
}

func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

// QEMU's TAP devices. Two are in a bridge; the third has addresses of the kernel.
const (
	tapName   = "tapvm"
	tapSingle = "tapsingle"
	tapUser   = "tapuser"
)

// addTAPs creates QEMU's TAP devices in the second namespace.
func (l *lab) addTAPs() error {
	v4, v6 := addresses(linkUDP, 0)
	for _, args := range [][]string{
		{"tuntap", "add", "dev", tapName, "mode", "tap", "vnet_hdr"},
		{"link", "set", tapName, "mtu", "9000", "master", netlab.Bridge, "up"},
		{"tuntap", "add", "dev", tapSingle, "mode", "tap", "vnet_hdr"},
		{"link", "set", tapSingle, "mtu", "9000", "master", netlab.Bridge, "up"},
		{"tuntap", "add", "dev", tapUser, "mode", "tap", "vnet_hdr"},
		{"address", "add", v4.String() + "/24", "dev", tapUser},
		{"address", "add", v6.String() + "/64", "dev", tapUser, "nodad"},
		{"link", "set", tapUser, "mtu", "4200", "up"},
	} {
		c := exec.Command("ip", args...)
		if err := l.bed.NS[1].Run(c); err != nil {
			return fmt.Errorf("ip %v: %w", args, err)
		}
	}
	return nil
}

// startDaemon starts a daemon with a NIC for each link.
func (l *lab) startDaemon() error {
	text := fmt.Sprintf("run_dir: %q\nnics:\n", l.path("run"))
	for i := range linkUDP {
		v4, v6 := addresses(i, 0)
		var port string
		switch i {
		case linkTAP, linkSingle:
			port = fmt.Sprintf("{type: tap, netns: %q, device: tapnic%d, bridge: %s}", l.bed.NS[0].Path(), i, netlab.Bridge)
		default:
			remote := map[int]string{linkUnix: "b0", linkWire: "w2"}[i]
			port = fmt.Sprintf("{type: unix, local: %q, remote: %q}", l.path(fmt.Sprintf("a%d", i)), l.path(remote))
		}
		if i == linkSingle {
			port += ", write_segments: single"
		}
		text += fmt.Sprintf("  - {name: %s, addresses: [%s/24, \"%s/64\"], port: %s}\n", roceName(i), v4, v6, port)
	}
	l.host = &netlab.Host{RunDir: l.path("run"), Config: l.path("roced.yaml"), LogFile: l.path("roced.log")}
	if err := os.WriteFile(l.host.Config, []byte(text), 0o600); err != nil {
		return err
	}
	return l.host.Start(l.bin)
}

// ordinary is an unprivileged user.
const ordinary = 65534

// startUser starts a daemon with a NIC on UDP sockets, as an unprivileged user if the current user may switch to it.
func (l *lab) startUser() error {
	dir := l.path("user")
	h := &netlab.Host{NS: l.bed.NS[1], RunDir: filepath.Join(dir, "run"), Config: filepath.Join(dir, "roced.yaml"), LogFile: l.path("user.log")}
	if netlab.Own() == netlab.Root {
		h.User = ordinary
	}
	text := fmt.Sprintf("run_dir: %q\nnics: [{name: %s, port: {type: udp, interface: %s}}]\n", h.RunDir, roceName(linkUDP), tapUser)
	program, err := os.ReadFile(filepath.Join(l.bin, "roced"))
	err = errors.Join(err, os.Chmod(l.dir, 0o711), os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "roced"), program, 0o755),
		os.WriteFile(h.Config, []byte(text), 0o644))
	if h.User != 0 {
		err = errors.Join(err, os.Chown(dir, ordinary, ordinary))
	}
	if err != nil {
		return err
	}
	l.user = h
	return h.Start(dir)
}

// open sets up the devices in the machine and opens both sides of all links.
func (l *lab) open() error {
	for i := range links {
		v4, v6 := addresses(i, 1)
		peer4, peer6 := addresses(i, 0)
		_, err := l.vm.Shell(fmt.Sprintf(`set -e; dev=eth%d
sysctl -qw net.ipv6.conf.$dev.accept_dad=0
ip link set $dev mtu 4200 up; ip addr add %s/24 dev $dev; ip addr add %s/64 dev $dev nodad
rdma link add %s type rxe netdev $dev`, i, v4, v6, rxeName(i)), commandLimit)
		if err != nil {
			return err
		}
		if l.rxe[i], err = newRXE(l.vm, rxeName(i), [2]netip.Addr{v4, v6}, [2]netip.Addr{peer4, peer6}); err != nil {
			return err
		}
		socket := filepath.Join(l.host.RunDir, fmt.Sprintf("uverbs%d", i))
		if i == linkUDP {
			socket = filepath.Join(l.user.RunDir, "uverbs0")
		}
		if l.ours[i], err = newOurs(socket, peer4, peer6); err != nil {
			return err
		}
	}
	return l.openPair()
}

// openPair creates two rxe devices in the machine and opens them.
func (l *lab) openPair() error {
	_, err := l.vm.Shell(pairScript, commandLimit)
	for i := range l.pair {
		if err != nil {
			return err
		}
		own, peer := pairAddress(i), pairAddress(1-i)
		l.pair[i], err = newRXE(l.vm, rxeName(firstPair+i), [2]netip.Addr{own, own}, [2]netip.Addr{peer, peer})
	}
	return err
}

// pairAddress returns the address of a device of the pair.
func pairAddress(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("198.18.20.%d", i+1)) }

// pairScript makes rxe10 and rxe11 on a veth pair. Both ends are in one namespace, because rxe of Linux 6.1 passes no
// traffic in a second one. Rules prevent the kernel from delivering locally. Other devices may send to themselves, as a
// Flor queue pair does.
const pairScript = `set -e
for what in all default; do
	sysctl -qw net.ipv4.conf.$what.accept_local=1 net.ipv4.conf.$what.rp_filter=0
	sysctl -qw net.ipv4.conf.$what.arp_ignore=1 net.ipv4.conf.$what.arp_announce=2
done
ip link add veth0 type veth peer name veth1
for i in 0 1; do
	ip link set veth$i mtu 4200 up; ip addr add 198.18.20.$((i+1))/32 dev veth$i
	sysctl -qw net.ipv4.conf.veth$i.accept_local=1 net.ipv4.conf.veth$i.rp_filter=0
	ip route add 198.18.20.$((2-i))/32 dev veth$i src 198.18.20.$((i+1))
	ip rule add pref $((10+i)) iif veth$i to 198.18.20.$((i+1)) lookup local
	rdma link add rxe1$i type rxe netdev veth$i
done
for i in 0 1 2 3 4; do
	ip rule add pref $((20+i)) iif eth$i lookup local
	ip rule add pref $((30+i)) iif lo to 198.18.$((10+i)).2 lookup local
done
ip rule add pref 40000 lookup local; ip rule del pref 0`

// Close stops the daemons and the machine.
func (l *lab) Close() error {
	var errs []error
	for _, o := range l.ours {
		if o != nil {
			errs = append(errs, o.ctx.Close())
		}
	}
	if l.vm != nil {
		errs = append(errs, l.vm.Close())
	}
	if l.host != nil {
		errs = append(errs, l.host.Stop(syscall.SIGTERM))
	}
	errs = append(errs, l.user.Stop(syscall.SIGTERM))
	if l.wire != nil {
		errs = append(errs, l.wire.Close())
	}
	if l.bed != nil {
		errs = append(errs, l.bed.Close())
	}
	return errors.Join(errs...)
}
