package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"roced.io/roced/internal/lab/porttest"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

// rawFrame is a frame of UDP from p0 to p1 with a tag of a VLAN, without one for 0.
func rawFrame(t *testing.T, vlan uint16) []byte {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 1, 0}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 1, 1}, EthernetType: layers.EthernetTypeIPv4}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: addr(0).AsSlice(), DstIP: addr(1).AsSlice()}
	udp := &layers.UDP{SrcPort: 5000, DstPort: 6000}
	must(t, udp.SetNetworkLayerForChecksum(ip))
	all := []gopacket.SerializableLayer{eth, ip, udp, gopacket.Payload(make([]byte, 64))}
	if vlan != 0 {
		eth.EthernetType = layers.EthernetTypeDot1Q
		tag := &layers.Dot1Q{VLANIdentifier: vlan, Type: layers.EthernetTypeIPv4}
		all = append([]gopacket.SerializableLayer{eth, tag}, all[1:]...)
	}
	b := gopacket.NewSerializeBuffer()
	must(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...))
	return b.Bytes()
}

// TestRawFlows: raw flows send so many frames, for so long, at their rates, beside each other. The receiver finds them by their
// signatures, whose checksums are right. An unknown destination is resolved first.
func TestRawFlows(t *testing.T) {
	b := porttest.DirectBed(t, [2]bool{true, true})
	c := twoPorts(b, 0)
	c.RawFlows = []RawFlow{
		{Name: "count", Tx: "p0", Rx: []string{"p1"}, Rate: Rate{PacketsPerSecond, 2000}, Packets: 300, Frame: rawFrame(t, 7), Metrics: true},
		{Name: "time", Tx: "p0", Rx: []string{"p1"}, Rate: Rate{BitsPerSecond, 1e6}, Duration: 200 * time.Millisecond, Frame: rawFrame(t, 0), Metrics: true},
		{Name: "resolved", Tx: "p0", Rx: []string{"p1"}, Rate: Rate{LineFraction, 1e-5}, Packets: 20, Frame: rawFrame(t, 0), Metrics: true, Resolve: addr(1)},
	}
	plain := make([]byte, 100) // without IP
	copy(plain, []byte{2, 0, 0, 0, 1, 1, 2, 0, 0, 0, 1, 0, 0x88, 0xb5})
	c.RawFlows = append(c.RawFlows, RawFlow{Name: "plain", Tx: "p0", Rx: []string{"p1"}, Rate: Rate{PacketsPerSecond, 1000}, Packets: 5, Frame: plain, Metrics: true})
	clear(c.RawFlows[2].Frame[:6])
	e := start(t, c)
	must(t, e.Traffic(nil, Start))
	await(t, e, "all flows have ended", func() bool {
		for _, m := range e.RawFlowMetrics() {
			if m.State != Stopped || m.FramesTx != m.FramesRx {
				return false
			}
		}
		return true
	})
	m := e.RawFlowMetrics()
	size := uint64(len(c.RawFlows[0].Frame) + 4)
	if m[0].FramesTx != 300 || m[0].BytesTx != 300*size || m[0].BytesRx != m[0].BytesTx || m[0].PortRx != "p1" || m[2].FramesTx != 20 || m[3].FramesRx != 5 {
		t.Errorf("%+v", m)
	}
	if most := uint64(0.2*1e6/8/float64(size-4)) + 1; m[1].FramesTx == 0 || m[1].FramesTx > most {
		t.Errorf("%d frames in 200 ms, at most %d", m[1].FramesTx, most)
	}
	if n := e.Neighbors(); len(n) != 1 || n[0].Addr != addr(1) || n[0].MAC[5] != 1 {
		t.Errorf("neighbours %+v", n)
	}
	longer := c.RawFlows[0]
	longer.Frame = append(bytes.Clone(longer.Frame), make([]byte, 40)...)
	must(t, e.UpdateRawFlows([]RawFlow{longer}))
	if n := e.RawFlowMetrics()[0].BytesTx; n != 300*size {
		t.Errorf("%d bytes after an update, %d before", n, 300*size)
	}
	must(t, e.Traffic([]string{"count"}, Start))
	await(t, e, "the flow has ended again", func() bool { m := e.RawFlowMetrics()[0]; return m.State == Stopped && m.FramesRx == 300 })
	if m := e.RawFlowMetrics()[0]; m.BytesTx != 300*(size+40) || m.BytesRx != m.BytesTx {
		t.Errorf("longer frames: %+v", m)
	}
	mtu := e.run.ports["p0"].link.State().MTU
	longer.Frame = make([]byte, mtu+15)
	if err := e.UpdateRawFlows([]RawFlow{longer}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("frame of %d bytes: port p0 has an MTU of %d", mtu+19, mtu)) {
		t.Errorf("%v", err)
	}
	must(t, e.RemoveRawFlows([]string{"time"}))
	must(t, e.AddRawFlows(c.RawFlows[1:2]))
	if e.AddRawFlows(c.RawFlows[1:2]) == nil || len(e.RawFlowMetrics()) != 4 || e.Traffic([]string{"none"}, Start) == nil {
		t.Error("names are not checked")
	}
	for _, r := range e.run.raws {
		p := gopacket.NewPacket(r.frame.Bufs[0], layers.LayerTypeEthernet, gopacket.Default)
		udp, ok := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
		if !ok {
			continue
		}
		had := udp.Checksum
		must(t, udp.SetNetworkLayerForChecksum(p.NetworkLayer()))
		b := gopacket.NewSerializeBuffer()
		must(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{ComputeChecksums: true}, udp, gopacket.Payload(udp.Payload)))
		if had != binary.BigEndian.Uint16(b.Bytes()[6:]) {
			t.Errorf("%s: checksum %#x, want %#x", r.cfg.Name, had, udp.Checksum)
		}
	}
}

