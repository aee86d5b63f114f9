package engine

import (
	"fmt"
	"strings"
	"testing"

	"roced.io/roced/drill/frame"
	"roced.io/roced/drill/script"
	"roced.io/roced/plugin/mono"
)

// TestRules runs one script against devices that violate a rule of all scripts. The script itself permits the packet.
func TestRules(t *testing.T) {
	const (
		asks = "qp = dut.qp rc mtu=256 rqpsn=Q\n< SEND_ONLY psn=Q ackreq=1\n"
		gap  = "qp = dut.qp rc mtu=256 rqpsn=Q\n< SEND_ONLY psn=Q+1 ackreq=1\n"
		ends = "> + ANY until ackreq=1\n"
	)
	for name, c := range map[string]struct {
		script, packets, want string
	}{
		"right":                    {asks, "ACKNOWLEDGE psn=Q syndrome=ACK msn=1", ""},
		"version":                  {asks, "ACKNOWLEDGE psn=Q syndrome=ACK msn=1 tver=1", "the transport header version is 1"},
		"reserved 6":               {asks, "ACKNOWLEDGE psn=Q syndrome=ACK msn=1 bth.res6=1", "reserved bits of the BTH are not 0"},
		"reserved 7":               {asks, "ACKNOWLEDGE psn=Q syndrome=ACK msn=1 bth.res7=0x10", "reserved bits of the BTH are not 0"},
		"reserved 7 of MRC":        {asks, "MRC_SACK bth.res7=0x30", ""},
		"partition":                {asks, "ACKNOWLEDGE psn=Q syndrome=ACK msn=1 pkey=0x7fff", "the P_Key is 0x7fff"},
		"another partition":        {"qp = dut.qp rc rqpsn=Q pkey_index=1\n< SEND_ONLY psn=Q\n", "ACKNOWLEDGE psn=Q syndrome=ACK msn=1 pkey=0x7fff", ""},
		"VLAN":                     {asks, "ACKNOWLEDGE psn=Q syndrome=ACK msn=1 vlan.id=7", "the VLAN is 7, the path has 0"},
		"priority alone":           {asks, "ACKNOWLEDGE psn=Q syndrome=ACK msn=1 vlan.id=0 vlan.pcp=5", ""},
		"TTL":                      {asks, "ACKNOWLEDGE psn=Q syndrome=ACK msn=1 ip.ttl=0", "the TTL is 0"},
		"pad of nothing":           {asks, "READ_REQUEST pad=1", "a packet that needs no padding has 1 bytes of it"},
		"pad":                      {asks, "SEND_ONLY payload=count(3)", ""},
		"later PSN":                {asks, "ACKNOWLEDGE psn=Q+1 syndrome=ACK msn=1", "it acknowledges PSN"},
		"earlier PSN":              {asks, "ACKNOWLEDGE psn=Q-1 syndrome=ACK msn=0", ""},
		"PSN behind a gap":         {gap, "ACKNOWLEDGE psn=Q+1 syndrome=ACK msn=1", "it acknowledges PSN"},
		"response behind a gap":    {gap, "READ_RESP_MIDDLE psn=Q+1 payload=count(256)", "it acknowledges PSN"},
		"NAK of a gap":             {gap, "ACKNOWLEDGE psn=Q syndrome=NAK_SEQ msn=0", ""},
		"later NAK":                {gap, "ACKNOWLEDGE psn=Q+1 syndrome=NAK_SEQ msn=0", "a NAK has PSN"},
		"solicited response":       {asks, "ACKNOWLEDGE psn=Q syndrome=ACK msn=1 se=1", "has the solicited event bit"},
		"solicited SEND":           {asks, "SEND_ONLY se=1", ""},
		"solicited first":          {asks, "SEND_FIRST se=1 payload=count(256)", "has the solicited event bit"},
		"solicited WRITE":          {asks, "WRITE_ONLY se=1", "has the solicited event bit"},
		"response asks":            {asks, "ACKNOWLEDGE psn=Q syndrome=ACK msn=1 ackreq=1", "asks for an acknowledgement"},
		"congestion":               {asks, "ACKNOWLEDGE psn=Q syndrome=ACK msn=1 becn=1", "no packet to the device was marked"},
		"congestion ahead":         {asks, "SEND_ONLY fecn=1", "no packet to the device was marked"},
		"echo":                     {asks + "< SEND_ONLY psn=Q+1 ip.ecn=3\n", "ACKNOWLEDGE psn=Q syndrome=ACK msn=1 becn=1", ""},
		"echo of the BTH":          {asks + "< SEND_ONLY psn=Q+1 fecn=1\n", "ACKNOWLEDGE psn=Q syndrome=ACK msn=1 becn=1", ""},
		"repeated":                 {asks, "SEND_ONLY psn=5 payload=count(8);SEND_ONLY psn=5 payload=count(8) ackreq=1", ""},
		"other data":               {asks, "SEND_ONLY psn=5 payload=count(8);SEND_ONLY psn=5 payload=fill(8, 1)", "it has PSN 5 of a request with other fields or data"},
		"other address":            {asks, "READ_REQUEST psn=5 va=8;READ_REQUEST psn=5 va=16", "it has PSN 5 of a request with other fields or data"},
		"broken packet":            {"qp = dut.qp rc rqpsn=Q\n< SEND_ONLY psn=Q ackreq=1 icrc=bad\n", "ACKNOWLEDGE psn=Q syndrome=ACK msn=0", "it acknowledges PSN"},
		"ACK after a NAK":          {asks, "ACKNOWLEDGE psn=Q syndrome=NAK_INV msn=0;ACKNOWLEDGE psn=Q syndrome=ACK msn=1", "it acknowledges PSN"},
		"READ":                     {"qp = dut.qp rc rqpsn=Q mtu=256\n< READ_REQUEST psn=Q len=600\n", "READ_RESP_LAST psn=Q+2 syndrome=ACK msn=1 payload=count(88)", ""},
		"behind a READ":            {"qp = dut.qp rc rqpsn=Q mtu=256\n< READ_REQUEST psn=Q len=600\n", "READ_RESP_LAST psn=Q+3 syndrome=ACK msn=1 payload=count(88)", "it acknowledges PSN"},
		"message that is not":      {asks, "ACKNOWLEDGE psn=Q syndrome=ACK msn=2", "the MSN is 2, but the tester has sent 1 messages"},
		"message not ended":        {"qp = dut.qp rc rqpsn=Q\n< SEND_FIRST psn=Q payload=count(1024)\n", "ACKNOWLEDGE psn=Q syndrome=ACK msn=1", "the MSN is 1, but the tester has sent 0 messages"},
		"MSN goes back":            {asks + "< SEND_ONLY psn=Q+1\n", "ACKNOWLEDGE psn=Q syndrome=ACK msn=1;ACKNOWLEDGE psn=Q+1 syndrome=ACK msn=0", "the MSN goes back from 1 to 0"},
		"MSN of a replay":          {asks + "< SEND_ONLY psn=Q+1\n", "ACKNOWLEDGE psn=Q+1 syndrome=ACK msn=2;ACKNOWLEDGE psn=Q syndrome=ACK msn=1", ""},
		"reconnected":              {asks + "dut.modify qp state=RESET\ndut.modify qp state=RTR rqpsn=Q+9\n", "ACKNOWLEDGE psn=Q+9 syndrome=ACK msn=0", "it acknowledges PSN"},
		"short first":              {asks, "SEND_FIRST payload=count(252)", "a packet that is not the last one has 252 bytes, the path MTU is 256"},
		"first":                    {asks, "SEND_FIRST payload=count(256)", ""},
		"long only":                {asks, "SEND_ONLY payload=count(257)", "a packet has 257 bytes, the path MTU is 256"},
		"empty last":               {asks, "SEND_LAST", "the last packet of several has no payload"},
		"length of a WRITE":        {asks, "WRITE_ONLY len=5 payload=count(4)", "a WRITE of one packet has 4 bytes and the DMA length 5"},
		"replaced packet":          {"qp = dut.qp rc rqpsn=Q\n< SEND_ONLY psn=Q pkey=0x8123\n< READ_REQUEST psn=Q va=1 rkey=1 len=2048\n", "READ_RESP_LAST psn=Q+1 syndrome=ACK msn=1 payload=count(1024)", ""},
		"of an extended transport": {"qp = dut.qp rc profile=irn rqpsn=Q\n", "ACKNOWLEDGE psn=Q+5 syndrome=ACK msn=5", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inputs := []input{}
			for i, p := range strings.Split(c.packets+";SEND_ONLY psn=0x100 ackreq=1 payload=count(4)", ";") {
				inputs = append(inputs, input{ms + mono.Time(i), p})
			}
			r := device(t, c.script+ends, inputs...)
			if c.want == "" && r.Outcome != Passed || c.want != "" && (r.Outcome != Failed || !strings.Contains(r.Text, c.want)) {
				t.Errorf("%v: %s, want %q", r.Outcome, r.Text, c.want)
			}
		})
	}
}

