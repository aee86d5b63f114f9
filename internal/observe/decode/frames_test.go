package decode_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"roced.io/roced/bth"
	"roced.io/roced/internal/observe/decode"
	"roced.io/roced/internal/observe/flow"
	"roced.io/roced/internal/observe/pcapng"
)

// ipv4 prepends an IPv4 and a UDP header to datagram and seals its ICRC.
func ipv4(proto byte, datagram []byte) []byte {
	n := 28 + len(datagram)
	b := []byte{
		0x45, 0x6b, byte(n >> 8), byte(n), 0, 1, 0x40, 0, 64, proto, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
		0xc0, 0, 0x12, 0xb7, byte((n - 20) >> 8), byte(n - 20), 0, 0,
	}
	b = append(b, datagram...)
	_ = bth.SealICRC(b) // some tests use packets without space for an ICRC
	return b
}

func ipv6(proto byte, datagram []byte) []byte {
	n := 8 + len(datagram)
	b := append([]byte{0x60, 0, 0, 0, byte(n >> 8), byte(n), proto, 64}, make([]byte, 32)...)
	b[8], b[23], b[24], b[39] = 0xfd, 1, 0xfd, 2
	b = append(b, 0xc0, 0, 0x12, 0xb7, byte(n>>8), byte(n), 0, 0)
	b = append(b, datagram...)
	_ = bth.SealICRC(b)
	return b
}

func ethernet(etherType uint16, rest []byte) []byte {
	b := binary.BigEndian.AppendUint16(make([]byte, 12), etherType)
	return append(b, rest...)
}

// capture returns a pcapng file of one frame. Without snap, or with snap 0, the frame is complete.
func capture(tb testing.TB, link pcapng.LinkType, info pcapng.PacketInfo, frame []byte, snap ...int) []byte {
	tb.Helper()
	var file bytes.Buffer
	w, err := pcapng.NewWriter(&file, "test")
	if err != nil {
		tb.Fatal(err)
	}
	i := pcapng.Interface{Link: link}
	if len(snap) > 0 {
		i.SnapLen = snap[0]
	}
	if _, err := w.AddInterface(i); err != nil {
		tb.Fatal(err)
	}
	if err := w.WritePacket(info, frame); err != nil {
		tb.Fatal(err)
	}
	return file.Bytes()
}

func decodeOne(tb testing.TB, file []byte, opt decode.Options) (string, decode.Stats) {
	tb.Helper()
	var out strings.Builder
	stats, err := decode.Stream(bytes.NewReader(file), &out, opt)
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSuffix(out.String(), "\n"), stats
}

func encode(p bth.Packet) []byte {
	p.PKey, p.DestQP, p.PSN = bth.DefaultPKey, 17, bth.MakePSN(5)
	return p.AppendTo(nil)
}

const (
	text4 = "1970-01-01 00:00:01.000000002 10.0.0.1 > 10.0.0.2 sport 49152 dscp 26 ce ttl 64 id 1 "
	json4 = `{"packet":1,"time":"1970-01-01T00:00:01.000000002Z","src":"10.0.0.1","dst":"10.0.0.2","sport":49152,"dscp":26,"ecn":"ce","hop_limit":64,"flow_label":0,"id":1,`
	flags = `"ackreq":false,"solicited":false,"migreq":false,"fecn":false,"becn":false,"pkey":65535,`
)

