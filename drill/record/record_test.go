package record

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/drill/dut"
	"roced.io/roced/drill/engine"
	"roced.io/roced/drill/script"
	"roced.io/roced/internal/observe/pcapng"
)

const captures = "../../bth/testdata/"

// recorded returns the script of each queue pair of a capture that can be recorded.
func recorded(t *testing.T, path string) map[Device]string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := read(bytes.NewReader(b), false)
	if err != nil {
		t.Fatal(err)
	}
	scripts := map[Device]string{}
	for _, s := range c.streams {
		if s.QPN < 2 { // the connection manager
			continue
		}
		d := Device{QPN: uint64(s.QPN), Addr: s.Dst}
		if scripts[d], err = Script(bytes.NewReader(b), filepath.Base(path), d); err != nil {
			t.Fatal(path, d, err)
		}
	}
	return scripts
}

// TestCaptures records both ends of every capture of rdma_rxe, with losses, duplicates, NAKs and marks. Every script passes on our NIC.
func TestCaptures(t *testing.T) {
	paths, err := filepath.Glob(captures + "*.pcap")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		name := filepath.Base(path)
		for d, text := range recorded(t, path) {
			s, err := script.Parse(name, text)
			if err != nil {
				t.Errorf("%s: queue pair %v: %v\n%s", name, d, err, text)
				continue
			}
			for seed := range uint64(2) {
				if r, err := (dut.Virtual{}).Run(t.Context(), s, seed); err != nil || r.Outcome != engine.Passed {
					t.Errorf("%s: queue pair %v: %v, line %d: %s\n%s", name, d, err, r.Pos.Line, r.Text, text)
				}
			}
		}
	}
}

// TestScripts: statements for losses, refused requests, receives and repetitions.
func TestScripts(t *testing.T) {
	for _, c := range []struct {
		capture string
		d       Device
		want    []string
	}{
		{"rc_send.pcap", Device{QPN: 0x11, Addr: netip.MustParseAddr("198.18.0.2")}, []string{"for i in 0..", "< SEND_", "dut.cqe qp SUCCESS wr=1+i\n}"}},
		{"loss2_write.pcap", Device{QPN: 0x12, Addr: netip.MustParseAddr("198.18.0.1")}, []string{">? WRITE_LAST psn=P+139 payload=136\n< ACKNOWLEDGE psn=P+120 syndrome=NAK_SEQ msn=6\n"}},
		{"rc_nak.pcap", Device{QPN: 0x25, Addr: netip.MustParseAddr("198.18.0.2")}, []string{"forbidden = dut.mr size=4096 access=r", "dut.recv qp wr=1 mr[0:1024] forbidden[0:4096]", "dut.cqe qp ERROR wr=1"}},
		{"rc_nak.pcap", Device{QPN: 0x20, Addr: netip.MustParseAddr("198.18.0.1")}, []string{"mr[0:3000]", ">? WRITE_MIDDLE psn=P+1 payload=1024\n>? WRITE_LAST psn=P+2 payload=952\n< ACK"}},
		{"rc_rnr.pcap", Device{QPN: 0x29, Addr: netip.MustParseAddr("198.18.0.2")}, []string{"min_rnr=12", "> ACKNOWLEDGE psn=Q syndrome=RNR\ndut.recv qp wr=1 mr[0:4096]\n>? ACKNOWLEDGE psn=Q syndrome=NAK_SEQ\n"}},
		{"ecn_write.pcap", Device{QPN: 0x1a, Addr: netip.MustParseAddr("198.18.0.2")}, []string{"ignore CNP\n", "ip.ecn=3"}},
		{"cm_rping.pcap", Device{QPN: 0x11, Addr: netip.MustParseAddr("198.18.0.1")}, []string{"mr2 = dut.mr size=4096", "va=mr2.va rkey=mr2.rkey"}},
		{"ud_send.pcap", Device{QPN: 0x33, Addr: netip.MustParseAddr("198.18.0.2")}, []string{"need ud", "qp = dut.qp ud psn=P qkey=0x11111111", "qkey=0x11111111 src=0x33"}},
	} {
		b, err := os.ReadFile(captures + c.capture)
		if err != nil {
			t.Fatal(err)
		}
		text, err := Script(bytes.NewReader(b), c.capture, c.d)
		for _, want := range c.want {
			if err != nil || !strings.Contains(text, want) {
				t.Errorf("%s, %v: %v, no %q in\n%s", c.capture, c.d, err, want, text)
			}
		}
	}
}

