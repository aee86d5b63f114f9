package script

import (
	"strings"
	"testing"
	"time"
)

const good = `about "The requester resumes at the PSN of a NAK."
spec "IBTA 9.7.5" must
need rc, wrap
mr = dut.mr 4096 fill="count"   # a comment
qp = dut.qp "rc" mtu=1024 psn=P
post: dut.send qp wr=1 mr[0:2500] mr[:4] mr[4:]
> SEND_FIRST dst=0x11 psn=P payload=mr[0:1024] within 20ms of post
nak: < ACKNOWLEDGE dst=qp.num psn=P+1*2 syndrome=NAK_SEQ+0 msn!=0
> { a: SEND_MIDDLE psn=P+1 ; SEND_LAST psn=* } after 1ms within 5ms of nak
> any { SEND_LAST
SEND_ONLY psn=P..P+2 }
>? CNP
>+ ACKNOWLEDGE psn=P..P+2 until psn=P+2 msn=1 within 1s
ignore CNP
for i in 0..2*(3-1) { wait 5us ; quiet 10ms }
D = rand(12, 0)
dut.cqe qp wr=1 within 20ms
`

func TestParse(t *testing.T) {
	s, err := Parse("x.drill", good)
	if err != nil {
		t.Fatal(err)
	}
	if !s.Must || s.Spec != "IBTA 9.7.5" || strings.Join(s.Need, " ") != "rc wrap" || s.About == "" {
		t.Errorf("%+v", s)
	}
	if n := len(s.Body); n != 13 {
		t.Fatalf("%d statements", n)
	}
	first := s.Body[3].(*Expect)
	if d := first.Time.Within.(*Duration); d.Value != 20*time.Millisecond || first.Time.Of != "post" || first.Time.Pos != (Pos{7, 48}) || len(first.Packets[0].Fields) != 3 {
		t.Errorf("%+v", first)
	}
	group := s.Body[5].(*Expect)
	if group.Any || len(group.Packets) != 2 || group.Packets[0].Label != "a" || group.Time.After.(*Duration).Value != time.Millisecond ||
		group.Packets[1].Fields[0].Value != nil {
		t.Errorf("%+v", group)
	}
	many := s.Body[8].(*Expect).Packets[0]
	if !many.Many || len(many.Until) != 2 || many.Fields[0].Last == nil {
		t.Errorf("%+v", many)
	}
	if f := s.Body[10].(*For); len(f.Body) != 2 || f.Pos != (Pos{15, 1}) {
		t.Errorf("%+v", f)
	}
	if c := s.Body[2].(*Call); c.Label != "post" || c.Verb != "send" || len(c.Args) != 4 || len(c.Keys) != 1 {
		t.Errorf("%+v", c)
	}
}

func TestErrors(t *testing.T) {
	const head = "spec \"x\" must\n"
	for text, want := range map[string]string{
		"":                                             `1:1: the script names no rule: begin with spec "IBTA 9.7.1" must`,
		"spec \"x\" maybe":                             "1:10: maybe instead of must or policy",
		head + "bla bla":                               `2:1: bla begins no statement: expected "<", ">", "dut.", a name with "=", wait, quiet, ignore, print, for or either`,
		head + "> SEND_ONLY psn":                       "2:16: the end of the line instead of =",
		head + "> SEND_ONLY psn=":                      "2:17: the end of the line instead of a value",
		head + "> SEND_ONLY psn=1 ]":                   "2:19: unexpected ]",
		head + "x = 99zz":                              "2:5: 99zz is neither a number of up to 64 bits nor a duration such as 20ms",
		head + "x = \"abc":                             "2:5: the string does not end on this line",
		head + "x = (1":                                "2:7: the end of the line instead of )",
		head + "x = @":                                 "2:5: unexpected character '@'",
		head + "> { }":                                 "2:1: a group has at least one packet; labels belong to its packets",
		head + "> SEND_ONLY until psn=1":               `2:13: only a "+" packet has until`,
		head + "a: wait 5ms":                           "2:4: only packets and verbs have labels",
		head + "wait 5":                                "2:6: 5 instead of a duration such as 20ms",
		head + "for i in 0..1 {":                       "3:1: } is missing",
		head + "either { > CNP }":                      "2:1: either has two branches or more: either { ... } or { ... }",
		head + "either { wait 1ms }":                   `2:8: a branch begins with a packet of the device, "> PACKET"`,
		head + "either { > ? CNP }":                    `2:8: a branch begins with a packet of the device, "> PACKET"`,
		head + "either { > CNP } or CNP":               "2:21: CNP instead of {",
		head + "x = " + strings.Repeat("(", 100) + "1": "2:13: nested more than 50 deep",
		head + "x = 1" + strings.Repeat("+1", 20_000):  "2:20006: the statement has more than 10000 operators; assign parts to names",
		head + "x = P" + strings.Repeat("[:]", 20_000): "2:30007: the statement has more than 10000 operators; assign parts to names",
		head + "x = " + strings.Repeat("1 ", 3<<20):    "2:4194296: the script has more than 2097152 words and signs up to here; split it",
	} {
		if _, err := Parse("f", text); err == nil || err.Error() != "f:"+want {
			t.Errorf("%.60q: %v, want %s", text, err, want)
		}
	}
}

// FuzzParse: no text makes the parser fail other than with an *Error.
func FuzzParse(f *testing.F) {
	f.Add(good)
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := Parse("x", text); (s == nil) == (err == nil) {
			t.Error(s, err)
		}
	})
}
