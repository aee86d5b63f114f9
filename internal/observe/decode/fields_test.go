package decode_test

import (
	"encoding/hex"
	"maps"
	"strings"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/internal/observe/decode"
	"roced.io/roced/internal/observe/pcapng"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
	"roced.io/roced/reorder"
)

func init() {
	profile.Register(profile.Transport{Name: "own", Kind: 140, Parts: profile.Spec{Reorder: profile.Part{Name: "irn"}, Recovery: profile.Part{Name: "irn"}},
		Fields: &qp.Fields{Ack: []qp.Field{{Name: "high", Bytes: 2}, {Name: "low", Bytes: 4}},
			PutAck: func([]byte, *reorder.Feedback) {}, TakeAck: func([]byte, *reorder.Feedback) bool { return true }}})
}

// TestOwnFields: the fields of a known transport have names; otherwise, and in packets of another length, their bytes appear.
func TestOwnFields(t *testing.T) {
	named := map[string]uint64{"high": 0x102, "low": 0x3040506}
	for _, c := range []struct {
		opcode bth.Opcode
		kind   bth.Profile
		bytes  []byte
		fields map[string]uint64
		text   string
	}{
		{bth.OpcodeExtAck, 140, []byte{1, 2, 3, 4, 5, 6, 0, 0}, named, "ext own sack 5 high 0x102 low 0x3040506"},
		{bth.OpcodeExtReadAck, 140, []byte{1, 2, 3, 4, 5, 6, 0, 0}, named, "ext own sack 5 high 0x102 low 0x3040506"},
		{bth.OpcodeExtAck, 140, []byte{1, 2, 3, 4}, nil, "ext own sack 5 own 01020304"},
		{bth.TransportExt | bth.OpSendOnly, 140, []byte{1, 2, 3, 4}, nil, "ext own sack 5 own 01020304"},
		{bth.OpcodeExtAck, 141, []byte{1, 2, 3, 4, 5, 6, 0, 0}, nil, "ext unknown sack 5 own 0102030405060000"},
	} {
		p := bth.Packet{Opcode: c.opcode, Ext: bth.XETH{Profile: c.kind, Flags: bth.XHasSACK, SACK: bth.MakePSN(5)}}
		p.Ext.SetOwn(c.bytes)
		file := capture(t, pcapng.LinkRaw, pcapng.PacketInfo{}, ipv4(17, p.AppendTo(nil)))
		if text, _ := decodeOne(t, file, decode.Options{}); !strings.Contains(text, c.text) {
			t.Errorf("%s, want %q", text, c.text)
		}
		all, _ := records(t, file)
		if len(all) != 1 || !maps.Equal(all[0].Ext.Fields, c.fields) || (all[0].Ext.Own == "") != (c.fields != nil) {
			t.Errorf("%v %d: %+v", c.opcode, c.kind, all[0].Ext)
		}
		want := "good|" + hex.EncodeToString(c.bytes)
		if got := tshark(t, file, "roced", "roced.icrc", "roced.own"); len(got) != 1 || strings.ReplaceAll(got[0], ":", "") != want {
			t.Errorf("tshark: %q, want %q", got, want)
		}
	}
}
