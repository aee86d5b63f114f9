package fault

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

var (
	own4  = netip.MustParseAddr("198.18.0.1")
	peer4 = netip.MustParseAddr("198.18.0.2")
	own6  = netip.MustParseAddr("2001:db8::1")
	peer6 = netip.MustParseAddr("2001:db8::2")
)

// packet describes a frame to build.
type packet struct {
	dir      Dir
	v6       bool
	op       bth.Opcode
	qpn      uint32
	psn      uint32
	syndrome byte
	payload  int
	tag      byte
	port     uint16 // UDP source port, from 0xc001 on
	stamped  bool   // MRC, with a TSETH
	vlan     bool
	options  bool // of IPv4
	checksum bool // of UDP, not valid
}

// build returns a frame with a valid IPv4 checksum and ICRC.
func (p packet) build() []byte {
	src, dst := own4, peer4
	if p.v6 {
		src, dst = own6, peer6
	}
	if p.dir == Rx {
		src, dst = dst, src
	}
	b := make([]byte, bth.BTHLen, 64+p.payload)
	b[0] = byte(p.op)
	binary.BigEndian.PutUint32(b[4:], p.qpn)
	binary.BigEndian.PutUint32(b[8:], p.psn)
	ext := make([]byte, int(p.op.Info().HeaderLen)-bth.BTHLen)
	if p.stamped {
		b[8] = 0x10
		ext = append(ext, make([]byte, bth.TSETHLen)...)
	}
	for i := range ext {
		if p.op.IsMRC() {
			ext[i] = byte(i + 1)
		}
	}
	if p.op.HasAETH() {
		ext[0] = p.syndrome
	}
	b = append(b, ext...)
	b = append(b, bytes.Repeat([]byte{p.tag}, p.payload)...)
	b = append(b, 0, 0, 0, 0)
	n := udpLen + len(b)
	eth := append(make([]byte, 12), 0x08, 0)
	if p.vlan {
		eth = append(eth[:12], 0x81, 0, 0x60, 5, 8, 0)
	}
	var ip []byte
	if p.v6 {
		eth[len(eth)-2], eth[len(eth)-1] = 0x86, 0xdd
		ip = append([]byte{0x60, 0x2a, 0xbc, 0xde, byte(n >> 8), byte(n), 17, 64}, src.AsSlice()...)
	} else {
		ip = append([]byte{0x45, 0x02, byte((n + 20) >> 8), byte(n + 20), 0, 7, 0x40, 0, 64, 17, 0, 0}, src.AsSlice()...)
	}
	ip = append(ip, dst.AsSlice()...)
	if p.options {
		ip[0], ip[3] = 0x46, byte(n+24)
		ip = append(ip, 1, 1, 1, 0)
	}
	if !p.v6 {
		binary.BigEndian.PutUint16(ip[10:], ^sum(ip))
	}
	port := max(p.port, 0xc001)
	udp := []byte{byte(port >> 8), byte(port), 0x12, 0xb7, byte(n >> 8), byte(n), 0, 0}
	if p.checksum {
		udp[6] = 1
	}
	pkt := append(append(ip, udp...), b...)
	if err := bth.SealICRC(pkt); err != nil {
		panic(err)
	}
	return append(eth, pkt...)
}

