package decode_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"roced.io/roced/bth"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/observe/decode"
	"roced.io/roced/internal/observe/pcapng"
)

// dissector is our Wireshark dissector.
const dissector = "../../../configs/wireshark/roced.lua"

// tshark runs tshark with our dissector on a capture. It returns the first occurrence of each field in each frame.
func tshark(t *testing.T, file []byte, filter string, fields ...string) []string {
	t.Helper()
	return tsharkWith(t, nil, file, filter, fields...)
}

// tsharkWith is tshark with more options.
func tsharkWith(t *testing.T, options []string, file []byte, filter string, fields ...string) []string {
	t.Helper()
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("tshark is not installed: make setup")
	}
	name := filepath.Join(t.TempDir(), "capture")
	if err := os.WriteFile(name, file, 0o600); err != nil {
		t.Fatal(err)
	}
	args := append(slices.Clone(options), "-r", name, "-Y", filter, "-T", "fields", "-E", "separator=|", "-E", "aggregator=,")
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	cmd := netlab.Tshark(dissector, args...)
	var diag bytes.Buffer
	cmd.Stderr = &diag
	out, err := cmd.Output()
	if err != nil || strings.Contains(strings.ToLower(diag.String()), "lua") {
		t.Fatalf("tshark: %v\n%s", err, &diag)
	}
	if len(out) == 0 {
		return nil
	}
	return strings.Split(booleans.Replace(strings.TrimSuffix(string(out), "\n")), "\n")
}

// booleans converts the booleans of tshark up to 4.4.
var booleans = strings.NewReplacer("True", "1", "False", "0")

// captureAll returns a pcapng file of IP packets.
func captureAll(t *testing.T, packets [][]byte) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := pcapng.NewWriter(&file, "test")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.AddInterface(pcapng.Interface{Link: pcapng.LinkRaw}); err != nil {
		t.Fatal(err)
	}
	for _, p := range packets {
		if err := w.WritePacket(pcapng.PacketInfo{}, p); err != nil {
			t.Fatal(err)
		}
	}
	return file.Bytes()
}

// randomXETH returns a header with random flags and fields.
func randomXETH(rng *rand.Rand) bth.XETH {
	psn := func() bth.PSN { return bth.MakePSN(rng.Uint32()) }
	h := bth.XETH{Profile: bth.Profile(rng.IntN(5)), Flags: bth.XFlags(rng.UintN(1<<13)) &^ 0x60, MSN: rng.Uint32N(1 << 24),
		Offset: rng.Uint32N(1 << 24), RecvSN: rng.Uint32N(1 << 24), ReadSN: rng.Uint32N(1 << 24), Head: psn(), SACK: psn(), Path: uint16(rng.Uint32())}
	var holes [bth.MaxHoles]bth.Hole
	for i := range holes {
		holes[i] = bth.Hole{Start: psn(), Len: 1 + rng.Uint32N(100)}
	}
	h.SetHoles(holes[:rng.IntN(bth.MaxHoles+1)])
	return h
}

// randomExtended returns n packets of each opcode of the extended transports.
func randomExtended(rng *rand.Rand, n int) (all []bth.Packet) {
	for range n {
		for o := range 256 {
			p := bth.Packet{Opcode: bth.Opcode(o), PKey: bth.DefaultPKey, DestQP: bth.QPN(rng.Uint32N(1 << 24)), PSN: bth.MakePSN(rng.Uint32()),
				AckReq: rng.IntN(2) == 0, BECN: rng.IntN(2) == 0, Ext: randomXETH(rng)}
			if !p.Opcode.IsExt() {
				continue
			}
			p.RETH = bth.RETH{VA: rng.Uint64(), RKey: rng.Uint32(), Length: rng.Uint32()}
			p.AtomicETH = bth.AtomicETH{VA: rng.Uint64(), RKey: rng.Uint32(), SwapAdd: rng.Uint64(), Compare: rng.Uint64()}
			p.AETH = bth.AETH{Syndrome: bth.Syndrome(rng.Uint32()), MSN: rng.Uint32N(1 << 24)}
			p.AtomicAck, p.Imm, p.IETH = rng.Uint64(), rng.Uint32(), rng.Uint32()
			if p.Opcode.HasPayload() {
				p.Payload = make([]byte, 1+rng.IntN(50))
			}
			all = append(all, p)
		}
	}
	return all
}

