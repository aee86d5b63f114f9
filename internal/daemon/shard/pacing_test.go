package shard

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
	"roced.io/roced/rocev2/queue"
)

// stopwatch is a port that records the time of every data frame. It answers ARP, so that the NIC has a peer.
type stopwatch struct {
	fd    int
	reply []byte
	at    []mono.Time
	done  chan struct{} // closed when at is full
}

var peerMAC = inet.MAC{2, 0, 0, 0, 0, 2}

func (p *stopwatch) Send(_ mono.Time, f *link.Frame) error {
	if f.HdrLen == 0 {
		b := f.AppendTo(nil)
		if b[12] == 8 && b[13] == 6 && b[21] == 1 { // an ARP request: turn it into the reply
			p.reply = slices.Concat(b[6:12], peerMAC[:], b[12:20], []byte{0, 2}, peerMAC[:], b[38:42], b[22:28], b[28:32])
		}
		return nil
	}
	if len(p.at) < cap(p.at) {
		if p.at = append(p.at, Now()); len(p.at) == cap(p.at) {
			close(p.done)
		}
	}
	return nil
}

func (p *stopwatch) Recv(_ mono.Time, buf []byte) (frame []byte, segSize int, err error) {
	if len(p.reply) == 0 {
		return nil, 0, port.ErrAgain
	}
	frame = buf[:copy(buf, p.reply)]
	p.reply = p.reply[:0]
	return frame, 0, nil
}

func (p *stopwatch) NextTimeout() mono.Time { return mono.Never }
func (p *stopwatch) FD() int                { return p.fd }
func (p *stopwatch) Offload() link.Offload  { return link.Offload{} }
func (p *stopwatch) Close() error           { return unix.Close(p.fd) }

// endless is memory with the same content everywhere.
type endless struct{ page [4096]byte }

func (e *endless) View(_ uint64, n int) ([]byte, bool)                       { return e.page[:n], true }
func (e *endless) Write(uint64, []byte) bool                                 { return false }
func (e *endless) CompareSwap(uint64, uint64, uint64) (orig uint64, ok bool) { return 0, false }
func (e *endless) FetchAdd(uint64, uint64) (orig uint64, ok bool)            { return 0, false }

// BenchmarkPacing measures the deviation of packets from their schedule, with the real loop and the real clock. The
// pacer itself is exact (qp.TestPacerIsExact); the rest depends on the timing of the loop's turns.
func BenchmarkPacing(b *testing.B) {
	for _, poll := range []time.Duration{50 * time.Microsecond, -1} {
		for _, rate := range []uint64{100e6, 1e9, 5e9} {
			name := fmt.Sprintf("poll=%v/%dMbps", poll, rate/1e6)
			if poll < 0 {
				name = fmt.Sprintf("busy/%dMbps", rate/1e6)
			}
			b.Run(name, func(b *testing.B) { benchmarkPacing(b, poll, rate) })
		}
	}
}

func benchmarkPacing(b *testing.B, poll time.Duration, rate uint64) {
	const mtu, wire = 1024, 14 + 20 + 8 + 12 + 1024 + 4
	fd, err := shm.Eventfd()
	if err != nil {
		b.Fatal(err)
	}
	port := &stopwatch{fd: fd, at: make([]mono.Time, 0, b.N+1), done: make(chan struct{})}
	defer port.Close()
	nic, err := rocev2.New(rocev2.Config{Name: "a", MAC: inet.MAC{2, 0, 0, 0, 0, 1}, MTU: 1500,
		Addrs: []netip.Prefix{netip.MustParsePrefix("198.18.0.1/24")},
		NewProfile: func(name string) (qp.Profile, error) {
			p, err := rocev2.NewProfile(name)
			p.Controller = ccalgo.NewStatic(ccalgo.Unlimited, rate)
			return p, err
		}})
	if err != nil {
		b.Fatal(err)
	}
	s, err := New(Config{NIC: nic, Port: port, Poll: poll})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.ResetTimer()
	if derr := s.Do(context.Background(), func(now mono.Time, n *rocev2.NIC) { err = sendForever(now, n) }); derr != nil || err != nil {
		b.Fatal(derr, err)
	}
	<-port.done
	b.StopTimer()
	report(b, port.at, float64(wire)*8e9/float64(rate))
}

// sendForever posts the longest message over UC, which needs no acknowledgements.
func sendForever(now mono.Time, n *rocev2.NIC) error {
	pd, err := n.AllocPD(nil)
	if err != nil {
		return err
	}
	cq, err := n.CreateCQ(rocev2.CQAttr{Entries: 16, Ring: queue.NewRing(16)})
	if err != nil {
		return err
	}
	mr, err := n.RegMR(pd, rocev2.MRAttr{Length: qp.MaxMessage, Mem: &endless{}})
	if err != nil {
		return err
	}
	sq := queue.NewSend(16)
	q, err := n.CreateQP(rocev2.QPAttr{Type: qp.UC, PD: pd, SendCQ: cq, RecvCQ: cq, SQ: sq, RQ: queue.NewRecv(16),
		Caps: rocev2.QPCaps{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return err
	}
	av := rocev2.AddressVector{SGIDIndex: 0, DGID: inet.GIDOf(netip.MustParseAddr("198.18.0.2"))}
	for _, step := range []struct {
		attr qp.Attr
		mask qp.AttrMask
		av   *rocev2.AddressVector
	}{
		{qp.Attr{State: qp.Init, Port: 1}, qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccessFlags, nil},
		{qp.Attr{State: qp.RTR, PathMTU: 3, DestQPN: 17}, qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN, &av},
		{qp.Attr{State: qp.RTS}, qp.AttrSQPSN, nil},
	} {
		if err := n.ModifyQP(now, q, step.attr, step.mask|qp.AttrState, step.av); err != nil {
			return err
		}
	}
	for range 16 {
		if err := sq.Post(qp.SendWQE{Opcode: qp.WRWrite, Length: qp.MaxMessage - 4096,
			SGEs: []qp.SGE{{Length: qp.MaxMessage - 4096, LKey: mr.LKey}}}); err != nil {
			return err
		}
	}
	n.Doorbell(now, q)
	return nil
}

// credit is the longest delay that the pacer compensates (qp.maxCredit). Beyond it, "lost" is the time that the
// machine kept the loop from running.
const credit = float64(200 * time.Microsecond)

// report compares the instants with a schedule. The schedule starts at the first packet and restarts when the delay
// exceeds the credit.
func report(b *testing.B, at []mono.Time, interval float64) {
	late, due, lost := make([]float64, len(at)), float64(at[0]), 0.0
	for i, t := range at {
		if late[i] = float64(t) - due; late[i] > credit {
			lost += late[i] - credit
			due = float64(t) - credit
		}
		due += interval
	}
	total := float64(at[len(at)-1].Sub(at[0]))
	slices.Sort(late)
	b.ReportMetric(late[len(late)/2]/1e3, "late-p50-us")
	b.ReportMetric(late[len(late)*99/100]/1e3, "late-p99-us")
	b.ReportMetric((total/(float64(len(at)-1)*interval)-1)*100, "slower-%")
	b.ReportMetric(lost/max(total, 1)*100, "not-running-%")
}