func sum(b []byte) uint16 {
	s := uint32(0)
	for i := 0; i < len(b); i += 2 {
		s += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

func engine(t testing.TB, rules ...string) *Engine {
	t.Helper()
	e := &Engine{}
	setRules(t, e, rules...)
	return e
}

func setRules(t testing.TB, e *Engine, rules ...string) {
	t.Helper()
	var rs []Rule
	for _, s := range rules {
		r, err := Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r)
	}
	if err := e.SetRules(rs); err != nil {
		t.Fatal(err)
	}
}

func TestParseRoundTrip(t *testing.T) {
	for _, s := range []string{
		"tx drop qpn=0x11 psn=+3 n=1,2",
		"both drop p=0.01 seed=7",
		"rx delay 2ms p=0.1",
		"tx ecn psn=+0..10",
		"rx corrupt op=ack n=1",
		"rx corrupt -1 op=nak",
		"tx corrupt 12 peer=198.18.0.2",
		"tx duplicate 3 peer=2001:db8::2 count=5",
		"both reorder 3 5ms op=request",
		"both truncate 60 any name=cut",
		"rx trim op=write",
		"tx trim 63 p=0.5",
		"rx drop psn=16777215..3",
	} {
		r, err := Parse(s)
		if err != nil {
			t.Error(err)
			continue
		}
		if r.String() != s {
			t.Errorf("%q becomes %q", s, r)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for s, want := range map[string]string{
		"":                            "direction",
		"tx":                          "action",
		"up drop":                     `"up"`,
		"tx drp":                      `"drp" is not an action (drop, duplicate, delay, reorder, corrupt, truncate, trim, ecn); did you mean "drop"?`,
		"txx drop":                    `did you mean "tx"?`,
		"tx drop ps=+3":               `did you mean "psn"?`,
		"tx drop op=raed":             `did you mean "read"?`,
		"tx drop 3":                   `"3"`,
		"tx drop qpm=1":               `"qpm=1"`,
		"tx drop qpn=x":               `"qpn=x"`,
		"tx drop qpn=0x1000000":       `"qpn=0x1000000"`,
		"tx drop psn=+5..3":           "+5..3",
		"tx drop psn=+5..":            `"psn=+5.."`,
		"tx drop n=0":                 "n 0",
		"tx drop n=1,x":               `"n=1,x"`,
		"tx drop op=foo":              `"foo"`,
		"tx drop op=":                 `"op="`,
		"tx drop p=2":                 `"p=2"`,
		"tx drop p=0":                 `"p=0"`,
		"tx drop p=NaN":               `"p=NaN"`,
		"tx drop peer=198.18.0":       `"peer=198.18.0"`,
		"tx drop seed=-1":             `"seed=-1"`,
		"tx drop count=0":             `"count=0"`,
		"tx drop p=0.1 p=0.2":         "twice",
		"tx drop any qpn=1":           "any",
		"tx drop any=1":               `"any=1"`,
		"tx drop name=a/b":            `"a/b"`,
		"tx delay":                    "duration",
		"tx delay 3":                  `"3"`,
		"tx delay 2h":                 "2h",
		"tx reorder":                  "number of frames",
		"tx reorder 3 4":              `"4"`,
		"tx reorder 3 1ms 2":          `"2"`,
		"tx duplicate 0":              `"0"`,
		"tx truncate 3":               "length",
		"tx trim 0":                   `"0"`,
		"tx trim 64":                  "dscp 64: must be 1 to 63",
		"tx trim -1":                  `"-1"`,
		"tx trim 1 2":                 `"2"`,
		"tx trim af11":                `"af11"`,
		"tx corrupt 4":                "ICRC",
		"tx corrupt 1 1":              `"1"`,
		"tx drop peer=fe80::1%eth0":   "zone",
		"tx drop psn=0..0x1000000":    "psn",
		"tx drop 198.18.0.1 psn=+1x3": `"198.18.0.1"`,
	} {
		_, err := Parse(s)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v does not mention %s", s, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"tx drop qpn=0x11 psn=+3 n=1,2", "rx delay 2ms p=0.1", "both reorder 3 5ms", "rx corrupt -1 any", "tx truncate 20 peer=::1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := Parse(s)
		if err != nil {
			return
		}
		again, err := Parse(r.String())
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("%q -> %q -> %+v, %v", s, r, again, err)
		}
		e := &Engine{}
		if err := e.SetRules([]Rule{r}); err != nil {
			t.Fatal(err)
		}
		e.Process(1, Tx, packet{dir: Tx, qpn: 0x11, psn: 3, payload: 8}.build())
	})
}

// FuzzProcess applies all kinds of rules to arbitrary frames.
func FuzzProcess(f *testing.F) {
	f.Add(packet{dir: Rx, payload: 8}.build())
	f.Add(packet{dir: Rx, v6: true, op: bth.OpAcknowledge}.build())
	f.Add(packet{dir: Rx, op: bth.TransportMRC | bth.OpWriteOnly, stamped: true, vlan: true, payload: 8}.build())
	f.Fuzz(func(t *testing.T, frame []byte) {
		e := engine(t, "both trim p=0.5", "both truncate 50 p=0.1", "both trim 16", "both ecn any", "both corrupt any p=0.5", "both corrupt 3", "both truncate 40", "both duplicate p=0.5 n=1", "both reorder 2 psn=+0")
		v := e.Process(1, Rx, frame)
		if len(v.Frame) > len(frame) {
			t.Fatal("the frame has grown")
		}
		for {
			if _, ok := e.Release(mono.Never-1, Rx); !ok {
				break
			}
		}
		if e.NextTimeout() != mono.Never {
			t.Fatal("something is left")
		}
	})
}

func TestCorruptBreaksICRC(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		e := engine(t, "tx corrupt seed=3")
		for i := range 2000 {
			f := packet{dir: Tx, v6: v6, op: bth.OpSendOnly, psn: uint32(i), payload: 4 * (i % 20)}.build()
			v := e.Process(0, Tx, f)
			if v.Copies != 1 || bth.CheckICRC(v.Frame[ethLen:]) == nil {
				t.Fatalf("frame %d still has a good ICRC", i)
			}
		}
	}
	for _, rule := range []string{"tx corrupt 0", "tx corrupt -1", "tx corrupt 12", "tx corrupt -16"} {
		e := engine(t, rule)
		v := e.Process(0, Tx, packet{dir: Tx, op: bth.OpSendOnly, payload: 8}.build())
		if bth.CheckICRC(v.Frame[ethLen:]) == nil || v.Comment != "fault: corrupt ("+rule+")" {
			t.Errorf("%s: frame is unharmed, %q", rule, v.Comment)
		}
	}
	e := engine(t, "tx corrupt 1000")
	v := e.Process(0, Tx, packet{dir: Tx, payload: 8}.build())
	if bth.CheckICRC(v.Frame[ethLen:]) != nil || v.Comment != "" || e.RuleStats()[0].Hit != 0 || e.RuleStats()[0].Matched != 1 {
		t.Error("a frame too short for the offset was touched")
	}
}

