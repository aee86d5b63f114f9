package decode_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"roced.io/roced/bth"
	"roced.io/roced/bth/fields"
	"roced.io/roced/internal/lab/netlab"
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

// TestDissectorExtended compares the dissector with the table of fields, for every packet of the extended transports.
func TestDissectorExtended(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	var packets [][]byte
	for _, p := range randomExtended(rng, 4) {
		packets = append(packets, p.AppendTo(nil))
	}
	dissect(t, packets, nil)
}

// dissect runs the dissector on packets, over IPv4 and IPv6 in turn, and compares all fields with the table of fields.
func dissect(t *testing.T, packets [][]byte, ports func(i int) uint16) {
	t.Helper()
	var frames [][]byte
	want := make([]map[string][]uint64, len(packets))
	columns := map[string]bool{}
	for i, b := range packets {
		p := ipv4(17, b)
		if i%2 == 1 {
			p = ipv6(17, b)
		}
		if ports != nil {
			binary.BigEndian.PutUint16(p[len(p)-len(b)-6:], ports(i))
			_ = bth.SealICRC(p)
		}
		frames, want[i] = append(frames, p), tableOf(t, p[len(p)-len(b):])
		for name := range want[i] {
			columns[name] = true
		}
	}
	names := slices.Sorted(maps.Keys(columns))
	args := make([]string, len(names))
	for i, name := range names {
		args[i] = "roced." + name
	}
	file := captureAll(t, frames)
	lines := tshark(t, file, "roced and not _ws.malformed and not roced.malformed and not roced.icrc == \"bad\"", args...)
	if _, stats := records(t, file); stats.Malformed != 0 || len(lines) != len(packets) {
		t.Fatalf("%d of %d packets are dissected; decode: %+v", len(lines), len(packets), stats)
	}
	for i, line := range lines {
		got := map[string][]uint64{}
		for j, cell := range strings.Split(line, "|") {
			for _, word := range strings.FieldsFunc(cell, func(c rune) bool { return c == ',' }) {
				v, err := strconv.ParseUint(word, 0, 64)
				if err != nil {
					t.Fatal(err)
				}
				got[names[j]] = append(got[names[j]], v)
			}
		}
		if d := cmp.Diff(want[i], got); d != "" {
			t.Errorf("%v (-table +dissector)\n%s", bth.Opcode(packets[i][0]), d)
		}
	}
}

// tableOf returns the fields of a packet, by their names in the dissector.
func tableOf(t *testing.T, b []byte) map[string][]uint64 {
	t.Helper()
	all := map[string][]uint64{}
	var p bth.Packet
	if err := p.Decode(b); err != nil && !errors.Is(err, bth.ErrTrimmed) {
		t.Fatal(err)
	} else if err != nil {
		all["mrc.trimmed"] = []uint64{1}
	}
	add := func(h *fields.Header, b []byte) {
		for i := range h.Fields {
			f := &h.Fields[i]
			name, v := dissectorName(h, f), f.Get(b)
			switch {
			case f.Name == "" || strings.HasPrefix(f.Script, "m.") && !p.Opcode.IsMRC():
				continue
			case f.Script == "s.ack" && p.SETH.ProbeReply:
				name = "mrc.probe_id"
			case f.Script == "s.ack":
				v = uint64(p.SETH.AckPSN().Uint32())
			case f.Script == "s.base":
				v = uint64(p.SETH.Base().Uint32())
			}
			all[name] = append(all[name], v)
		}
	}
	add(&fields.Headers[0], b)
	fields.Extensions(&p, b[:len(b)-bth.ICRCLen*flagOf(all["mrc.trimmed"] == nil)], add)
	return all
}

func flagOf(set bool) int {
	if set {
		return 1
	}
	return 0
}

// TestDissectorTitles checks that the dissector has the table's texts.
func TestDissectorTitles(t *testing.T) {
	lua, err := os.ReadFile(dissector)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, h := range fields.Headers {
		for i := range h.Fields {
			name := dissectorName(&h, &h.Fields[i])
			title := h.Fields[i].Text
			if end := strings.IndexAny(title, ",:;"); end >= 0 {
				title = title[:end] // the rest is about the number
			}
			if !strings.Contains(title, "_WQE_") {
				title = strings.ToUpper(title[:1]) + title[1:]
			}
			want := fmt.Sprintf("%q, %q", name, title)
			have := strings.Contains(string(lua), fmt.Sprintf("{%s", want)) ||
				regexp.MustCompile(fmt.Sprintf(`field\(%q, ProtoField\.\w+, %s`, name, regexp.QuoteMeta(strconv.Quote(title)))).Match(lua)
			if h.Fields[i].Name != "" && h.Set != bth.HdrDETH && !seen[name] && !have {
				t.Errorf("the dissector has no field %s", want)
			}
			seen[name] = true
		}
	}
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

// TestDissectorMRC compares the dissector with the table of fields, for every packet of MRC, and for trimmed ones.
func TestDissectorMRC(t *testing.T) {
	packets := mrcPackets(rand.New(rand.NewPCG(5, 6)), 8)
	for i, b := range packets {
		if bth.Opcode(b[0]).IsWrite() && i%3 == 0 {
			packets[i] = b[:bth.TrimmedLen(b)]
		}
	}
	dissect(t, packets, func(i int) uint16 {
		if i%5 == 0 {
			return bth.MRCUDPPort
		}
		return bth.UDPPort
	})
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

// dissectorName returns the name of the field in the dissector, behind "roced.".
func dissectorName(h *fields.Header, f *fields.Field) string {
	switch f.Script {
	case "pad":
		return "padcnt"
	case "dst":
		return "destqp"
	case "plt":
		return "flush.type"
	case "sel":
		return "flush.level"
	case "x.msn":
		return "message"
	case "r.op":
		return "mrc.response_op"
	case "e.ports":
		return "mrc.ports"
	}
	if h.Object == "mrc" || strings.HasPrefix(f.Script, "m.") {
		return "mrc." + f.Name
	}
	return f.Name
}