// TestReservedOf: the reserved bits of a DETH and a FETH are 0.
func TestReservedOf(t *testing.T) {
	e, err := New(&script.Script{}, options())
	if err != nil {
		t.Fatal(err)
	}
	for packet, want := range map[string]string{"UD_SEND_ONLY": "DETH", "FLUSH": "FETH", "EXT_SEND_ONLY x.sack=1": "extension header"} {
		f, err := frame.Parse(opposite(t, e)(packet))
		if err != nil {
			t.Fatal(err)
		}
		const bthEnd, fixed = 14 + 20 + 8 + 12, 4
		at := map[string]int{"DETH": bthEnd + 4, "FETH": bthEnd, "extension header": bthEnd + fixed}[want]
		if got := f.Reserved(); got != "" {
			t.Errorf("%s: %s", packet, got)
		}
		if f.Bytes[at] |= 1; f.Reserved() != want {
			t.Errorf("%s: %q, want %s", packet, f.Reserved(), want)
		}
	}
}

// TestReservedOfMRC: the reserved bits of MRC's headers are 0, too. The packets have one such byte behind the BTH.
func TestReservedOfMRC(t *testing.T) {
	e, err := New(&script.Script{}, options())
	if err != nil {
		t.Fatal(err)
	}
	for packet, reserved := range map[string]int{"MRC_SACK": 12, "MRC_NACK": 17, "MRC_PROBE": 6, "MRC_ENDPOINT_REQUEST": 8, "MRC_ENDPOINT_RESPONSE": 4,
		"MRC_WRITE_ONLY m.ts=1": 6} {
		f, err := frame.Parse(opposite(t, e)(packet))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Reserved(); got != "" {
			t.Errorf("%s: %s", packet, got)
		}
		if f.Bytes[14+20+8+12+reserved] |= 1; f.Reserved() == "" {
			t.Errorf("%s: reserved bits are not checked", packet)
		}
	}
}

