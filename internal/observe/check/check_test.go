package check

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"roced.io/roced/bth"
	"roced.io/roced/internal/observe/pcapng"
)

var update = flag.Bool("update", false, "write the golden file")

// line describes a check for tests.
func line(c Check) string {
	text := fmt.Sprintf("%s: %s (%s)", c.Name, c.Verdict, c.Text)
	for _, f := range c.Findings {
		text += fmt.Sprintf(" %v %s", f.Frames, f.Text)
	}
	return text + "\n"
}

// TestCaptures checks all captures of rdma_rxe. No rule is violated, and the latencies are those of the frames.
func TestCaptures(t *testing.T) {
	paths, err := filepath.Glob("../../../bth/testdata/*.pcap")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	var got strings.Builder
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Read(bytes.NewReader(b), Options{})
		if err != nil {
			t.Fatal(path, err)
		}
		if r.Violated() {
			t.Errorf("%s: a rule is violated", path)
		}
		fmt.Fprintf(&got, "== %s\n", filepath.Base(path))
		for _, c := range append(r.Connections, Connection{Checks: r.Checks}) {
			for _, k := range c.Checks {
				if k.Verdict != NoCase {
					got.WriteString(c.Flow + " " + line(k))
				}
			}
		}
	}
	const golden = "testdata/captures.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

var hostA, hostB, hostC = netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2"), netip.MustParseAddr("198.18.0.3")

// trace writes a capture with a packet each microsecond.
type trace struct {
	t  *testing.T
	b  bytes.Buffer
	w  *pcapng.Writer
	at int64
	id uint16
}

func newTrace(t *testing.T) *trace {
	x := &trace{t: t, at: 1e9}
	var err error
	if x.w, err = pcapng.NewWriter(&x.b, "test"); err == nil {
		_, err = x.w.AddInterface(pcapng.Interface{Link: pcapng.LinkRaw})
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// packet writes a packet with this traffic class.
func (x *trace) packet(from, to netip.Addr, tos byte, p bth.Packet) {
	p.PKey = bth.DefaultPKey
	transport := p.AppendTo(nil)
	n := len(transport) + 28
	x.id++
	b := []byte{0x45, tos, byte(n >> 8), byte(n), byte(x.id >> 8), byte(x.id), 0x40, 0, 64, 17, 0, 0}
	b = append(append(b, from.AsSlice()...), to.AsSlice()...)
	b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, 0xc000), bth.UDPPort)
	b = append(binary.BigEndian.AppendUint16(b, uint16(n-20)), 0, 0)
	b = append(b, transport...)
	if err := bth.SealICRC(b); err != nil {
		x.t.Fatal(err)
	}
	x.at += 1000
	if err := x.w.WritePacket(pcapng.PacketInfo{Time: x.at}, b); err != nil {
		x.t.Fatal(err)
	}
}

func (x *trace) cnp(from, to netip.Addr, qpn bth.QPN) {
	x.packet(from, to, 0, bth.Packet{Opcode: bth.OpcodeCNP, DestQP: qpn, BECN: true, Payload: make([]byte, 16)})
}

