package verbs

import (
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/abi/rxe"
	"roced.io/roced/internal/daemon/rxering"
	"roced.io/roced/qp"
)

// sendPair returns both ends of a send ring.
func sendPair(t *testing.T) (*QP, *rxering.SendRing) {
	t.Helper()
	s, err := rxe.SendShape(4, 2, 64)
	if err != nil {
		t.Fatal(err)
	}
	mem := make([]byte, s.Size())
	r, err := rxering.NewSendRing(mem, s)
	if err != nil {
		t.Fatal(err)
	}
	p, err := rxe.NewSendProducer(mem, s.MaxSGE, s.MaxInline)
	if err != nil {
		t.Fatal(err)
	}
	return &QP{sq: p, typ: UD}, r
}

// TestSendRoundTrip passes work requests of every kind to the daemon's end.
func TestSendRoundTrip(t *testing.T) {
	q, r := sendPair(t)
	sges := []SGE{{Addr: 0x1000, Length: 10, LKey: 7}, {Addr: 1 << 63, Length: 20, LKey: 8}}
	core := []qp.SGE{{Addr: 0x1000, Length: 10, LKey: 7}, {Addr: 1 << 63, Length: 20, LKey: 8}}
	window := &MW{}
	window.rkey.Store(4)
	var got qp.SendWQE
	for i, c := range []struct {
		wr   SendWR
		want qp.SendWQE
	}{
		{SendWR{Opcode: OpSend, Flags: SendSignaled, SGEs: sges, RemoteQPN: 5, RemoteQKey: 0x80000006},
			qp.SendWQE{Opcode: qp.WRSend, Flags: qp.SendSignaled, Length: 30, SGEs: core, AH: 4, RemoteQPN: 5, RemoteQKey: 0x80000006}},
		{SendWR{Opcode: OpSendImm, Imm: 0x01020304, Inline: []byte("hello"), RemoteQPN: 9},
			qp.SendWQE{Opcode: qp.WRSendImm, Imm: 0x01020304, Flags: qp.SendInline, Length: 5, Inline: []byte("hello"), AH: 4, RemoteQPN: 9}},
		{SendWR{Opcode: OpSendWithInv, Imm: 0x01020304, SGEs: sges[:1]},
			qp.SendWQE{Opcode: qp.WRSendWithInv, Imm: 0x01020304, Length: 10, SGEs: core[:1]}},
		{SendWR{Opcode: OpWrite, RemoteAddr: 1<<64 - 9, RKey: 11, SGEs: sges[1:]},
			qp.SendWQE{Opcode: qp.WRWrite, RemoteVA: 1<<64 - 9, RKey: 11, Length: 20, SGEs: core[1:]}},
		{SendWR{Opcode: OpWriteImm, Imm: 0xdeadbeef, RemoteAddr: 99, RKey: 11},
			qp.SendWQE{Opcode: qp.WRWriteImm, Imm: 0xdeadbeef, RemoteVA: 99, RKey: 11}},
		{SendWR{Opcode: OpRead, Flags: SendFence, RemoteAddr: 98, RKey: 12, SGEs: sges},
			qp.SendWQE{Opcode: qp.WRRead, Flags: qp.SendFence, RemoteVA: 98, RKey: 12, Length: 30, SGEs: core}},
		{SendWR{Opcode: OpCmpSwap, RemoteAddr: 96, RKey: 13, CompareAdd: 14, Swap: 15, SGEs: sges[:1]},
			qp.SendWQE{Opcode: qp.WRCmpSwap, RemoteVA: 96, RKey: 13, CompareAdd: 14, Swap: 15, Length: 10, SGEs: core[:1]}},
		{SendWR{Opcode: OpFetchAdd, RemoteAddr: 96, RKey: 13, CompareAdd: 1 << 60, SGEs: sges[:1]},
			qp.SendWQE{Opcode: qp.WRFetchAdd, RemoteVA: 96, RKey: 13, CompareAdd: 1 << 60, Length: 10, SGEs: core[:1]}},
		{SendWR{Opcode: OpAtomicWrite, RemoteAddr: 96, RKey: 13, Inline: []byte("12345678")},
			qp.SendWQE{Opcode: qp.WRAtomicWrite, Flags: qp.SendInline, RemoteVA: 96, RKey: 13, Length: 8, Inline: []byte("12345678")}},
		{SendWR{Opcode: OpFlush, RemoteAddr: 1<<63 + 1, RKey: 17, FlushLength: 1 << 30, FlushRegion: true},
			qp.SendWQE{Opcode: qp.WRFlush, RemoteVA: 1<<63 + 1, RKey: 17, Flush: qp.FlushWR{Length: 1 << 30, FETH: bth.FETH{Type: bth.FlushGlobal, Level: bth.FlushMR}}}},
		{SendWR{Opcode: OpLocalInv, Imm: 0x0a0b0c0d}, qp.SendWQE{Opcode: qp.WRLocalInv, Imm: 0x0a0b0c0d}},
		{SendWR{Opcode: OpBindMW, Bind: &MWBind{MW: window, MR: &MR{addr: 1, lkey: 3}, Length: 2, NewRKey: 5, Access: AccessRemoteRead}},
			qp.SendWQE{Opcode: qp.WRBindMW, Bind: qp.BindWR{Addr: 1, Length: 2, MRLKey: 3, MWRKey: 4, RKey: 5, Access: qp.AccessRemoteRead}}},
	} {
		c.wr.AH, c.wr.WRID, c.want.WRID = &AH{num: 4}, uint64(i), uint64(i)
		if err := q.stage(&c.wr); err != nil {
			t.Fatal(i, err)
		}
		if r.Next(&got) {
			t.Fatal(i, "seen before Commit")
		}
		if q.sq.Commit(); !r.Next(&got) {
			t.Fatal(i, "not seen after Commit")
		}
		r.Retire(1)
		if len(got.SGEs) == 0 {
			got.SGEs = nil
		}
		if len(got.Inline) == 0 {
			got.Inline = nil
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("work request %d:\n%s", i, d)
		}
		iova := rxe.At[rxe.SendWQE](r.Elem(uint32(i))).Iova
		if iova != c.want.RemoteVA {
			t.Errorf("work request %d: iova %#x, want %#x", i, iova, c.want.RemoteVA)
		}
	}
	if window.RKey() != 5 {
		t.Errorf("the window's key is %d", window.RKey())
	}
}