// TestCompletionRules: a completion has the operation of its request, and immediate data only of a packet.
func TestCompletionRules(t *testing.T) {
	const (
		send  = "qp = dut.qp rc\ndut.send qp wr=1\n"
		twice = send + "dut.write qp wr=1\n"
	)
	for _, c := range []struct{ script, report, want string }{
		{send, "queue=send op=SEND", ""},
		{send, "queue=send op=RDMA_WRITE", "its operation is another one"},
		{twice, "queue=send op=RDMA_WRITE", ""},
		{send, "queue=recv op=SEND", "its operation is another one"},
		{send, "queue=recv op=RECV imm=0", "it has immediate data"},
		{send + "< SEND_ONLY_IMM imm=0\n", "queue=recv op=RECV imm=0", ""},
	} {
		r := device(t, c.script+"wait 1ms\ndut.cqe qp SUCCESS wr=1", input{1, "cqe on=qp wr=1 status=SUCCESS " + c.report})
		if c.want == "" && r.Outcome != Passed || c.want != "" && !strings.Contains(r.Text, c.want) {
			t.Errorf("%s: %v: %s", c.report, r.Outcome, r.Text)
		}
	}
}

// TestNotes: choices of a device fail no script, and are told once.
func TestNotes(t *testing.T) {
	const asks = "qp = dut.qp rc rqpsn=Q\n< SEND_ONLY psn=Q ackreq=1\n"
	for packets, want := range map[string]string{
		"ACKNOWLEDGE psn=Q syndrome=ACK msn=1":                                                      "",
		"ACKNOWLEDGE psn=Q syndrome=ACK msn=1 mig=0;ACKNOWLEDGE psn=Q syndrome=NAK_SEQ msn=1 mig=0": "MigReq",
		"CNP mig=1": "MigReq of others",
		"ACKNOWLEDGE psn=Q syndrome=ACK msn=1 udp.sport=4791":                                           "UDP source port",
		"ACKNOWLEDGE psn=Q syndrome=ACK msn=1;ACKNOWLEDGE psn=Q syndrome=NAK_SEQ msn=1 udp.sport=50000": "constant UDP source port",
		"ACKNOWLEDGE psn=Q syndrome=ACK msn=1 ip.dscp=5":                                                "DSCP of packets",
		"CNP ip.dscp=48": "DSCP of CNPs",
		"ACKNOWLEDGE psn=Q syndrome=ACK msn=1 ip.ttl=63":                            "TTL",
		"ACKNOWLEDGE psn=Q syndrome=7 msn=1":                                        "credits",
		"ACKNOWLEDGE psn=Q syndrome=ACK msn=1;ACKNOWLEDGE psn=Q syndrome=ACK msn=1": "unrequested ACK",
	} {
		inputs := []input{}
		for i, p := range strings.Split(packets, ";") {
			inputs = append(inputs, input{1 + mono.Time(i), p})
		}
		r := device(t, asks+"ignore ANY dst=0x11\nwait 5ms", inputs...)
		rules := []string{}
		for _, n := range r.Notes {
			rules = append(rules, n.Rule)
		}
		if got := strings.Join(rules, ", "); r.Outcome != Passed || got != want {
			t.Errorf("%s: %v: %s: %q, want %q", packets, r.Outcome, r.Text, got, want)
		}
	}
}