func TestECNKeepsChecksums(t *testing.T) {
	e := engine(t, "both ecn")
	for i := range 300 {
		p := packet{dir: Tx, v6: i%2 == 0, op: bth.OpSendOnly, psn: uint32(i), payload: 4 * i}
		v := e.Process(0, Tx, p.build())
		ip := v.Frame[ethLen:]
		if bth.CheckICRC(ip) != nil {
			t.Fatal("ICRC broken")
		}
		if p.v6 {
			if ip[1]>>4&3 != 3 || ip[0]>>4 != 6 {
				t.Fatal("not marked")
			}
		} else if ip[1]&3 != 3 || sum(ip[:20]) != 0xffff {
			t.Fatal("not marked or IP checksum broken")
		}
	}
}

// TestTrimKeepsHeaders: a trimmed packet has valid lengths and checksums, its BTH, METH and TSETH, and its ECN field.
func TestTrimKeepsHeaders(t *testing.T) {
	e := engine(t, "both trim 63")
	for i := range 300 {
		p := packet{dir: Tx, v6: i%2 == 0, options: i%4 == 1, vlan: i%3 == 0, stamped: i%5 < 2, checksum: i%7 == 0, psn: uint32(i), payload: 4 * i,
			op: bth.TransportMRC | []bth.Opcode{bth.OpWriteFirst, bth.OpWriteMiddle, bth.OpWriteLastImm, bth.OpWriteOnly}[i%4]}
		before := p.build()
		var v, w view
		v.parse(tx, before)
		var whole, cut bth.Packet
		if err := whole.Decode(before[v.bth:v.end]); err != nil {
			t.Fatal(err)
		}
		after := e.Process(0, Tx, p.build()).Frame
		w.parse(tx, after)
		if err := cut.Decode(after[w.bth:]); err != bth.ErrTrimmed || w.end != len(after) || w.bth != v.bth || w.key != v.key {
			t.Fatalf("%+v: %v: %x", p, err, after)
		}
		if cut.METH != whole.METH || cut.TSETH != whole.TSETH || cut.PSN != whole.PSN || cut.DestQP != whole.DestQP {
			t.Errorf("%+v becomes %+v", whole, cut)
		}
		ip := after[w.l3:]
		if p.v6 {
			if binary.BigEndian.Uint32(ip)&^(63<<22) != binary.BigEndian.Uint32(before[v.l3:]) || int(ip[4])<<8|int(ip[5]) != len(ip)-ipv6Len {
				t.Errorf("IPv6: %x", ip)
			}
		} else if int(ip[2])<<8|int(ip[3]) != len(ip) || ip[1] != 63<<2|2 || sum(ip[:int(ip[0]&0xf)*4]) != 0xffff {
			t.Errorf("IPv4: %x", ip)
		}
	}
}

func TestSetRulesReleasesHeldFrames(t *testing.T) {
	e := engine(t, "both delay 1s")
	for i := range 5 {
		e.Process(10, Rx, packet{dir: Rx, psn: uint32(i)}.build())
	}
	setRules(t, e)
	if !e.Active() || e.NextTimeout() != 0 {
		t.Fatal("frames are not due")
	}
	for i := range 5 {
		f, ok := e.Release(10, Rx)
		if !ok || f[ethLen+20+8+11] != byte(i) {
			t.Fatalf("frame %d: %v", i, ok)
		}
	}
	if e.Active() {
		t.Error("still active")
	}
}