// steps writes packets between queue pair 3 of A and 7 of B: "s5" a SEND ONLY of A with PSN 5, "m5" with a CE mark, "a5" and "n5" an ACK and a NAK of B,
// "-" sets the time back by 10 s, "c" a CNP of B, "d5:2048@100" a READ request of 2048 bytes at address 100, "f5" a READ response FIRST of 1024 bytes.
func (x *trace) steps(text string) *trace {
	msn := uint32(0)
	for _, s := range strings.Fields(text) {
		var psn, length, va uint32
		if s != "c" && s != "-" {
			if n, _ := fmt.Sscanf(s[1:], "%d:%d@%d", &psn, &length, &va); n == 0 {
				x.t.Fatal(s)
			}
		}
		to := func(p bth.Packet) bth.Packet {
			p.PSN, p.AckReq = bth.MakePSN(psn), true
			return p
		}
		request := to(bth.Packet{Opcode: bth.OpSendOnly, DestQP: 7, Payload: make([]byte, 8)})
		switch s[0] {
		case '-':
			x.at -= 1e10
		case 's':
			x.packet(hostA, hostB, 0, request)
		case 'm':
			x.packet(hostA, hostB, bth.CE, request)
		case 'a', 'b':
			msn++
			x.packet(hostB, hostA, 0, to(bth.Packet{Opcode: bth.OpAcknowledge, DestQP: 3, AETH: bth.AETH{Syndrome: bth.SyndromeACK, MSN: msn}}))
			if s[0] == 'b' {
				msn -= 2
			}
		case 'n':
			x.packet(hostB, hostA, 0, to(bth.Packet{Opcode: bth.OpAcknowledge, DestQP: 3, AETH: bth.AETH{Syndrome: bth.SyndromePSNSeqErr}}))
		case 'd':
			x.packet(hostA, hostB, 0, to(bth.Packet{Opcode: bth.OpReadRequest, DestQP: 7, RETH: bth.RETH{VA: uint64(va), Length: length}}))
		case 'f':
			x.packet(hostB, hostA, 0, to(bth.Packet{Opcode: bth.OpReadRespFirst, DestQP: 3, AETH: bth.AETH{Syndrome: bth.SyndromeACK}, Payload: make([]byte, 1024)}))
		case 'c':
			x.cnp(hostB, hostA, 3)
		}
	}
	return x
}

// check reads the trace and returns the check of this name.
func (x *trace) check(name string, counters Counters) string {
	x.t.Helper()
	r, err := Read(bytes.NewReader(x.b.Bytes()), Options{Counters: counters})
	if err != nil {
		return err.Error()
	}
	for _, c := range append(r.Connections, Connection{Checks: r.Checks}) {
		for _, k := range c.Checks {
			if k.Name == name {
				return strings.TrimPrefix(strings.TrimSpace(line(k)), name+": ")
			}
		}
	}
	x.t.Fatalf("no check %s in %+v", name, r)
	return ""
}

