package flow_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/internal/observe/flow"
)

// TestCopies: n is a request of this PSN, a an acknowledgement, k a NAK; @ sets the place, # the IP ID, +n waits n us. A copy repeats the
// packet before byte by byte.
func TestCopies(t *testing.T) {
	for _, c := range []struct{ name, steps, want string }{
		{"quick copies", "n1 n1 a1 a1 n2 n2 a2 a2", "2 copies, 0 retransmitted, 2 acks, 2 copies of them"},
		{"a timeout", "n1 a1 n2 +100 n2 a2", "0 copies, 1 retransmitted, 2 acks, 0 copies of them"},
		{"a NAK at once", "n1 n2 n3 k2 n2 n3", "0 copies, 2 retransmitted, 0 acks, 0 copies of them"},
		{"a NAK, all doubled", "n1 n1 n2 n2 n3 n3 k2 k2 n2 n2 n3 n3", "5 copies, 2 retransmitted, 0 acks, 1 copies of them"},
		{"two NAKs of a bad responder", "n1 a1 n2 n3 k2 k2", "0 copies, 0 retransmitted, 1 acks, 0 copies of them"},
		{"another place", "@1 n1 +5000 @2 n1 @1 n2 +5000 @2 n2", "2 copies, 0 retransmitted, 0 acks, 0 copies of them"},
		{"a timeout, two places", "@1 n1 @2 n1 +3000 @1 n1 @2 n1", "2 copies, 1 retransmitted, 0 acks, 0 copies of them"},
		{"IP ID", "#5 n1 +100000 #5 n1 #6 n1", "1 copies, 1 retransmitted, 0 acks, 0 copies of them"},
		{"one IP ID for all", "#1 n1 n2 +100 n2 n2", "1 copies, 1 retransmitted, 0 acks, 0 copies of them"},
	} {
		f, id, place := newFeed(0), uint16(0), uint32(0)
		for _, step := range strings.Fields(c.steps) {
			var n uint32
			if _, err := fmt.Sscanf(step[1:], "%d", &n); err != nil {
				t.Fatal(step)
			}
			from, to, p := hostA, hostB, bth.Packet{Opcode: bth.OpSendOnly, DestQP: 7, AckReq: true, Payload: make([]byte, 8)}
			switch step[0] {
			case '+':
				f.now = f.now.Add(time.Duration(n) * time.Microsecond)
				continue
			case '#':
				id = uint16(n)
				continue
			case '@':
				place = n
				continue
			case 'a', 'k':
				from, to, p = hostB, hostA, bth.Packet{Opcode: bth.OpAcknowledge, DestQP: 3, AETH: bth.AETH{Syndrome: bth.SyndromeACK}}
			}
			if step[0] == 'k' {
				p.AETH.Syndrome = bth.SyndromePSNSeqErr
			}
			p.PSN = bth.MakePSN(n)
			b := f.packet(from, to, p)
			binary.BigEndian.PutUint16(b[4:], id)
			if err := bth.SealICRC(b); err != nil {
				t.Fatal(err)
			}
			f.now += 1000
			d, _ := bth.ReadDatagram(bth.EtherType(b), b)
			f.Datagram(&flow.Input{Time: f.now, Datagram: d, IP: b, Intact: true, Vantage: place})
		}
		g := f.Flows()[0]
		if got := fmt.Sprintf("%d copies, %d retransmitted, %d acks, %d copies of them", g.Requests.Duplicated, g.Requests.Retransmitted, g.Responses.Acks, g.Responses.Duplicated); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestIgnoredICRC reads packets with a wrong ICRC, and packets without one.
func TestIgnoredICRC(t *testing.T) {
	for _, absent := range []int{0, bth.ICRCLen} {
		f := &feed{Analyzer: flow.New(flow.Options{IgnoreICRC: true}), now: 1e9, id: 100}
		send := func(from, to netip.Addr, p bth.Packet) {
			b := f.packet(from, to, p)
			b = b[:len(b)-absent]
			binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
			binary.BigEndian.PutUint16(b[24:], uint16(len(b)-20))
			if absent == 0 {
				b[len(b)-1]++
			}
			f.now += 1000
			f.Packet(f.now, b)
		}
		send(hostA, hostB, bth.Packet{Opcode: bth.OpWriteFirst, DestQP: 7, PSN: bth.MakePSN(1), RETH: bth.RETH{Length: 1048}, Payload: make([]byte, 1024)})
		send(hostA, hostB, bth.Packet{Opcode: bth.OpWriteLast, DestQP: 7, PSN: bth.MakePSN(2), AckReq: true, Payload: make([]byte, 24)})
		send(hostB, hostA, bth.Packet{Opcode: bth.OpAcknowledge, DestQP: 3, PSN: bth.MakePSN(2), AETH: bth.AETH{Syndrome: bth.SyndromeACK}})
		if g := f.only(t); g.Messages != 1 || g.Bytes != 1048 || g.MTU != 1024 || g.Responses.Acks != 1 || f.Totals().Malformed+f.Totals().BadICRC != 0 {
			t.Errorf("%d bytes absent: %+v %+v", absent, g, f.Totals())
		}
	}
}
