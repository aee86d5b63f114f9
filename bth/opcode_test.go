package bth_test

import (
	"testing"

	"roced.io/roced/bth"
)

// want describes an opcode independently of the table. traits holds one letter for each of (S)end (W)rite (Q) read
// request (R)ead response (A)tomic ac(K) atomic ac(T). Positions first/middle/last/only are f m l o. Headers are
// d=DETH r=RETH a=AtomicETH k=AETH t=AtomicAck i=Imm v=IETH x=XETH; p=payload. Y acknowledges READ responses. The
// length excludes the extension header. h=METH, (C) of MRC, (s)ACK, (N)ACK, (P)robe, (E)ndpoint operation.
type want struct {
	code   uint8
	name   string
	length int
	traits string
}

var wantOpcodes = []want{
	{0x00, "RC_SEND_FIRST", 12, "Sfp"},
	{0x01, "RC_SEND_MIDDLE", 12, "Smp"},
	{0x02, "RC_SEND_LAST", 12, "Slp"},
	{0x03, "RC_SEND_LAST_WITH_IMMEDIATE", 16, "Slpi"},
	{0x04, "RC_SEND_ONLY", 12, "Sop"},
	{0x05, "RC_SEND_ONLY_WITH_IMMEDIATE", 16, "Sopi"},
	{0x06, "RC_RDMA_WRITE_FIRST", 28, "Wfpr"},
	{0x07, "RC_RDMA_WRITE_MIDDLE", 12, "Wmp"},
	{0x08, "RC_RDMA_WRITE_LAST", 12, "Wlp"},
	{0x09, "RC_RDMA_WRITE_LAST_WITH_IMMEDIATE", 16, "Wlpi"},
	{0x0a, "RC_RDMA_WRITE_ONLY", 28, "Wopr"},
	{0x0b, "RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE", 32, "Wopri"},
	{0x0c, "RC_RDMA_READ_REQUEST", 28, "Qr"},
	{0x0d, "RC_RDMA_READ_RESPONSE_FIRST", 16, "Rfpk"},
	{0x0e, "RC_RDMA_READ_RESPONSE_MIDDLE", 12, "Rmp"},
	{0x0f, "RC_RDMA_READ_RESPONSE_LAST", 16, "Rlpk"},
	{0x10, "RC_RDMA_READ_RESPONSE_ONLY", 16, "Ropk"},
	{0x11, "RC_ACKNOWLEDGE", 16, "Kk"},
	{0x12, "RC_ATOMIC_ACKNOWLEDGE", 24, "Tkt"},
	{0x13, "RC_CMP_SWAP", 40, "Aa"},
	{0x14, "RC_FETCH_ADD", 40, "Aa"},
	{0x16, "RC_SEND_LAST_INV", 16, "Slpv"},
	{0x17, "RC_SEND_ONLY_INV", 16, "Sopv"},
	{0x1c, "RC_FLUSH", 32, "FeMr"},
	{0x1d, "RC_ATOMIC_WRITE", 28, "wrpM"},
	{0x20, "UC_SEND_FIRST", 12, "Sfp"},
	{0x21, "UC_SEND_MIDDLE", 12, "Smp"},
	{0x22, "UC_SEND_LAST", 12, "Slp"},
	{0x23, "UC_SEND_LAST_WITH_IMMEDIATE", 16, "Slpi"},
	{0x24, "UC_SEND_ONLY", 12, "Sop"},
	{0x25, "UC_SEND_ONLY_WITH_IMMEDIATE", 16, "Sopi"},
	{0x26, "UC_RDMA_WRITE_FIRST", 28, "Wfpr"},
	{0x27, "UC_RDMA_WRITE_MIDDLE", 12, "Wmp"},
	{0x28, "UC_RDMA_WRITE_LAST", 12, "Wlp"},
	{0x29, "UC_RDMA_WRITE_LAST_WITH_IMMEDIATE", 16, "Wlpi"},
	{0x2a, "UC_RDMA_WRITE_ONLY", 28, "Wopr"},
	{0x2b, "UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE", 32, "Wopri"},
	{0x64, "UD_SEND_ONLY", 20, "Sopd"},
	{0x65, "UD_SEND_ONLY_WITH_IMMEDIATE", 24, "Sopdi"},
	{0x81, "CNP", 12, "p"},
	{0xe0, "EXT_SEND_FIRST", 12, "Sfpx"},
	{0xe1, "EXT_SEND_MIDDLE", 12, "Smpx"},
	{0xe2, "EXT_SEND_LAST", 12, "Slpx"},
	{0xe3, "EXT_SEND_LAST_WITH_IMMEDIATE", 16, "Slpix"},
	{0xe4, "EXT_SEND_ONLY", 12, "Sopx"},
	{0xe5, "EXT_SEND_ONLY_WITH_IMMEDIATE", 16, "Sopix"},
	{0xe6, "EXT_RDMA_WRITE_FIRST", 28, "Wfprx"},
	{0xe7, "EXT_RDMA_WRITE_MIDDLE", 28, "Wmprx"},
	{0xe8, "EXT_RDMA_WRITE_LAST", 28, "Wlprx"},
	{0xe9, "EXT_RDMA_WRITE_LAST_WITH_IMMEDIATE", 32, "Wlprix"},
	{0xea, "EXT_RDMA_WRITE_ONLY", 28, "Woprx"},
	{0xeb, "EXT_RDMA_WRITE_ONLY_WITH_IMMEDIATE", 32, "Woprix"},
	{0xec, "EXT_RDMA_READ_REQUEST", 28, "Qrx"},
	{0xed, "EXT_RDMA_READ_RESPONSE_FIRST", 16, "Rfpkx"},
	{0xee, "EXT_RDMA_READ_RESPONSE_MIDDLE", 12, "Rmpx"},
	{0xef, "EXT_RDMA_READ_RESPONSE_LAST", 16, "Rlpkx"},
	{0xf0, "EXT_RDMA_READ_RESPONSE_ONLY", 16, "Ropkx"},
	{0xf2, "EXT_ATOMIC_ACKNOWLEDGE", 24, "Tktx"},
	{0xf3, "EXT_CMP_SWAP", 40, "Aax"},
	{0xf4, "EXT_FETCH_ADD", 40, "Aax"},
	{0xf6, "EXT_SEND_LAST_INV", 16, "Slpvx"},
	{0xf7, "EXT_SEND_ONLY_INV", 16, "Sopvx"},
	{0xfc, "EXT_FLUSH", 32, "FeMrx"},
	{0xfd, "EXT_ATOMIC_WRITE", 28, "wrpxM"},
	{0xc6, "MRC_RDMA_WRITE_FIRST", 32, "WfphrC"},
	{0xc7, "MRC_RDMA_WRITE_MIDDLE", 32, "WmphrC"},
	{0xc8, "MRC_RDMA_WRITE_LAST", 32, "WlphrC"},
	{0xc9, "MRC_RDMA_WRITE_LAST_WITH_IMMEDIATE", 36, "WlphriC"},
	{0xca, "MRC_RDMA_WRITE_ONLY", 32, "WophrC"},
	{0xcb, "MRC_RDMA_WRITE_ONLY_WITH_IMMEDIATE", 36, "WophriC"},
	{0xd1, "MRC_ACKNOWLEDGE", 16, "KkC"},
	{0xd8, "MRC_ENDPOINT_REQUEST", 28, "EC"},
	{0xd9, "MRC_ENDPOINT_RESPONSE", 48, "EC"},
	{0xdc, "MRC_SACK", 48, "sC"},
	{0xdd, "MRC_NACK", 32, "NC"},
	{0xde, "MRC_PROBE", 28, "PC"},
	{0xf1, "EXT_ACKNOWLEDGE", 16, "Kkx"},
	{0xff, "EXT_READ_ACKNOWLEDGE", 16, "Ykx"},
}

