package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// forger sends packets in the name of host 1 to a queue pair of host 0, from another UDP source port.
type forger struct {
	*net.UDPConn
	src netip.AddrPort
	dst netip.Addr
}

func (l *rig) forger() *forger {
	l.T.Helper()
	f := &forger{dst: netip.MustParseAddr(l.Host[0].Addr)}
	from := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(l.Host[1].Addr), 0))
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(f.dst, bth.UDPPort))
	dial := func() (err error) { f.UDPConn, err = net.DialUDP("udp4", from, to); return err }
	if ns := l.NS(0); ns != nil {
		lab.Must(l.T, ns.Do(dial))
	} else {
		lab.Must(l.T, dial())
	}
	l.T.Cleanup(func() { f.Close() })
	f.src = f.LocalAddr().(*net.UDPAddr).AddrPort()
	return f
}

// send ignores errors: the receiver may have no room.
func (f *forger) send(p *bth.Packet) { _, _ = f.Write(netlab.Datagram(f.src, f.dst, p)) }

// sweep sends a NAK for each window of PSNs of a transport, and CNPs.
func (f *forger) sweep(to bth.QPN, kind bth.Profile) {
	const step = 64 // a sender has more packets in flight
	var cnp bth.Packet
	cnp.SetCNP(to)
	nak := bth.Packet{Opcode: bth.OpAcknowledge, PKey: bth.DefaultPKey, DestQP: to, AETH: bth.AETH{Syndrome: bth.SyndromeRemoteAccessErr}}
	if kind.Extended() {
		nak.Opcode |= bth.TransportExt
		nak.Ext.Profile = kind
	}
	for psn := uint32(0); psn < 1<<24; psn += step {
		nak.PSN = bth.MakePSN(psn)
		f.send(&nak)
		if psn/step%64 == 0 {
			f.send(&cnp)
		}
	}
}

// TestForgedByLocalUsers: forged NAKs and CNPs in the name of a peer on the same host do not reach its connection, and are counted.
// Without the check of source ports, NAKs end it.
func TestForgedByLocalUsers(t *testing.T) {
	lab.Long(t)
	for kind, profile := range map[bth.Profile]string{bth.ProfileRC: "rc", bth.ProfileIRN: "irn"} {
		for _, check := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, check_source: %t", profile, check), func(t *testing.T) {
				port := fmt.Sprintf("udp, check_source: %t", check)
				l := newLab(t, netlab.LabOptions{Loopback: true, Shared: [2]string{port, port}, Extra: "    profile: " + profile + "\n"})
				_, client := l.pair("write-bw", "-s", "64k", "-D", "10m")
				var own []api.Resource
				lab.Eventually(t, lab.Limit, "the connection moves data", func() bool {
					own = l.queuePairs(0, client.PID())
					return len(own) == 1 && l.counters(0)["sent_pkts"] > 1000
				})
				f := l.forger()
				if !check {
					lab.Eventually(t, lab.Limit, "forged NAKs end the connection", func() bool {
						f.sweep(bth.QPN(own[0].QP.Num), kind)
						return !client.Running()
					})
					return
				}
				for range 3 {
					f.sweep(bth.QPN(own[0].QP.Num), kind)
				}
				before := l.counters(0)
				lab.Eventually(t, lab.Limit, "the connection moves data afterwards", func() bool {
					return !client.Running() || l.counters(0)["sent_pkts"] > before["sent_pkts"]+1000
				})
				if !client.Running() || before["rx_dropped_source"] == 0 || before["rp_cnp_handled"] != 0 {
					t.Errorf("running: %t; %d packets dropped, %d CNPs handled\n%s", client.Running(), before["rx_dropped_source"],
						before["rp_cnp_handled"], &client.Diag)
				}
			})
		}
	}
}