// TestPromiscuous: a port without promiscuous mode accepts frames for its interfaces only.
func TestPromiscuous(t *testing.T) {
	b := porttest.DirectBed(t, [2]bool{true, true})
	c := twoPorts(b, 0)
	c.Ports[1].Promiscuous = false
	for i, dst := range []net.HardwareAddr{{2, 0, 0, 0, 9, 9}, {2, 0, 0, 0, 1, 1}} {
		c.RawFlows = append(c.RawFlows, RawFlow{Name: fmt.Sprint(i), Tx: "p0", Rx: []string{"p1"}, Rate: Rate{PacketsPerSecond, 1000}, Packets: 50,
			Frame: rawFrame(t, 0), Metrics: true})
		copy(c.RawFlows[i].Frame, dst)
	}
	e := start(t, c)
	must(t, e.Traffic([]string{"0"}, Start))
	await(t, e, "the first flow has ended", func() bool { return e.RawFlowMetrics()[0].State == Stopped })
	must(t, e.Traffic([]string{"1"}, Start))
	await(t, e, "the frames for the interface", func() bool { return e.RawFlowMetrics()[1].FramesRx == 50 })
	if m := e.RawFlowMetrics()[0]; m.FramesTx != 50 || m.FramesRx != 0 {
		t.Errorf("%+v", m)
	}
}

// nowhere is a link that takes all frames.
type nowhere struct{ port.Monitored }

func (nowhere) Send(mono.Time, *link.Frame) error { return nil }

// TestRawRates: each unit of rates has its own idea of a frame's length. A late loop makes up for a while, and a pause stops the
// clock.
func TestRawRates(t *testing.T) {
	const ms = mono.Time(time.Millisecond)
	for unit, want := range map[RateUnit]uint64{PacketsPerSecond: 1000, BitsPerSecond: 1000 * 8 * 128, LineFraction: 1000 * 8 * 148} {
		p := &testPort{link: nowhere{}, speed: 1e9}
		r := &rawFlow{cfg: RawFlow{Rate: Rate{unit, float64(want)}}, from: p, frame: link.Frame{Bufs: [][]byte{make([]byte, 124)}, Len: 124}}
		if unit == LineFraction {
			r.cfg.Rate.Value /= 1e9
		}
		p.raws = []*rawFlow{r}
		r.command(ms, Start)
		now := ms
		step := func(d mono.Time) uint64 {
			before := r.tx
			for end := now + d; now < end; now += ms / 4 {
				p.sendRaws(now)
			}
			return r.tx - before
		}
		if n := step(1000 * ms); n != 1000 {
			t.Errorf("unit %d: %d frames in a second", unit, n)
		}
		now += 10 * ms
		if n := step(90 * ms); n != 100 {
			t.Errorf("unit %d: %d frames with a late call", unit, n)
		}
		r.command(now, Pause)
		if n := step(100 * ms); n != 0 {
			t.Errorf("unit %d: %d frames in a pause", unit, n)
		}
		r.command(now, Resume)
		if n := step(100 * ms); n != 100 {
			t.Errorf("unit %d: %d frames after a pause", unit, n)
		}
		p.bucket.SetRate(148*8*500, 148)
		if n := step(1000 * ms); n > 502 || n < 495 {
			t.Errorf("unit %d: %d frames through a bucket of half the rate", unit, n)
		}
	}
}