// traitsOf calls every accessor of o.
func traitsOf(o bth.Opcode) map[rune]bool {
	return map[rune]bool{
		'S': o.IsSend(), 'W': o.IsWrite(), 'Q': o.IsReadRequest(), 'R': o.IsReadResponse(),
		'A': o.IsAtomic(), 'w': o.IsAtomicWrite(), 'F': o.IsFlush(), 'M': o.IsPlacement(), 'e': o.Info().Headers&bth.HdrFETH != 0,
		'K': o.IsAck(), 'T': o.IsAtomicAck(),
		'f': o.IsFirst(), 'm': o.IsMiddle(), 'l': o.IsLast(), 'o': o.IsOnly(),
		'd': o.HasDETH(), 'r': o.HasRETH(), 'a': o.HasAtomicETH(), 'k': o.HasAETH(),
		't': o.Info().Headers&bth.HdrAtomicAck != 0, 'i': o.HasImm(), 'v': o.HasInv(), 'p': o.HasPayload(),
		'x': o.IsExt(), 'Y': o.IsReadAck(), 'h': o.Info().Headers&bth.HdrMETH != 0,
		'C': o.IsMRC(), 's': o.IsSACK(), 'N': o.IsNACK(), 'P': o.IsProbe(), 'E': o.IsEndpoint(),
	}
}