// TestDissectorExtended checks that our dissector and this package agree on every packet of the extended transports.
func TestDissectorExtended(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	var packets [][]byte
	for i, p := range randomExtended(rng, 4) {
		ip := ipv4
		if i%2 == 1 {
			ip = ipv6
		}
		packets = append(packets, ip(17, p.AppendTo(nil)))
	}
	file := captureAll(t, packets)
	got := tshark(t, file, "roced and not _ws.malformed and not roced.malformed", "roced.opcode", "roced.destqp", "roced.psn", "roced.ackreq",
		"roced.becn", "roced.profile", "roced.retx", "roced.sync", "roced.tail", "roced.ece", "roced.refused", "roced.message", "roced.offset",
		"roced.recv_wqe_sn", "roced.read_wqe_sn", "roced.head", "roced.sack", "roced.path", "roced.hole.start", "roced.hole.len",
		"roced.va", "roced.rkey", "roced.dmalen", "roced.swapadd", "roced.compare", "roced.syndrome", "roced.msn", "roced.original",
		"roced.imm", "roced.invrkey", "roced.icrc")
	all, _ := records(t, file)
	var want []string
	for _, r := range all {
		want = append(want, dissected(r))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-ours +tshark)\n%s", d)
	}
}

// dissected formats a record like tshark's output.
func dissected(r decode.Record) string {
	flag := func(v bool) string { return map[bool]string{true: "1", false: "0"}[v] }
	opcodes := map[string]int{}
	for o := range 256 {
		opcodes[bth.Opcode(o).String()] = o
	}
	x := r.Extended
	f := []string{fmt.Sprintf("0x%02x", opcodes[r.Opcode]), fmt.Sprintf("0x%06x", r.QPN), fmt.Sprint(r.PSN), flag(r.AckReq), flag(r.BECN),
		map[string]string{"rc": "0", "irn": "1", "melo": "2", "mp-rdma": "3", "eunomia": "4"}[x.Profile],
		flag(x.ReTx), flag(x.Sync), flag(x.Tail), flag(x.ECE), flag(x.Refused)}
	for _, v := range []*uint32{x.MSN, x.Offset, x.RecvSN, x.ReadSN, x.Head, x.SACK} {
		f = append(f, orEmpty("%d", v))
	}
	var starts, lens []string
	for _, h := range x.Holes {
		starts, lens = append(starts, fmt.Sprint(h.Start)), append(lens, fmt.Sprint(h.Len))
	}
	f = append(f, orEmpty("%d", x.Path), strings.Join(starts, ","), strings.Join(lens, ","))
	rest := make([]string, 10)
	if r.Target != nil {
		rest[0], rest[1] = fmt.Sprintf("0x%016x", r.VA), fmt.Sprintf("0x%08x", r.RKey)
	}
	rest[2] = orEmpty("%d", r.DMALen)
	if r.Operands != nil {
		rest[3], rest[4] = fmt.Sprint(r.SwapAdd), fmt.Sprint(r.Compare)
	}
	if r.Ack != nil {
		rest[5], rest[6] = fmt.Sprintf("0x%02x", uint8(r.Syndrome)), fmt.Sprint(r.Ack.MSN)
	}
	rest[7], rest[8], rest[9] = orEmpty("%d", r.Original), orEmpty("0x%08x", r.Imm), orEmpty("0x%08x", r.InvRKey)
	return strings.Join(append(append(f, rest...), "good"), "|")
}

func orEmpty[T any](format string, v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf(format, *v)
}