func TestLines(t *testing.T) {
	for _, c := range []struct{ packet, text, json string }{
		{string(encode(bth.Packet{Opcode: 0x06, RETH: bth.RETH{VA: 0x1000, RKey: 0x2a, Length: 9000}, Payload: make([]byte, 1024)})),
			"RC_RDMA_WRITE_FIRST qp 17 (0x11) psn 5 va 0x1000 rkey 0x0000002a dmalen 9000 payload 1024 icrc ok",
			`"opcode":"RC_RDMA_WRITE_FIRST","qpn":17,"psn":5,` + flags + `"va":4096,"rkey":42,"dmalen":9000,"payload":1024,"pad":0,"icrc":"ok"}`},
		{string(encode(bth.Packet{Opcode: 0x11, AETH: bth.AETH{Syndrome: 0x2c, MSN: 7}})),
			"RC_ACKNOWLEDGE qp 17 (0x11) psn 5 RNR(0x2c) msn 7 payload 0 icrc ok",
			`"opcode":"RC_ACKNOWLEDGE","qpn":17,"psn":5,` + flags + `"syndrome":44,"msn":7,"payload":0,"pad":0,"icrc":"ok"}`},
		{string(encode(bth.Packet{Opcode: 0x12, AETH: bth.AETH{Syndrome: 0x1f, MSN: 1}, AtomicAck: 1 << 63})),
			"RC_ATOMIC_ACKNOWLEDGE qp 17 (0x11) psn 5 ACK msn 1 original 9223372036854775808 payload 0 icrc ok",
			`"opcode":"RC_ATOMIC_ACKNOWLEDGE","qpn":17,"psn":5,` + flags + `"syndrome":31,"msn":1,"original":9223372036854775808,"payload":0,"pad":0,"icrc":"ok"}`},
		{string(encode(bth.Packet{Opcode: 0x13, AtomicETH: bth.AtomicETH{VA: 8, RKey: 1, SwapAdd: 2, Compare: 3}})),
			"RC_CMP_SWAP qp 17 (0x11) psn 5 va 0x8 rkey 0x00000001 swapadd 2 compare 3 payload 0 icrc ok",
			`"opcode":"RC_CMP_SWAP","qpn":17,"psn":5,` + flags + `"va":8,"rkey":1,"swapadd":2,"compare":3,"payload":0,"pad":0,"icrc":"ok"}`},
		{string(encode(bth.Packet{Opcode: 0x65, DETH: bth.DETH{QKey: 0x11111111, SrcQP: 3}, Imm: 0xff, Payload: []byte("ab")})),
			"UD_SEND_ONLY_WITH_IMMEDIATE qp 17 (0x11) psn 5 qkey 0x11111111 srcqp 3 (0x3) imm 0x000000ff payload 2 pad 2 icrc ok",
			`"opcode":"UD_SEND_ONLY_WITH_IMMEDIATE","qpn":17,"psn":5,` + flags + `"qkey":286331153,"srcqp":3,"imm":255,"payload":2,"pad":2,"icrc":"ok"}`},
		{string(encode(bth.Packet{Opcode: 0x17, IETH: 99})),
			"RC_SEND_ONLY_INV qp 17 (0x11) psn 5 invrkey 0x00000063 payload 0 icrc ok",
			`"opcode":"RC_SEND_ONLY_INV","qpn":17,"psn":5,` + flags + `"invrkey":99,"payload":0,"pad":0,"icrc":"ok"}`},
		{string(encode(bth.Packet{Opcode: 0xe7, RETH: bth.RETH{VA: 8, RKey: 1, Length: 4}, Payload: []byte("abcd"), Ext: bth.XETH{
			Profile: bth.ProfileIRN, Flags: bth.XReTx | bth.XSync | bth.XTail | bth.XHasMsg | bth.XHasRecvSN | bth.XHasReadSN | bth.XHasHead,
			MSN: 3, Offset: 2, RecvSN: 1, ReadSN: 0, Head: bth.MakePSN(9)}})),
			"EXT_RDMA_WRITE_MIDDLE qp 17 (0x11) psn 5 ext irn retx sync tail message 3 offset 2 recv_wqe_sn 1 read_wqe_sn 0 head 9" +
				" va 0x8 rkey 0x00000001 dmalen 4 payload 4 icrc ok",
			`"opcode":"EXT_RDMA_WRITE_MIDDLE","qpn":17,"psn":5,` + flags + `"va":8,"rkey":1,"dmalen":4,"ext":{"profile":"irn","retx":true,` +
				`"sync":true,"tail":true,"msn":3,"offset":2,"recv_wqe_sn":1,"read_wqe_sn":0,"head":9},"payload":4,"pad":0,"icrc":"ok"}`},
		{string(encode(bth.Packet{Opcode: 0xf1, AETH: bth.AETH{Syndrome: 0x60, MSN: 7}, Ext: bth.XETH{Profile: bth.ProfileMELO,
			Flags: bth.XECE | bth.XRefused | bth.XHasSACK | bth.XHasPath | bth.XHasHole1, SACK: bth.MakePSN(9), Path: 49153,
			Holes: [bth.MaxHoles]bth.Hole{{Start: bth.MakePSN(6), Len: 2}}}})),
			"EXT_ACKNOWLEDGE qp 17 (0x11) psn 5 ext melo ece refused sack 9 path 49153 hole 6+2 NAK PSN sequence error msn 7 payload 0 icrc ok",
			`"opcode":"EXT_ACKNOWLEDGE","qpn":17,"psn":5,` + flags + `"syndrome":96,"msn":7,"ext":{"profile":"melo","ece":true,"refused":true,` +
				`"sack":9,"path":49153,"holes":[{"start":6,"len":2}]},"payload":0,"pad":0,"icrc":"ok"}`},
		{string(encode(bth.Packet{Opcode: 0xcb, ReTx: true, Stamped: true, METH: bth.METH{RQMSN: 3, MSN: 4}, Imm: 7, Payload: []byte("abcd"),
			TSETH: bth.TSETH{Timestamp: 5, Coarse: true, Format: 1}, RETH: bth.RETH{VA: 8, RKey: 1, Length: 4}})),
			"MRC_RDMA_WRITE_ONLY_WITH_IMMEDIATE qp 17 (0x11) psn 5 retx rqmsn 3 msn 4 timestamp 5 coarse format 1" +
				" va 0x8 rkey 0x00000001 dmalen 4 imm 0x00000007 payload 4 icrc ok",
			`"opcode":"MRC_RDMA_WRITE_ONLY_WITH_IMMEDIATE","qpn":17,"psn":5,` + flags + `"va":8,"rkey":1,"dmalen":4,"imm":7,` +
				`"mrc":{"retx":true,"rqmsn":3,"msn":4,"timestamp":5,"coarse":true,"format":1},"payload":4,"pad":0,"icrc":"ok"}`},
		{string(encode(bth.Packet{Opcode: 0xdc, SETH: bth.SETH{Mark: bth.MRCMarkSkip, AckOffset: -2, Entropy: 0x00021234, Cack: bth.MakePSN(5),
			MPR: 8, SACKOffset: 1, Bitmap: 3}, CCState: bth.CCState{Timestamp: 9, OutOfOrder: 1, Restore: true, Penalty: 2, Received: 3}})),
			"MRC_SACK qp 17 (0x11) psn 5 mark 1 ack_psn 3 entropy 0x00021234 entropy_sport 4660 entropy_label 0x2 src_context 0x0000 dest_context 0x0000" +
				" cack 5 cc_type 0 cc_flags 0 range 1024 base 6 bitmap 0x0000000000000003 timestamp 9 ooo_count 1 restore penalty 2 received 768 payload 0 icrc ok",
			`"opcode":"MRC_SACK","qpn":17,"psn":5,` + flags + `"mrc":{"timestamp":9,"mark":1,"ack_psn":3,"cack":5,"base":6,"bitmap":3,` +
				`"range":1024,"entropy":135732,"entropy_sport":4660,"entropy_label":2,"src_context":0,"dest_context":0,"cc_type":0,"cc_flags":0,` +
				`"ooo_count":1,"restore":true,"penalty":2,"received":768},"payload":0,"pad":0,"icrc":"ok"}`},
		{string(encode(bth.Packet{Opcode: 0xdd, NETH: bth.NETH{Reason: bth.MRCTrimmed, PSN: bth.MakePSN(5), CCType: bth.MRCStateNACK, Timestamp: 6}})),
			"MRC_NACK qp 17 (0x11) psn 5 TRIMMED vendor 0 entropy 0x00000000 entropy_sport 0 entropy_label 0x0 src_context 0x0000 dest_context 0x0000 nack 5" +
				" cc_type 2 cc_flags 0 timestamp 6 payload 0 icrc ok",
			`"opcode":"MRC_NACK","qpn":17,"psn":5,` + flags + `"mrc":{"timestamp":6,"reason":"TRIMMED","nack":5,"entropy":0,"entropy_sport":0,` +
				`"entropy_label":0,"src_context":0,"dest_context":0,"vendor":0,"cc_type":2,"cc_flags":0},"payload":0,"pad":0,"icrc":"ok"}`},
		{string(encode(bth.Packet{Opcode: 0xc6, Stamped: true, METH: bth.METH{MSN: 4}, TSETH: bth.TSETH{Timestamp: 5, Format: 1}})[:24]),
			"MRC_RDMA_WRITE_FIRST qp 17 (0x11) psn 5 trimmed rqmsn 0 msn 4 timestamp 5 format 1",
			`"opcode":"MRC_RDMA_WRITE_FIRST","qpn":17,"psn":5,` + flags + `"mrc":{"trimmed":true,"rqmsn":0,"msn":4,"timestamp":5,"format":1}}`},
		{string(encode(bth.Packet{Opcode: 0x81, BECN: true, Payload: make([]byte, 16)})),
			"CNP qp 17 (0x11) psn 5 becn payload 16 icrc ok",
			`"opcode":"CNP","qpn":17,"psn":5,` + strings.Replace(flags, `"becn":false`, `"becn":true`, 1) + `"payload":16,"pad":0,"icrc":"ok"}`},
	} {
		file := capture(t, pcapng.LinkRaw, pcapng.PacketInfo{Time: 1e9 + 2}, ipv4(17, []byte(c.packet)))
		if got, _ := decodeOne(t, file, decode.Options{}); got != text4+c.text {
			t.Errorf("text\n%s, want\n%s", got, text4+c.text)
		}
		got, _ := decodeOne(t, file, decode.Options{JSON: true})
		if d := cmp.Diff(object(t, json4+c.json), object(t, got)); d != "" {
			t.Errorf("(-want +JSON)\n%s", d)
		}
	}
}