// TestOtherTraffic: frames of other stations, of the device for them, and of other queue pairs do not count. Failures name their
// number.
func TestOtherTraffic(t *testing.T) {
	others := []string{"SEND_ONLY eth.src=7", "SEND_ONLY eth.dst=7", `SEND_ONLY ip.src=addr("198.18.0.9")`, `SEND_ONLY ip.dst=addr("198.18.0.9")`,
		"SEND_ONLY dst=0x99", "SEND_ONLY eth.src=7 icrc=bad", "SEND_ONLY eth.src=7 tver=3", "SEND_ONLY dst=0x99 tver=3"}
	inputs := []input{}
	for i, p := range others {
		inputs = append(inputs, input{1 + mono.Time(i), p})
	}
	last := input{1 + mono.Time(len(others)), "SEND_ONLY"}
	if r := device(t, "> SEND_ONLY\nquiet 5ms", append(inputs, last)...); r.Outcome != Passed || r.Others != len(others) {
		t.Errorf("%v: %s, %d others", r.Outcome, r.Text, r.Others)
	}
	want := fmt.Sprintf("the device sent nothing within 100ms; %d frames of other traffic did not count", len(others))
	if r := device(t, "> SEND_ONLY", inputs...); r.Outcome != Failed || !strings.HasSuffix(r.Text, want) {
		t.Errorf("%v: %s", r.Outcome, r.Text)
	}
	r := device(t, "> SEND_ONLY\nquiet 5ms", inputs[0], last)
	shown := 0
	for _, x := range r.Log {
		if strings.HasPrefix(x.Text, "other traffic: SEND_ONLY") {
			shown++
		}
	}
	if shown != 1 {
		t.Errorf("the log has %d frames of other traffic", shown)
	}
	if r := device(t, "> SEND_ONLY dst=0x99", input{1, "SEND_ONLY dst=0x99"}); r.Outcome != Passed {
		t.Errorf("a queue pair that the script names: %v: %s", r.Outcome, r.Text)
	}
}

// TestRepeatedIsTimed: a run that fails by a retransmission, or after a quiet statement, may have failed because the device was late.
func TestRepeatedIsTimed(t *testing.T) {
	for _, c := range []struct {
		pause, second string
		want          bool
	}{{"", "SEND_ONLY psn=5", true}, {"", "SEND_ONLY psn=6", false}, {"quiet 1us\n", "SEND_ONLY psn=6", true}} {
		r := device(t, "qp = dut.qp rc rqpsn=Q\n> SEND_ONLY psn=5\n"+c.pause+"> SEND_ONLY psn=7\n", input{ms, "SEND_ONLY psn=5"}, input{2 * ms, c.second})
		if r.Outcome != Failed || r.Timed != c.want {
			t.Errorf("%v: %v: %s, timed %v", c, r.Outcome, r.Text, r.Timed)
		}
	}
}