// mrcPackets returns packets of each opcode of MRC, with random bytes behind the BTH.
func mrcPackets(rng *rand.Rand, n int) (all [][]byte) {
	for range n {
		for o := range 256 {
			p := bth.Packet{Opcode: bth.Opcode(o), PKey: bth.DefaultPKey, DestQP: bth.QPN(rng.Uint32N(1 << 24)), PSN: bth.MakePSN(rng.Uint32()),
				ReTx: rng.IntN(2) == 0, Stamped: rng.IntN(2) == 0}
			if !p.Opcode.IsMRC() {
				continue
			}
			if p.Opcode.IsWrite() {
				p.Payload = make([]byte, 1+rng.IntN(50))
			}
			b := p.AppendTo(nil)
			for i := bth.BTHLen; i < len(b); i++ {
				b[i] = byte(rng.Uint32())
				if rng.IntN(4) == 0 {
					b[i] = 0
				}
			}
			all = append(all, b)
		}
	}
	return all
}

// TestDissectorMRC checks that our dissector and this package agree on every packet of MRC, and on trimmed ones.
func TestDissectorMRC(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var packets [][]byte
	for i, b := range mrcPackets(rng, 8) {
		if bth.Opcode(b[0]).IsWrite() && i%3 == 0 {
			b = b[:20+4*rng.IntN(4)]
		}
		p := ipv4(17, b)
		if i%2 == 1 {
			p = ipv6(17, b)
		}
		if i%5 == 0 {
			binary.BigEndian.PutUint16(p[len(p)-len(b)-6:], bth.MRCUDPPort)
			_ = bth.SealICRC(p)
		}
		packets = append(packets, p)
	}
	file := captureAll(t, packets)
	names := []string{"retx", "trimmed", "rqmsn", "msn", "timestamp", "coarse", "format", "op", "response_op", "ports", "reason", "mark", "probe_id",
		"ack_psn", "cack", "nack", "base", "bitmap", "mpr", "entropy", "src_context", "dest_context", "vendor", "cc_type", "cc_flags",
		"ooo_count", "restore", "penalty", "received"}
	fields := []string{"roced.psn", "roced.va", "roced.dmalen", "roced.syndrome", "roced.imm", "roced.icrc"}
	for _, n := range names {
		fields = append(fields, "roced.mrc."+n)
	}
	got := tshark(t, file, "roced and not _ws.malformed and not roced.malformed", fields...)
	all, stats := records(t, file)
	if stats.Malformed != 0 || len(all) != len(packets) {
		t.Errorf("%+v", stats)
	}
	var want []string
	for i, r := range all {
		want = append(want, dissectedMRC(r))
		if i < len(got) && r.MRC.CCType != nil && r.MRC.Timestamp == nil { // unknown state: the dissector shows what it could be
			got[i], want[i] = "", ""
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-ours +tshark)\n%s", d)
	}
}

