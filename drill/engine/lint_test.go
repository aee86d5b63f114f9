package engine

import (
	"fmt"
	"strings"
	"testing"

	"roced.io/roced/drill/script"
	"roced.io/roced/plugin/mono"
)

// TestLint: all errors of a script are found before it runs, with suggestions.
func TestLint(t *testing.T) {
	const qp = "need rc\nqp = dut.qp rc\n"
	for text, want := range map[string]string{
		"need rc, atomics\nwait 1ms":               `2:1: there is no capability atomics; did you mean "atomic"?`,
		"> SEND_ONLY psn=1 psn=2":                  "2:19: psn has two values",
		"> SEND_ONLY psn!=1 psn!=2":                "",
		"< SEND_ONLY dst=5 psn=1 psn=2":            "2:25: psn has two values",
		"qp = dut.qp rc mtu=256 mtu=512":           "2:24: mtu has two values",
		"> WRITE_ONLY dmalen=5":                    `2:14: there is no field dmalen; did you mean "len"?`,
		"> SEND_ONLY ttl=5":                        `2:13: there is no field ttl; did you mean "ip.ttl"?`,
		"> SEND_ONY":                               `2:3: there is no packet SEND_ONY; did you mean "SEND_ONLY"?`,
		qp + "dut.event qp QP_FATLA":               `4:14: there is no type QP_FATLA; did you mean "QP_FATAL"?`,
		qp + "dut.cqe qp SUCCES wr=1":              `4:12: there is no status SUCCES; did you mean "SUCCESS"?`,
		qp + "dut.cqe qp SUCCESS op=SENT":          `4:20: there is no op SENT; did you mean "SEND"?`,
		qp + "dut.query qp state=RTX":              `4:14: there is no state RTX; did you mean "RTR"?`,
		"qp = dut.qp rd":                           `2:13: there is no type rd; did you mean "rc"?`,
		"m = dut.mr size=1 access=lx":              "2:19: access=lx: must be none or letters of l, w, r, a, b, f and z",
		"m = dut.mr size=1 access=none fill=count": "",
		"m = dut.mr fill=counts":                   `2:12: there is no fill counts; did you mean "count"?`,
		qp + "dut.sned qp wr=1":                    `4:1: there is no verb dut.sned; did you mean "dut.send"?`,
		"> SEND_ONLY va=1":                         "2:13: SEND_ONLY has no field va",
		"> ANY va=1":                               "",
		"> SEND_ONLY psn=0x1000000":                "2:13: psn=0x1000000: the field has 24 bits",
		"> MRC_WRITE_ONLY t.time=5 m.ts=1":         "",
		"> EXT_SEND_ONLY x.sack=1":                 "",
		"< UD_SEND_ONLY dst=1 payload=cm(REQ) req.psn=1 private=be32(1)": "",
		"x = P + q":                                               "2:9: q is not defined before this line",
		"a: > SEND_ONLY\nx = a.psn + a.ps":                        `3:13: there is no field ps; did you mean "psn"?`,
		"a: > SEND_ONLY\nx = a.time - a.time":                     "",
		"post: < SEND_ONLY dst=5\n> SEND_ONLY within 1ms of pots": `3:13: there is no label pots before this line; did you mean "post"?`,
		"x = 1+5/(2-2)":                                           "2:8: division by zero",
		"x = P/0":                                                 "",
		"x = fill(17000000, 1)":                                   "2:5: fill: 0x1036640 is not a number of bytes up to 16777216",
		qp + "m = dut.mr size=8\ndut.send qp m[0:4] imm=0x100000000": "5:20: imm=0x100000000: the key has 32 bits",
		qp + "dut.modify qp state=RTS timeout=256":                   "4:25: timeout=0x100: the key has 8 bits",
		"x = be32(1<<32)":                "2:11: be32=0x100000000: the argument has 32 bits",
		"x = fill(4, 256)":               "2:13: fill=0x100: the argument has 8 bits",
		`x = be32("1")`:                  "2:10: be32: 1 is not a number",
		"x = be64(1ms)":                  "2:10: be64: 1ms is not a number",
		"x = fill(4, be32(1))":           "2:13: fill: 4 bytes 00000001 is not a number",
		"x = hex(5)":                     "2:9: hex: 0x5 is not text in quotation marks",
		"x = rand(\"1\")":                "2:10: rand: 1 is not a number",
		`x = hex("zz")`:                  "2:5: hex: encoding/hex: invalid byte: U+007A 'z'",
		"x = P+(1ms+1)":                  "2:11: 1ms + 0x1: neither numbers nor durations",
		"dut.send":                       "2:1: dut.send needs an object",
		"qp = dut.qp":                    "2:1: dut.qp: the type is missing",
		"x = conut(3)":                   `2:5: there is no function conut; did you mean "count"?`,
		"> SEND_ONLY psn=x\n> SEND_ONLI": `2:17: x is not defined before this line|3:3: there is no packet SEND_ONLI; did you mean "SEND_ONLY"?`,
		"for i in 0..x { y = i }\nz = y": "2:13: x is not defined before this line",
		"m = dut.mr size=8\nx = m.va + m.lkey + m.rkey\ny = m.key": `4:5: m.key is not defined before this line; did you mean "m.lkey"?`,
		"print \"x\" y":        "2:11: y is not defined before this line",
		"> SEND_ONLY icrc=bad": "",
	} {
		s, err := script.Parse("x", "spec \"x\" must\n"+text)
		if err != nil {
			t.Fatal(text, err)
		}
		var got []string
		for _, err := range Lint(s) {
			got = append(got, strings.TrimPrefix(err.Error(), "x:"))
		}
		if g := strings.Join(got, "|"); g != want {
			t.Errorf("%q:\n%s, want\n%s", text, g, want)
		}
	}
}

