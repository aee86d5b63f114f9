package decode_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"roced.io/roced/bth"
	"roced.io/roced/flor/engine"
	"roced.io/roced/internal/observe/decode"
	"roced.io/roced/internal/observe/flor"
	"roced.io/roced/internal/observe/pcapng"
)

// florPacket returns a packet to queue pair 17.
func florPacket(o bth.Opcode, imm uint32, payload []byte) bth.Packet {
	p := bth.Packet{Opcode: o, PKey: bth.DefaultPKey, DestQP: 17, PSN: bth.MakePSN(5), Imm: imm, Payload: payload}
	if o.IsExt() {
		p.Ext = bth.XETH{Flags: bth.XHasMsg | bth.XHasRecvSN, MSN: 3}
	}
	return p
}

// florHeaders returns one header of each kind.
func florHeaders() (out [][]byte) {
	for i, h := range []engine.Header{
		{Kind: engine.KindMessage, RN: 1, GN: 1<<40 + 1, Message: 7, Tag: 0xabcd, Length: 100, Offset: 64},
		{Kind: engine.KindMessage, Hint: true, RN: 1<<32 - 1, GN: 1<<64 - 1, Message: 1<<32 - 1, Length: 1 << 20},
		{Kind: engine.KindRequest, RN: 2, GN: 3, Message: engine.MaxMessageID, Length: 1 << 20, Tag: 5},
		{Kind: engine.KindGrant, RN: 3, GN: 4, Message: 9, Key: 0x01020304, Addr: 1<<63 + 5},
		{Kind: engine.KindRewrite, Hint: true, RN: 4, GN: 5, Message: uint32(engine.MakeImm(false, 9, 1023))},
	} {
		b := make([]byte, engine.HeaderLen+i)
		h.Put(b)
		out = append(out, b)
	}
	return out
}

// florAcks returns acknowledgements of SENDs, of WRITEs, and of both.
func florAcks() (out [][]byte) {
	for i := range 3 {
		a := engine.Ack{QPN: 18, Delay: time.Duration(i) * time.Microsecond}
		for k := range 1 + 7*i {
			if i != 0 {
				a.AddWrite(engine.MakeImm(false, uint32(k), uint32(1000+k)))
			}
			if i != 1 {
				a.AddSend(1<<50 - uint64(k))
			}
		}
		out = append(out, a.Append(nil))
	}
	return out
}

// florPackets returns packets of each form in Flor, and some invalid ones.
func florPackets() (out []bth.Packet) {
	imm := uint32(engine.MakeImm(true, 1<<21-1, 3))
	for _, transport := range []bth.Opcode{bth.TransportUC, bth.TransportRC, bth.TransportExt} {
		out = append(out, florPacket(transport|bth.OpWriteOnlyImm, imm, make([]byte, 5)), florPacket(transport|bth.OpWriteLastImm, imm>>1, make([]byte, 8)),
			florPacket(transport|bth.OpWriteOnly, 0, make([]byte, 8)), florPacket(transport|bth.OpSendMiddle, 0, make([]byte, 64)))
		for _, h := range florHeaders() {
			out = append(out, florPacket(transport|bth.OpSendOnly, 0, h), florPacket(transport|bth.OpSendFirst, 0, h))
		}
	}
	for _, a := range florAcks() {
		out = append(out, florPacket(bth.TransportUD|bth.OpSendOnly, 0, a))
	}
	out = append(out, florPacket(bth.TransportUC|bth.OpSendOnly, 0, make([]byte, 31)), florPacket(bth.TransportUC|bth.OpSendOnly, 0, make([]byte, 32)),
		florPacket(bth.TransportUD|bth.OpSendOnly, 0, make([]byte, 32)), florPacket(bth.TransportUD|bth.OpSendOnly, 0, nil))
	other := florPacket(bth.TransportUC|bth.OpSendOnly, 0, florHeaders()[0])
	other.DestQP = 20
	return append(out, other)
}

var rewrite = flag.Bool("rewrite", false, "write golden files")

func florFile(t *testing.T, all []bth.Packet) []byte {
	var packets [][]byte
	for i := range all {
		packets = append(packets, ipv4(17, all[i].AppendTo(nil)))
	}
	return captureAll(t, packets)
}

// TestFlorGolden compares the output of `rocectl decode --flor` with golden files.
func TestFlorGolden(t *testing.T) {
	file := florFile(t, florPackets())
	for _, c := range []struct {
		name string
		json bool
	}{{"flor.txt", false}, {"flor.jsonl", true}} {
		qps, err := flor.ParseQueuePairs("17")
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if _, err := decode.Stream(bytes.NewReader(file), &out, decode.Options{JSON: c.json, Flor: qps}); err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", c.name)
		if *rewrite {
			if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), out.String()); d != "" {
			t.Errorf("%s (-want +got)\n%s", golden, d)
		}
	}
}