// dissectedMRC formats a record like tshark's output.
func dissectedMRC(r decode.Record) string {
	m := r.MRC
	flag := func(show, v bool) string {
		if !show {
			return ""
		}
		return map[bool]string{true: "1", false: "0"}[v]
	}
	f := []string{fmt.Sprint(r.PSN), "", orEmpty("%d", r.DMALen), "", orEmpty("0x%08x", r.Imm), "good"}
	if r.Target != nil {
		f[1] = fmt.Sprintf("0x%016x", r.VA)
	}
	if r.Ack != nil {
		f[3] = fmt.Sprintf("0x%02x", uint8(r.Syndrome))
	}
	if m.Trimmed {
		f[5] = ""
	}
	request := strings.Contains(r.Opcode, "REQUEST")
	op, response := orEmpty("%d", m.Op), ""
	if !request {
		op, response = "", op
	}
	var mpr, reason, received string
	if m.Range != nil {
		mpr = fmt.Sprint(*m.Range / bth.MRCRangeUnit)
	}
	for v := range 256 {
		if m.Reason == bth.MRCReason(v).String() {
			reason = fmt.Sprintf("0x%02x", v)
		}
	}
	if m.Received != nil {
		received = fmt.Sprint(*m.Received / bth.MRCReceivedUnit)
	}
	return strings.Join(append(f, flag(true, m.ReTx), flag(m.Trimmed, true), orEmpty("%d", m.RQMSN), orEmpty("%d", m.MSN),
		orEmpty("%d", m.Timestamp), flag(m.Format != nil, m.Coarse), orEmpty("%d", m.Format), op, response, orEmpty("0x%08x", m.PortMask),
		reason, orEmpty("%d", m.Mark), orEmpty("%d", m.ProbeID), orEmpty("%d", m.AckPSN), orEmpty("%d", m.Cack), orEmpty("%d", m.NACK),
		orEmpty("%d", m.Base), orEmpty("0x%016x", m.Bitmap), mpr, orEmpty("0x%08x", m.Entropy), orEmpty("0x%04x", m.Src),
		orEmpty("0x%04x", m.Dest), orEmpty("0x%02x", m.Vendor), orEmpty("%d", m.CCType), orEmpty("0x%02x", m.CCFlags),
		orEmpty("%d", m.OutOfOrder), flag(m.Penalty != nil, m.Restore), orEmpty("%d", m.Penalty), received), "|")
}

// TestDissectorMalformed checks that our dissector marks every packet as malformed that this package rejects.
func TestDissectorMalformed(t *testing.T) {
	good := bth.Packet{Opcode: 0xe4, Ext: bth.XETH{Flags: bth.XHasMsg}}
	change := func(at int, v byte) []byte {
		b := good.AppendTo(nil)
		b[at] = v
		return ipv4(17, b)
	}
	short := func(n int) []byte { return ipv4(17, good.AppendTo(nil)[:n]) }
	sack := bth.Packet{Opcode: bth.OpcodeMRCSACK}
	write := bth.Packet{Opcode: bth.TransportMRC | bth.OpWriteOnly, Stamped: true}
	packets := [][]byte{ipv4(17, sack.AppendTo(nil)[:48]), ipv4(17, write.AppendTo(nil)[:16]), change(12, 0x13), change(12, 0x20), change(12, 0x22), change(12, 0x2f), change(15, 0xa0), change(15, 0x40), change(14, 0x20), short(16), short(20)}
	file := captureAll(t, packets)
	if got := tshark(t, file, "roced.malformed", "frame.number"); len(got) != len(packets) {
		t.Errorf("malformed are the frames %v, want all %d", got, len(packets))
	}
	all, _ := records(t, file)
	for _, r := range all {
		if r.Error == "" {
			t.Errorf("%+v", r)
		}
	}
}

// TestDissectorICRC checks the ICRC result for every frame of the captures, and for one corrupted frame.
func TestDissectorICRC(t *testing.T) {
	for _, path := range captures(t) {
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all, _ := records(t, file)
		if got := tshark(t, file, `roced.icrc == "good"`, "frame.number"); len(got) != len(all) {
			t.Errorf("%s: %d of %d are good", path, len(got), len(all))
		}
	}
	bad := ipv4(17, send())
	bad[len(bad)-6] ^= 1
	if got := tshark(t, captureAll(t, [][]byte{bad, ipv4(17, send())}), "roced.icrc", "roced.icrc"); cmp.Diff([]string{"bad", "good"}, got) != "" {
		t.Errorf("verdicts %v", got)
	}
}

func TestDissectorNamesCNP(t *testing.T) {
	var p bth.Packet
	p.SetCNP(17)
	got := tshark(t, captureAll(t, [][]byte{ipv4(17, p.AppendTo(nil))}), "udp", "_ws.col.Info", "roced.icrc")
	if len(got) != 1 || got[0] != "CNP (congestion notification) QP=0x000011|good" {
		t.Errorf("%q", got)
	}
}
