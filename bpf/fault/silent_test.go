package fault_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"roced.io/roced/bpf/attach"
	"roced.io/roced/bpf/bottleneck"
	bpffault "roced.io/roced/bpf/fault"
	"roced.io/roced/bth"
	"roced.io/roced/internal/base/fault"
	"roced.io/roced/port/link"
	"roced.io/roced/port/vnet"
)

const (
	segment = 1000
	headers = 14 + 20 + 8
)

// instruments drop all frames that an interface sends. attach returns the number of drops, and an end.
var instruments = map[string]func(t *testing.T, m attach.Mode) (drops func() uint64, end func() error){
	"rule": func(t *testing.T, m attach.Mode) (func() uint64, func() error) {
		a, err := bpffault.Attach("left", m)
		check(t, err)
		r, err := fault.Parse("tx drop")
		check(t, err)
		check(t, a.SetRules([]fault.Rule{r}))
		return func() uint64 {
			s, err := a.Stats()
			check(t, err)
			return s.Rules[0].Hit
		}, a.Close
	},
	"full bottleneck": func(t *testing.T, m attach.Mode) (func() uint64, func() error) {
		return narrow(t, m, "kmin=1", "kmax=2", "limit=2")
	},
	"bottleneck without ECN": func(t *testing.T, m attach.Mode) (func() uint64, func() error) {
		return narrow(t, m, "kmin=1", "kmax=1", "limit=100k")
	},
}

// narrow attaches a bottleneck whose queue is not empty for hours.
func narrow(t *testing.T, m attach.Mode, words ...string) (func() uint64, func() error) {
	o, err := bottleneck.Parse(append(words, "rate=1mbit", "burst=2k"))
	check(t, err)
	a, err := bottleneck.Attach("left", o, m)
	check(t, err)
	return func() uint64 {
		s, err := a.Stats()
		check(t, err)
		return s.Dropped + s.Overflowed
	}, a.Close
}

// sender returns a function that sends packets in one frame.
type sender func(t *testing.T) func(packets int) error

// TestLossIsSilent drops frames of sockets that ask for errors, UDP with IP_RECVERR and AF_PACKET. A sender sees no error:
// it would send a refused frame again.
func TestLossIsSilent(t *testing.T) {
	for _, m := range []attach.Mode{attach.TCX, attach.Clsact} {
		for name, instrument := range instruments {
			for kind, open := range map[string]sender{"UDP": viaUDP, "AF_PACKET": viaPacket} {
				t.Run(fmt.Sprintf("%s, %s, %s", name, m, kind), func(t *testing.T) {
					wire(t)
					send := open(t)
					drops, end := instrument(t, m)
					for i := range 20 { // the burst of the bottleneck passes
						for _, packets := range []int{1, 4} {
							if err := send(packets); err != nil {
								t.Fatalf("the sender sees the loss of frame %d of %d packets: %v", i, packets, err)
							}
						}
					}
					for deadline := time.Now().Add(10 * time.Second); drops() < 20; time.Sleep(time.Millisecond) {
						if time.Now().After(deadline) {
							t.Fatalf("%d drops", drops())
						}
					}
					check(t, end())
				})
			}
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, ebpf.ErrNotSupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// wire makes a veth "left" with a peer, in a new network namespace.
func wire(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	ns, err := netns.New()
	check(t, err)
	t.Cleanup(func() { ns.Close() })
	check(t, os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0))
	check(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "left"}, PeerName: "right"}))
	left, err := netlink.LinkByName("left")
	check(t, err)
	right, err := netlink.LinkByName("right")
	check(t, err)
	addr, err := netlink.ParseAddr("198.18.0.1/24")
	check(t, err)
	check(t, errors.Join(netlink.LinkSetUp(right), netlink.LinkSetUp(left), netlink.AddrAdd(left, addr), netlink.NeighAdd(&netlink.Neigh{
		LinkIndex: left.Attrs().Index, IP: net.IPv4(198, 18, 0, 2), HardwareAddr: right.Attrs().HardwareAddr, State: netlink.NUD_PERMANENT,
	})))
}

// payload returns RoCEv2 packets of equal length.
func payload(packets int) []byte {
	b := make([]byte, packets*segment)
	for i := range packets {
		b[i*segment] = byte(bth.OpWriteMiddle)
		binary.BigEndian.PutUint32(b[i*segment+8:], uint32(i))
	}
	return b
}

func viaUDP(t *testing.T) func(int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	check(t, unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1))
	check(t, unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, segment))
	return func(packets int) error {
		return unix.Sendto(fd, payload(packets), 0, &unix.SockaddrInet4{Port: bth.UDPPort, Addr: [4]byte{198, 18, 0, 2}})
	}
}

func viaPacket(t *testing.T) func(int) error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	check(t, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1))
	l, err := netlink.LinkByName("left")
	check(t, err)
	check(t, unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: l.Attrs().Index}))
	var q vnet.Queue
	return func(packets int) error {
		f := &link.Frame{HdrLen: headers}
		if packets > 1 {
			f.SegSize = segment
		}
		b := make([]byte, headers, headers+packets*segment)
		copy(b, l.Attrs().HardwareAddr)
		copy(b[12:], []byte{8, 0, 0x45})
		binary.BigEndian.PutUint16(b[16:], uint16(headers-14+packets*segment))
		b[22], b[23] = 64, unix.IPPROTO_UDP
		copy(b[26:], []byte{198, 18, 0, 1, 198, 18, 0, 2, 0xc0, 1})
		binary.BigEndian.PutUint16(b[36:], bth.UDPPort)
		binary.BigEndian.PutUint16(b[38:], uint16(8+packets*segment))
		b = append(b, payload(packets)...)
		f.Bufs, f.Len = [][]byte{b}, len(b)
		if e := q.Send(fd, f); e != 0 {
			return e
		}
		return nil
	}
}

// TestLongFramesPassALowLimit: a super-frame longer than the limit of the bottleneck enters an empty queue.
func TestLongFramesPassALowLimit(t *testing.T) {
	wire(t)
	send := viaUDP(t)
	o, err := bottleneck.Parse(strings.Fields("rate=10gbit burst=2k kmin=2k kmax=3k limit=3k"))
	check(t, err)
	a, err := bottleneck.Attach("left", o, attach.Auto)
	check(t, err)
	defer a.Close()
	check(t, send(40))
	if s, err := a.Stats(); err != nil || s.Frames != 1 || s.Overflowed != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}