// TestSendElement checks the bytes of an element against those of a stock provider.
func TestSendElement(t *testing.T) {
	q, r := sendPair(t)
	if err := q.stage(&SendWR{WRID: 0x1122334455667788, Opcode: OpWriteImm, Flags: SendSignaled | SendSolicited, AH: &AH{},
		Imm: 0x01020304, RemoteAddr: 0x7f0000001000, RKey: 0xabcd, SGEs: []SGE{{Addr: 0x5000, Length: 0x40, LKey: 0x99}}}); err != nil {
		t.Fatal(err)
	}
	q.sq.Commit()
	e := r.Elem(0)
	for _, c := range []struct {
		from, to int
		want     string
	}{
		{0, 24, "8877665544332211 00000000 01000000 06000000 =01020304"},
		{24, 40, "00100000007f0000 cdab0000 00000000"},
		{144, 160, "00000000 00000000 00100000007f0000"},
		{184, 208, "40000000 40000000 00000000 01000000 00000000 00000000"},
		{208, 224, "0050000000000000 40000000 99000000"},
	} {
		if got, want := hex.EncodeToString(e[c.from:c.to]), machine(t, c.want); got != want {
			t.Errorf("bytes %d to %d: %s, want %s", c.from, c.to, got, want)
		}
	}
}

// machine joins fields, which are written in little-endian order, in the byte order
// of this machine. Fields with = are the same on all machines.
func machine(t *testing.T, fields string) string {
	t.Helper()
	var out []byte
	for _, f := range strings.Fields(fields) {
		b, err := hex.DecodeString(strings.TrimPrefix(f, "="))
		if err != nil {
			t.Fatal(err)
		}
		if f[0] != '=' && binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
			slices.Reverse(b)
		}
		out = append(out, b...)
	}
	return hex.EncodeToString(out)
}