// object returns the members of a JSON object. Their order has no meaning.
func object(t *testing.T, text string) (o map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return o
}

func TestLinksAndNotes(t *testing.T) {
	v4, v6 := ipv4(17, send()), ipv6(17, send())
	tail := " RC_SEND_ONLY qp 17 (0x11) psn 16777208 ackreq payload 5 pad 3 icrc ok"
	four, six := "10.0.0.1 > 10.0.0.2 sport 49152 dscp 26 ce ttl 64 id 1"+tail, "fd00::1 > fd00::2 sport 49152 ttl 64"+tail
	qinq := append([]byte{0x20, 5, 0x81, 0, 0, 6, 8, 0}, v4...)
	for name, c := range map[string]struct {
		link  pcapng.LinkType
		frame []byte
		info  pcapng.PacketInfo
		want  string
	}{
		"ethernet": {pcapng.LinkEthernet, ethernet(0x0800, v4), pcapng.PacketInfo{}, four},
		"padded":   {pcapng.LinkEthernet, append(ethernet(0x0800, v4), 0, 0), pcapng.PacketInfo{}, four},
		"IPv6":     {pcapng.LinkEthernet, ethernet(0x86dd, v6), pcapng.PacketInfo{}, six},
		"QinQ":     {pcapng.LinkEthernet, ethernet(0x88a8, qinq), pcapng.PacketInfo{}, "vlan 5 priority 1 vlan 6 " + four},
		"raw IPv4": {pcapng.LinkIPv4, v4, pcapng.PacketInfo{}, four},
		"raw IPv6": {pcapng.LinkRaw, v6, pcapng.PacketInfo{}, six},
		"SLL":      {pcapng.LinkSLL, append(append(make([]byte, 14), 8, 0), v4...), pcapng.PacketInfo{}, four},
		"SLL2":     {pcapng.LinkSLL2, append(append([]byte{8, 0}, make([]byte, 18)...), v4...), pcapng.PacketInfo{}, four},
		"notes": {pcapng.LinkRaw, v6, pcapng.PacketInfo{Direction: pcapng.Inbound, Comment: "dropped:\x1b[31m no QP\n"},
			"in " + six + " comment: dropped:\\u001b[31m no QP\\u000a"},
	} {
		got, _ := decodeOne(t, capture(t, c.link, c.info, c.frame), decode.Options{})
		if want := "1970-01-01 00:00:00.000000000 " + c.want; got != want {
			t.Errorf("%s:\n%s, want\n%s", name, got, want)
		}
	}
	file := capture(t, pcapng.LinkEthernet, pcapng.PacketInfo{Direction: pcapng.Outbound, Comment: "why"}, ethernet(0x88a8, qinq))
	got, _ := decodeOne(t, file, decode.Options{JSON: true})
	for _, want := range []string{`"dir":"out"`, `"smac":"00:00:00:00:00:00","dmac":"00:00:00:00:00:00","vlan":[5,6],"priority":[1,0]`, `"comment":"why"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
}

func TestSkipped(t *testing.T) {
	fragment := ipv4(17, send())
	fragment[6] = 0x20
	port := ipv4(17, send())
	port[23]++
	for name, c := range map[string]struct {
		frame []byte
		want  string
	}{
		"empty": {nil, "truncated before UDP"}, "short": {make([]byte, 13), "truncated before UDP"}, "ARP": {ethernet(0x0806, make([]byte, 28)), "ARP"},
		"TCP": {ethernet(0x0800, ipv4(6, send())), "TCP"}, "IPv6 TCP": {ethernet(0x86dd, ipv6(6, send())), "TCP"},
		"short VLAN": {ethernet(0x8100, []byte{0, 1}), "truncated before UDP"}, "short IPv4": {ethernet(0x0800, port[:19]), "truncated before UDP"},
		"not version 6": {ethernet(0x86dd, make([]byte, 60)), "malformed"}, "fragment": {ethernet(0x0800, fragment), "IP fragments"},
		"other port": {ethernet(0x0800, port), "other UDP ports"}, "no UDP": {ethernet(0x0800, port[:27]), "truncated before UDP"},
		"RoCE v1": {ethernet(0x8915, make([]byte, 60)), "RoCE v1"}, "PFC": {ethernet(0x8808, make([]byte, 46)), "MAC control"},
		"other type": {ethernet(0x1234, nil), "other EtherTypes"}, "other protocol": {ethernet(0x0800, ipv4(89, send())), "other IP protocols"},
	} {
		line, stats := decodeOne(t, capture(t, pcapng.LinkEthernet, pcapng.PacketInfo{}, c.frame), decode.Options{})
		if d := cmp.Diff(decode.Stats{Frames: 1, Skipped: 1, Others: flow.Others{c.want: 1}}, stats); line != "" || d != "" {
			t.Errorf("%s: %q (-want +got)\n%s", name, line, d)
		}
	}
	for link, want := range map[pcapng.LinkType]string{147: "link type 147", 197: "ERF", 247: "InfiniBand"} {
		_, stats := decodeOne(t, capture(t, link, pcapng.PacketInfo{}, []byte("?")), decode.Options{})
		if stats.Others[want] != 1 {
			t.Errorf("%s: %+v", want, stats)
		}
	}
}

func TestMalformed(t *testing.T) {
	change := func(f func(b []byte)) []byte {
		b := ipv4(17, send())
		f(b)
		return b
	}
	for name, c := range map[string]struct {
		frame []byte
		want  string
		bad   int
	}{
		"ICRC":        {change(func(b []byte) { b[42]++ }), "RC_SEND_ONLY qp 17 (0x11) psn 16777208 ackreq payload 5 pad 3 icrc bad", 1},
		"opcode":      {ipv4(17, append([]byte{0x15}, send()[1:]...)), "0x15 qp 17 (0x11) psn 16777208 ackreq icrc ok error: unknown opcode", 0},
		"short":       {ipv4(17, send()[:10]), "error: packet shorter than its headers", 0},
		"no ICRC":     {ipv4(17, send()[:12]), "RC_SEND_ONLY qp 17 (0x11) psn 16777208 ackreq error: packet shorter than its headers", 0},
		"UDP length":  {change(func(b []byte) { b[25]++ }), "RC_SEND_ONLY qp 17 (0x11) psn 16777208 ackreq payload 5 pad 3 error: UDP length 33, but 32 bytes in the IP packet", 0},
		"tiny length": {change(func(b []byte) { b[3] = 24; b[25] = 4 }), "error: UDP length 4: shorter than the UDP header", 0},
	} {
		line, stats := decodeOne(t, capture(t, pcapng.LinkRaw, pcapng.PacketInfo{}, c.frame), decode.Options{})
		want := "1970-01-01 00:00:00.000000000 10.0.0.1 > 10.0.0.2 sport 49152 dscp 26 ce ttl 64 id 1 " + c.want
		if line != want || stats.BadICRC != c.bad || stats.Malformed != 1-c.bad {
			t.Errorf("%s: %+v\n%s, want\n%s", name, stats, line, want)
		}
	}
}

func TestSnapLength(t *testing.T) {
	write := bth.Packet{Opcode: 0x06, RETH: bth.RETH{VA: 16, RKey: 1, Length: 9000}, Payload: make([]byte, 1023)}
	frame := ipv4(17, encode(write))
	for snap, want := range map[int]string{
		28: "truncated",
		40: "RC_RDMA_WRITE_FIRST qp 17 (0x11) psn 5 truncated",
		56: "RC_RDMA_WRITE_FIRST qp 17 (0x11) psn 5 va 0x10 rkey 0x00000001 dmalen 9000 payload 1023 pad 1 truncated",
	} {
		file := capture(t, pcapng.LinkRaw, pcapng.PacketInfo{Time: 1e9 + 2}, frame, snap)
		if line, stats := decodeOne(t, file, decode.Options{}); line != text4+want || stats.Malformed != 0 {
			t.Errorf("snap %d: %+v\n%s, want\n%s", snap, stats, line, text4+want)
		}
	}
	bad := ipv4(17, append([]byte{0x15}, encode(write)[1:]...))
	file := capture(t, pcapng.LinkRaw, pcapng.PacketInfo{}, bad, 60)
	if line, _ := decodeOne(t, file, decode.Options{}); !strings.HasSuffix(line, "truncated error: unknown opcode") {
		t.Error(line)
	}
	tiny := ipv4(17, encode(bth.Packet{Opcode: 0x04})[:14])
	if line, _ := decodeOne(t, capture(t, pcapng.LinkRaw, pcapng.PacketInfo{}, tiny, 41), decode.Options{}); !strings.HasSuffix(line, "truncated error: packet shorter than its headers") {
		t.Error(line)
	}
}

// TestOuter decodes a packet of MRC in SRv6, with and without a segment routing header.
func TestOuter(t *testing.T) {
	mrc := ipv4(17, encode(bth.Packet{Opcode: bth.TransportMRC | bth.OpAcknowledge}))
	outer := func(next byte, rest ...byte) []byte {
		n := len(rest) + len(mrc)
		b := append([]byte{0x60, 0, 0, 0, byte(n >> 8), byte(n), next, 64}, make([]byte, 32)...)
		b[8], b[23], b[24], b[39] = 0xfd, 1, 0xfd, 2
		return append(append(b, rest...), mrc...)
	}
	srh := append([]byte{4, 2, 4, 1, 0, 0, 0, 0, 0xfd}, make([]byte, 15)...)
	for want, frame := range map[string][]byte{
		"srv6 fd00::1 > fd00::2 ":                        outer(4),
		"srv6 fd00::1 > fd00::2 segments fd00:: left 1 ": outer(43, srh...),
	} {
		got, _ := decodeOne(t, capture(t, pcapng.LinkRaw, pcapng.PacketInfo{Time: 1e9 + 2}, frame), decode.Options{})
		if want := text4[:30] + want + text4[30:] + "MRC_ACKNOWLEDGE qp 17 (0x11) psn 5 ACK(0x00) msn 0 payload 0 icrc ok"; got != want {
			t.Errorf("%s, want\n%s", got, want)
		}
	}
	mrc = ipv4(17, encode(bth.Packet{Opcode: bth.OpAcknowledge}))
	if got, _ := decodeOne(t, capture(t, pcapng.LinkRaw, pcapng.PacketInfo{}, outer(4)), decode.Options{}); !strings.Contains(got, "ipip fd00::1 > fd00::2 ") {
		t.Errorf("RC in IPv6: %s", got)
	}
}