func TestHeldOverflow(t *testing.T) {
	e := engine(t, "rx delay 1s")
	f := packet{dir: Rx}.build()
	for range maxHeld {
		if e.Process(0, Rx, f).Copies != 0 {
			t.Fatal("not held")
		}
	}
	if e.Process(0, Rx, f).Copies != 1 || e.Stats().Overflow != 1 || e.Stats().Held != maxHeld {
		t.Errorf("stats %+v", e.Stats())
	}
}

// TestFlowsAreBounded uses more queue pairs than the table holds.
func TestFlowsAreBounded(t *testing.T) {
	e := engine(t, "tx drop n=2")
	send := func(qpn int) int { return e.Process(0, Tx, packet{dir: Tx, qpn: uint32(qpn)}.build()).Copies }
	for q := range 3 * maxFlows {
		send(q)
	}
	if send(0) != 1 {
		t.Error("a flow that was forgotten has its second sending")
	}
	for q := 2*maxFlows + 1; q < 3*maxFlows; q++ {
		if send(q) != 0 {
			t.Fatalf("queue pair %d has been forgotten", q)
		}
	}
	if len(e.flows.index) != maxFlows || len(e.flows.flows) != maxFlows {
		t.Error("table has grown")
	}
}

func TestShareIsAsAsked(t *testing.T) {
	count := func(rule string) (n int, pattern string) {
		e := engine(t, rule)
		for i := range 20000 {
			c := e.Process(0, Tx, packet{dir: Tx, psn: uint32(i)}.build()).Copies
			n += 1 - c
			if i < 2000 {
				pattern += string(rune('0' + c))
			}
		}
		return n, pattern
	}
	n1, a := count("tx drop p=0.1 seed=7")
	_, b := count("tx drop p=0.1 seed=7")
	_, c := count("tx drop p=0.1 seed=8")
	if a != b || a == c {
		t.Error("the seed does not decide")
	}
	if n1 < 1850 || n1 > 2150 {
		t.Errorf("%d of 20000 dropped", n1)
	}
}

func TestTooManyRules(t *testing.T) {
	e := &Engine{}
	if err := e.SetRules(make([]Rule, maxRules+1)); err != ErrTooMany {
		t.Error(err)
	}
	if err := e.SetRules([]Rule{{Dir: "tx"}}); err == nil {
		t.Error("bad rule accepted")
	}
}

func TestAllocations(t *testing.T) {
	e := engine(t, "both delay 1ms p=0.5", "tx ecn psn=+1..1000", "both duplicate p=0.2 n=1,2", "rx drop p=0.1", "both corrupt p=0.01", "rx reorder 3 p=0.1")
	frames := [][]byte{packet{dir: Tx, payload: 1000}.build(), packet{dir: Rx, op: bth.OpAcknowledge}.build()}
	now, i := mono.Time(0), uint32(0)
	run := func() {
		now += mono.Time(10 * time.Microsecond)
		i++
		for k, d := range []Dir{Tx, Rx} {
			binary.BigEndian.PutUint32(frames[k][ethLen+28+8:], i)
			e.Process(now, d, frames[k])
			for {
				if _, ok := e.Release(now, d); !ok {
					break
				}
			}
		}
	}
	for range 5000 {
		run()
	}
	if n := testing.AllocsPerRun(2000, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkProcess(b *testing.B) {
	e := engine(b, "tx drop qpn=0x99 psn=+3 n=1", "both drop p=0.001 seed=1", "rx delay 1ms p=0.1")
	f := packet{dir: Tx, payload: 1024}.build()
	b.ReportAllocs()
	for b.Loop() {
		e.Process(0, Tx, f)
	}
}

// TestGrammar: Grammar has exactly the actions, classes and conditions of the parser, and the parser accepts Examples.
func TestGrammar(t *testing.T) {
	var words []string
	for _, m := range regexp.MustCompile(`"([a-z]+)=?"`).FindAllStringSubmatch(Grammar, -1) {
		words = append(words, m[1])
	}
	want := append([]string{"rx", "tx", "both"}, strings.Split(actionNames, ", ")...)
	if !slices.Equal(words[:len(want)], want) {
		t.Errorf("%q, want %q", words, want)
	}
	_, err := parse("tx drop colour=red") // the error lists the conditions
	if list := strings.Join(words[len(want):], ", "); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "=", ""), "("+list+")") {
		t.Errorf("conditions %s, but: %v", list, err)
	}
	for class := range classes {
		if !strings.Contains(Grammar, class) {
			t.Errorf("class %s is missing", class)
		}
	}
	n := 0
	for line := range strings.Lines(Examples) {
		rule, _, _ := strings.Cut(strings.TrimSpace(line), "   ")
		if _, err := Parse(rule); err != nil {
			t.Error(err)
		}
		n++
	}
	if n < 5 {
		t.Errorf("%d examples", n)
	}
}