// TestFlorCut checks the fields that remain known in truncated packets.
func TestFlorCut(t *testing.T) {
	p := florPacket(bth.TransportUC|bth.OpSendOnly, 0, append(florHeaders()[0], make([]byte, 100)...))
	ack := florPacket(bth.TransportUD|bth.OpSendOnly, 0, florAcks()[2])
	all, _ := flor.ParseQueuePairs("all")
	for _, c := range []struct {
		p    bth.Packet
		snap int
		want bool
	}{{p, 28 + 12 + 32, true}, {p, 28 + 12 + 31, false}, {ack, 28 + 20 + 24, false}} {
		frame := ipv4(17, c.p.AppendTo(nil))
		line, _ := decodeOne(t, capture(t, pcapng.LinkRaw, pcapng.PacketInfo{}, frame, c.snap), decode.Options{Flor: all})
		if strings.Contains(line, " flor ") != c.want {
			t.Errorf("%d bytes: %s", c.snap, line)
		}
	}
}

func TestFlorQueuePairs(t *testing.T) {
	for text, want := range map[string]string{"": "", "all": "17 18", "17": "17", "0x12, 17": "17 18", "19": ""} {
		q, err := flor.ParseQueuePairs(text)
		var has []string
		for n := uint32(17); n < 19; n++ {
			if q.Has(n) {
				has = append(has, fmt.Sprint(n))
			}
		}
		if err != nil || strings.Join(has, " ") != want {
			t.Errorf("%q: %v, %v", text, has, err)
		}
	}
	for _, text := range []string{"x", "1,,2", "16777216", "-1", "all,1"} {
		if _, err := flor.ParseQueuePairs(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// TestDissectorFlor checks that our dissector and this package agree on Flor packets, both valid and corrupted.
func TestDissectorFlor(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	all := florPackets()
	for range 400 {
		p := all[rng.IntN(len(florPackets()))]
		p.Payload = append([]byte(nil), p.Payload...)
		if n := len(p.Payload); n > 0 {
			p.Payload[rng.IntN(min(n, 40))] = byte(rng.UintN(256) >> rng.UintN(8))
			p.Payload = p.Payload[:n-rng.IntN(min(n, 5))]
		}
		all = append(all, p)
	}
	file := florFile(t, all)
	got := tsharkWith(t, []string{"-o", "roced.flor:17"}, file, "udp", "roced.flor.malformed", "roced.flor.kind", "roced.flor.hint", "roced.flor.rn", "roced.flor.message",
		"roced.flor.chunk", "roced.flor.length", "roced.flor.offset", "roced.flor.tag", "roced.flor.key", "roced.flor.addr", "roced.flor.ack.qp", "roced.flor.ack.delay",
		"roced.flor.gn")
	var want []string
	qps, _ := flor.ParseQueuePairs("17")
	for i := range all {
		var i2 *flor.Info
		if p := &all[i]; qps.Has(uint32(p.DestQP)) {
			i2 = flor.Of(p.Opcode, p.Imm, p.Payload, true)
		}
		want = append(want, florDissected(i2))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-ours +tshark)\n%s", d)
	}
}

// florDissected formats an Info like tshark's output.
func florDissected(i *flor.Info) string {
	f := make([]string, 14)
	switch {
	case i == nil:
		return strings.Join(f, "|")
	case i.Error != "":
		f[0] = "1"
		return strings.Join(f, "|")
	case i.Ack != nil:
		var message, chunk, gn []string
		for _, w := range i.Ack.WQEs {
			if w.GN != nil {
				gn = append(gn, fmt.Sprint(*w.GN))
			} else {
				message, chunk = append(message, fmt.Sprint(*w.Message)), append(chunk, fmt.Sprint(*w.Chunk))
			}
		}
		f[4], f[5], f[11], f[12], f[13] = strings.Join(message, ","), strings.Join(chunk, ","), fmt.Sprintf("0x%08x", i.Ack.QPN), fmt.Sprint(i.Ack.DelayNS), strings.Join(gn, ",")
		return strings.Join(f, "|")
	}
	f[1] = map[string]string{"message": "1", "request": "2", "grant": "3", "rewrite": "4"}[i.Kind]
	f[2] = map[bool]string{true: "1", false: "0"}[i.Hint]
	f[3], f[4], f[5], f[6], f[7] = orEmpty("%d", i.RN), orEmpty("%d", i.Message), orEmpty("%d", i.Chunk), orEmpty("%d", i.Length), orEmpty("%d", i.Offset)
	f[8], f[9], f[10], f[13] = orEmpty("0x%08x", i.Tag), orEmpty("0x%08x", i.Key), orEmpty("0x%016x", i.Addr), orEmpty("%d", i.GN)
	return strings.Join(f, "|")
}