// TestRules: each rule kept, violated, and undecidable. The trace begins with a request and its acknowledgement, frames 1 and 2.
func TestRules(t *testing.T) {
	for _, c := range []struct{ name, steps, want string }{
		{"capture", "s2 s3 a3", "ok (no holes; 0 requests were lost before the capture)"},
		{"capture", "s2 s4 a4", "undecidable (1 holes) [5] request PSN 3 is acknowledged, but the capture does not have it"},
		{"capture", "s2 s4 n3 s3 s4 a4", "ok (no holes; 1 requests were lost before the capture)"},
		{"capture", "s2 s4 n4", "undecidable (1 holes) [5] request PSN 3 is acknowledged, but the capture does not have it"},

		{"resumes at the NAK", "s2 s3 s4 n3 s3 s4 a4", "ok (1 retransmissions after a NAK)"},
		{"resumes at the NAK", "s2 s3 s4 n3 s5 s3 s4 s5 a5", "ok (1 retransmissions after a NAK)"},
		{"resumes at the NAK", "s2 s3 s4 n3 s2 s3 s4", "violated (1 of 1 retransmissions after a NAK) [6 7] after the NAK of PSN 3 the requester resumes at PSN 2"},
		{"resumes at the NAK", "s2 s3 s4 n3 s4", "violated (1 of 1 retransmissions after a NAK) [6 7] after the NAK of PSN 3 the requester resumes at PSN 4"},
		{"resumes at the NAK", "s2 s4 s5 n3 s4 n3 s3", "undecidable (1 of 2 retransmissions after a NAK, but packets were lost before the capture, perhaps the retransmission too) [6 7] after the NAK of PSN 3 the requester resumes at PSN 4"},
		{"resumes at the NAK", "s2 s4 a4 n3 s3", "undecidable (the capture has holes)"},
		{"resumes at the NAK", "s2 s3 n3", "no case ()"},

		{"one NAK outstanding", "s2 s3 s4 n3 s3 s4 n4", "ok (2 NAKs)"},
		{"one NAK outstanding", "s2 s3 s4 n3 n3", "violated (1 of 2 NAKs) [6 7] NAK of PSN 3 while that of PSN 3 is outstanding"},
		{"one NAK outstanding", "s2 s3 s4 n3 s4 n4", "violated (1 of 2 NAKs) [6 8] NAK of PSN 4 while that of PSN 3 is outstanding"},

		{"acknowledgements in order", "s2 s3 a2 a3 a3", "ok (4 ACKs)"},
		{"acknowledgements in order", "s2 s3 a3 a2", "violated (1 of 3 ACKs) [5 6] ACK of PSN 2 after that of PSN 3"},
		{"acknowledgements in order", "s2 s3 b2 a3", "violated (1 of 3 ACKs) [5 6] MSN 1 after 2"},

		{"ranges of repeated READs", "d2:3000@100 f2 d3:1976@1124", "ok (1 repeated READ requests)"},
		{"ranges of repeated READs", "d2:3000@100 f2 d2:3000@100", "ok (1 repeated READ requests)"},
		{"ranges of repeated READs", "d2:3000@100 f2 d3:1976@100", "violated (1 of 1 repeated READ requests) [3 5] READ of PSN 3 has address +0 and 1976 bytes, expected +1024 and 1976"},
		{"ranges of repeated READs", "d2:3000@100 f2 d3:3000@1124", "violated (1 of 1 repeated READ requests) [3 5] READ of PSN 3 has address +1024 and 3000 bytes, expected +1024 and 1976"},

		{"CNPs for marks", "s2 c", "violated (1 CNPs for 0 marked packets) [4] a CNP for queue pair 0x3 without a marked packet before"},
		{"CNPs for marks", "m2 c", "ok (1 CNPs for 1 marked packets) [3 4] the slowest: 1µs"},
		{"CNPs for marks", "m2", "ok (0 CNPs for 1 marked packets)"},

		{"NAK generation", "s2 s4 s5 n3", "ok (1 NAKs after the request behind the gap: 2µs to 2µs, median 2µs) [4 6] the slowest: 2µs"},
		{"NAK reaction", "s2 s4 n3 s5 s3 s4 s5", "ok (1 retransmissions after their NAK: 2µs to 2µs, median 2µs) [5 7] the slowest: 2µs"},
		{"retransmission without NAK", "s2 s3 s2 s3", "ok (1 retransmissions after the request: 2µs to 2µs, median 2µs) [3 5] the slowest: 2µs"},
		{"retransmission without NAK", "s2 s3 n2 s2 s3", "no case ()"},

		{"CNPs for marks", "m2 - c", "undecidable (times decrease at frame 4)"},
		{"pacing of CNPs", "m2 c - c c", "undecidable (times decrease at frame 5)"},
		{"NAK generation", "s2 s4 s5 - n3", "undecidable (times decrease at frame 6)"},
		{"NAK reaction", "s2 s4 n3 s5 - s3 s4 s5", "undecidable (times decrease at frame 7)"},
		{"retransmission without NAK", "s2 s3 - s2 s3", "undecidable (times decrease at frame 5)"},
	} {
		if got := newTrace(t).steps("s1 a1 "+c.steps).check(c.name, nil); got != c.want {
			t.Errorf("%s, %q:\n%s\nwant\n%s", c.name, c.steps, got, c.want)
		}
	}
}