func TestOpcodeTable(t *testing.T) {
	known := map[uint8]want{}
	for _, w := range wantOpcodes {
		known[w.code] = w
	}
	for i := range 256 {
		o := bth.Opcode(i)
		w, ok := known[uint8(i)]
		if o.Valid() != ok {
			t.Errorf("%#02x: Valid %v", i, !ok)
		}
		if !ok {
			continue
		}
		if o.String() != w.name || int(o.Info().HeaderLen) != w.length {
			t.Errorf("%#02x: %v of %d bytes, want %v of %d", i, o, o.Info().HeaderLen, w.name, w.length)
		}
		has := map[rune]bool{}
		for _, c := range w.traits {
			has[c] = true
		}
		for c, got := range traitsOf(o) {
			if got != has[c] {
				t.Errorf("%v: trait %c is %v", o, c, got)
			}
		}
		checkDerived(t, o, has)
	}
	if s := bth.Opcode(0xfe).String(); s != "0xfe" {
		t.Errorf("unknown opcode prints as %q", s)
	}
}

func checkDerived(t *testing.T, o bth.Opcode, has map[rune]bool) {
	t.Helper()
	single := has['o'] || has['w'] || has['F'] || has['Q'] || has['A'] || has['K'] || has['T'] || has['Y'] ||
		has['s'] || has['N'] || has['P'] || has['E']
	for _, c := range []struct {
		name      string
		got, want bool
	}{
		{"Starts", o.Starts(), has['f'] || single},
		{"Ends", o.Ends(), has['l'] || single},
		{"IsRequest", o.IsRequest(), has['S'] || has['W'] || has['w'] || has['F'] || has['Q'] || has['A']},
		{"IsResponse", o.IsResponse(), has['R'] || has['K'] || has['T'] || has['s'] || has['N']},
		{"IsCNP", o.IsCNP(), o == bth.OpcodeCNP},
	} {
		if c.got != c.want {
			t.Errorf("%v: %s is %v", o, c.name, c.got)
		}
	}
}

func TestSyndromeString(t *testing.T) {
	for s, w := range map[bth.Syndrome]string{
		bth.SyndromeACK:             "ACK",
		0x05:                        "ACK(0x05)",
		bth.SyndromeRNR + 12:        "RNR(0x2c)",
		bth.SyndromePSNSeqErr:       "NAK PSN sequence error",
		bth.SyndromeInvalidRequest:  "NAK invalid request",
		bth.SyndromeRemoteAccessErr: "NAK remote access error",
		bth.SyndromeRemoteOpErr:     "NAK remote operational error",
		bth.SyndromeInvalidRDReq:    "NAK invalid RD request",
		0x65:                        "NAK(0x65)",
		0x40:                        "reserved(0x40)",
		0xff:                        "reserved(0xff)",
	} {
		if got := s.String(); got != w {
			t.Errorf("%#02x: %q, want %q", uint8(s), got, w)
		}
	}
}