// TestDurations: computed times bound packets, and the report has measured times.
func TestDurations(t *testing.T) {
	const sent = "a: < SEND_ONLY dst=5\nn = 3\nb: > SEND_ONLY "
	for _, c := range []struct {
		bounds string
		at     int
		want   string
	}{
		{"after 250us<<n within 4*(250us<<n) of a", 1, "failed: SEND_ONLY dst=0x11 psn=0 came after 1ms, too early: at least 2ms are needed"},
		{"after 250us<<n within 4*(250us<<n) of a", 2, "passed: "},
		{"after 250us<<n within 4*(250us<<n) of a", 8, "passed: "},
		{"after 250us<<n within 4*(250us<<n) of a", 9, "failed: expected SEND_ONLY; the device sent nothing within 8ms"},
		{"within n*1ms of a", 3, "passed: "},
		{"within 9ms/n of a", 4, "failed: expected SEND_ONLY; the device sent nothing within 3ms"},
		{"within 9ms/3ms of a", 1, "bad script: 0x3 is not a duration such as 20ms"},
		{"within n of a", 1, "bad script: 0x3 is not a duration such as 20ms"},
		{"within 1ms-2ms of a", 1, "bad script: -1ms is not a duration such as 20ms"},
		{"within n*1ms*1ms of a", 1, "bad script: 3ms * 1ms: neither numbers nor durations"},
	} {
		r := device(t, sent+c.bounds+"\nprint \"gap\" b.time-a.time\nprint \"count\" n+1\nwait n*1ms", input{mono.Time(c.at) * ms, "SEND_ONLY"})
		if got := fmt.Sprintf("%v: %s", r.Outcome, r.Text); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s at %d ms: %s, want %s", c.bounds, c.at, got, c.want)
		}
		if r.Outcome != Passed || !strings.HasPrefix(c.bounds, "after") {
			continue
		}
		var got []string
		for _, m := range r.Measured {
			got = append(got, fmt.Sprintf("%d %s %s %v", m.Pos.Line, m.Text, m.Value, m.Time))
		}
		at := fmt.Sprintf("%dms", c.at)
		if want := fmt.Sprintf("4 SEND_ONLY after %s %s|5 gap %s %s|6 count 4 0s", at, at, at, at); strings.Join(got, "|") != want {
			t.Errorf("measured %q, want %q", got, want)
		}
	}
}

// TestPrivate: private data of the connection manager is compared by its first bytes.
func TestPrivate(t *testing.T) {
	const rep = "UD_SEND_ONLY dst=0x11 payload=cm(REP) rep.guid=7 rep.ack_delay=3 private=hex(\"0a0b\")"
	for text, want := range map[string]string{
		"> UD_SEND_ONLY mad.attr=REP private=hex(\"0a0b\") rep.guid=7 rep.ack_delay=3": "passed: ",
		"> UD_SEND_ONLY mad.attr=REP private=hex(\"0a0c\")":                            "failed: expected UD_SEND_ONLY",
		"> UD_SEND_ONLY mad.attr=REP private!=hex(\"0b\")":                             "passed: ",
	} {
		if r := device(t, text, input{1, rep}); !strings.HasPrefix(fmt.Sprintf("%v: %s", r.Outcome, r.Text), want) {
			t.Errorf("%s: %v: %s, want %s", text, r.Outcome, r.Text, want)
		}
	}
	for text, want := range map[string]string{
		"private=hex(\"0a\")": "passed: ",
		"private=hex(\"0b\")": "failed: REJECTED has the private data 0a0b, expected 0b; the first difference is at byte 0",
		"":                    "passed: ",
	} {
		r := device(t, "c = dut.connect port=1\ndut.event c REJECTED "+text, input{1, "event on=c type=REJECTED private=0a0b"})
		if !strings.HasPrefix(fmt.Sprintf("%v: %s", r.Outcome, r.Text), want) {
			t.Errorf("%s: %v: %s, want %s", text, r.Outcome, r.Text, want)
		}
	}
}