// TestPacing: a sender that paces CNPs by queue pair sends them closely to two of them; one that paces by host never does.
func TestPacing(t *testing.T) {
	for want, order := range map[string]string{"by queue pair": "34 34 34", "by peer": "35 35 35", "by host": "3 4 5 3 4 5"} {
		x := newTrace(t).steps("s1 a1 m2")
		for _, group := range strings.Fields(order) {
			x.at += 50000
			for _, q := range group {
				to := map[rune]netip.Addr{'3': hostA, '4': hostA, '5': hostC}[q]
				x.cnp(hostB, to, bth.QPN(q-'0'))
			}
		}
		if got := x.check("pacing of CNPs", nil); !strings.HasPrefix(got, "ok ("+want+")") {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := newTrace(t).steps("s1 a1 m2 c c").check("pacing of CNPs", nil); !strings.HasPrefix(got, "undecidable (one queue pair for each sender") {
		t.Error(got)
	}
}

// TestCounters compares counters of both hosts with the packets.
func TestCounters(t *testing.T) {
	const steps = "s1 a1 s2 m4 n3 c s3 s4 a4"
	for _, c := range []struct {
		host netip.Addr
		text string
		want string
	}{
		{hostA, "sent_pkts 5\nrcvd_pkts: 4\nhw_counters/packet_seq_err:1\nrp_cnp_handled 1\nunknown 77", "ok (4 counters)"},
		{hostB, "out_of_seq_request 1\nnp_cnp_sent 1\nnp_ecn_marked_roce_packets 1\nsend_rnr_err 0", "ok (4 counters)"},
		{hostA, "rcvd_seq_err 3", "violated (1 of 1 counters differ from the capture) [5] rcvd_seq_err is 3, the capture has 1"},
		{hostC, "rcvd_seq_err 3", "counters of 198.18.0.3: the capture has no packets of this host"},
	} {
		m, err := ReadCounters(strings.NewReader(c.text))
		if err != nil {
			t.Fatal(err)
		}
		if got := newTrace(t).steps(steps).check("counters of "+c.host.String(), Counters{c.host: m}); got != c.want {
			t.Errorf("%q: %s, want %s", c.text, got, c.want)
		}
	}
	if got := newTrace(t).steps("s1 a1 s3 a3").check("counters of 198.18.0.1", Counters{hostA: {"sent_pkts": 9}}); !strings.HasPrefix(got, "undecidable (the capture has holes or is cut)") {
		t.Error(got)
	}
	for text, want := range map[string]string{
		"b x":                             `line 2: "b x": must be a name and a number`,
		strings.Repeat("\x00", 1000):      `line 2: "` + strings.Repeat(`\x00`, 40) + `": must be a name and a number`,
		strings.Repeat("\x00", 1_000_000): `line 2: longer than 65536 bytes: must be a name and a number`,
	} {
		if _, err := ReadCounters(strings.NewReader("a 1\n" + text)); err == nil || err.Error() != want {
			t.Error(err)
		}
	}
}

// TestBroken: packets with a wrong ICRC violate, and a file that is no capture is an error.
func TestBroken(t *testing.T) {
	x := newTrace(t).steps("s1 a1 s2")
	i := bytes.LastIndex(x.b.Bytes(), make([]byte, 8))
	b := slices.Clone(x.b.Bytes())
	b[i] ^= 1
	r, err := Read(bytes.NewReader(b), Options{})
	if err != nil || r.Checks[0].Verdict != Violated || r.Checks[0].Text != "0 malformed packets and 1 with a wrong ICRC" {
		t.Errorf("%v %+v", err, r)
	}
	if _, err := Read(strings.NewReader("no capture"), Options{}); err == nil {
		t.Error("no error")
	}
	r, err = Read(bytes.NewReader(b[:len(b)-2]), Options{Counters: Counters{hostA: {"sent_pkts": 9}}})
	if err != nil || r.Frames != 2 || r.Cut == 0 || r.Violated() || r.Checks[len(r.Checks)-1].Verdict != Undecidable {
		t.Errorf("cut: %v %+v", err, r)
	}
}