// TestErrors: a queue pair that the capture does not have, and transports that cannot be recorded.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		capture string
		qpn     uint64
		want    string
	}{
		{"rc_send.pcap", 0x777, "no packet goes to queue pair 0x777; the capture has 0x"},
		{"cm_rping.pcap", 1, "only those of RC, UC and UD can be recorded, but for the connection manager"},
	} {
		b, err := os.ReadFile(captures + c.capture)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Script(bytes.NewReader(b), c.capture, Device{QPN: c.qpn}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.capture, err, c.want)
		}
	}
	if _, err := Script(strings.NewReader("no capture"), "x", Device{}); err == nil {
		t.Error("a file that is no capture is accepted")
	}
}

// TestPeers: acknowledgements tell the peer of a queue pair. Without them the only candidate is, and several are an error.
func TestPeers(t *testing.T) {
	file, err := os.ReadFile("../../internal/test/captures/testdata/two_conn.pcap")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []uint64{0x11, 0x12, 0x21, 0x22} {
		text, err := Script(bytes.NewReader(file), "x", Device{QPN: q})
		if err != nil || strings.Contains(text, "+4000") || strings.Contains(text, "psn=5") {
			t.Errorf("%#x: %v\n%s", q, err, text)
		}
	}
	for _, c := range []struct{ steps, want string }{
		{"1>2:17", "< UC_SEND_ONLY psn=Q"},
		{"1>2:17 2>1:33", "> UC_SEND_ONLY psn=P"},
		{"1>2:17 2>1:33 2>1:34", "no acknowledgement in the capture tells which peer queue pair 0x11 has: 0x21, 0x22 or another"},
		{"1>2:17 2>1:17", "198.18.0.2 and 198.18.0.1 both have a queue pair 0x11: select one with --address"},
		{"1>2:17 3>2:17", "queue pair 0x11 has several peers, 198.18.0.1 and 198.18.0.3"},
	} {
		text, err := Script(bytes.NewReader(play(t, c.steps)), "x", Device{QPN: 17})
		if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, c.want) {
			t.Errorf("%s: %s, want %s", c.steps, text, c.want)
		}
	}
}

// TestLostLater: a capture at the tester has the packets that the device did not get. Its script omits them.
func TestLostLater(t *testing.T) {
	text, err := Script(bytes.NewReader(play(t, "r1>2:17@1 a2>1:33@1 r1>2:17@2 r1>2:17@3 n2>1:33@2 r1>2:17@2 r1>2:17@3 a2>1:33@3")), "x", Device{QPN: 17})
	if err != nil || strings.Count(text, "< SEND_ONLY psn=Q+1 ") != 1 || strings.Count(text, "< SEND_ONLY psn=Q+2 ") != 2 {
		t.Fatal(err, text)
	}
	s, err := script.Parse("x", text)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := (dut.Virtual{}).Run(t.Context(), s, 1); err != nil || r.Outcome != engine.Passed {
		t.Errorf("%v, line %d: %s\n%s", err, r.Pos.Line, r.Text, text)
	}
}

// play writes a capture: "1>2:17" is a SEND of UC from host 1 to queue pair 17 of host 2. "r1>2:17@5" is a SEND of RC with PSN 5, "a2>1:33@5" an
// ACK, and "n2>1:33@5" a NAK.
func play(t *testing.T, steps string) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := pcapng.NewWriter(&file, "test")
	if err == nil {
		_, err = w.AddInterface(pcapng.Interface{Link: pcapng.LinkRaw})
	}
	for i, step := range strings.Fields(steps) {
		var from, to byte
		p := bth.Packet{Opcode: bth.TransportUC | bth.OpSendOnly, PKey: bth.DefaultPKey, PSN: bth.MakePSN(uint32(100 * i)), Payload: make([]byte, 8)}
		var psn uint32
		switch step[0] {
		case 'r':
			p.Opcode, p.AckReq = bth.OpSendOnly, true
		case 'a':
			p = bth.Packet{Opcode: bth.OpAcknowledge, PKey: bth.DefaultPKey, AETH: bth.AETH{Syndrome: bth.SyndromeACK}}
		case 'n':
			p = bth.Packet{Opcode: bth.OpAcknowledge, PKey: bth.DefaultPKey, AETH: bth.AETH{Syndrome: bth.SyndromePSNSeqErr}}
		}
		if n, err := fmt.Sscanf(strings.TrimLeft(step, "ran"), "%d>%d:%d@%d", &from, &to, &p.DestQP, &psn); n == 4 {
			p.PSN = bth.MakePSN(psn)
		} else if n < 3 {
			t.Fatal(err)
		}
		body := p.AppendTo(nil)
		n := byte(28 + len(body))
		b := []byte{0x45, 0, 0, n, 0, byte(i), 0x40, 0, 64, 17, 0, 0, 198, 18, 0, from, 198, 18, 0, to, 0xc0, 0, 0x12, 0xb7, 0, n - 20, 0, 0}
		b = append(b, body...)
		if err := errors.Join(bth.SealICRC(b), w.WritePacket(pcapng.PacketInfo{Time: int64(i) * 1e6}, b)); err != nil {
			t.Fatal(err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}
