package engine

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"roced.io/roced/drill/frame"
	"roced.io/roced/drill/script"
	"roced.io/roced/plugin/mono"
)

// options are those of the tester; a device of the tests has both ends exchanged.
func options() Options {
	return Options{Seed: 2, Caps: []string{"rc", "srq", "cm", "ipv4", "ipv6"}, Limit: 100 * time.Millisecond,
		Tester: netip.MustParseAddr("198.18.0.1"), DUT: netip.MustParseAddr("198.18.0.2"),
		Tester6: netip.MustParseAddr("fd00::1"), DUT6: netip.MustParseAddr("fd00::2"),
		TesterMAC: [6]byte{2, 0, 0, 0, 0, 1}, DUTMAC: [6]byte{2, 0, 0, 0, 0, 2}}
}

// input is a packet or a line of the agent that the device of a test sends at a time.
type input struct {
	at   mono.Time
	line string
}

// device answers all commands and sends its inputs at their times. It returns the result.
func device(t *testing.T, text string, inputs ...input) *Result {
	t.Helper()
	s, err := script.Parse("x.drill", "spec \"x\" must\n"+text)
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(s, options())
	if err != nil {
		return &Result{Outcome: BadScript, Text: err.Error()}
	}
	builder := opposite(t, e)
	now := mono.Time(0)
	for {
		for o, ok := e.Poll(now); ok; o, ok = e.Poll(now) {
			if o.Command != "" {
				e.Reply(now, answer(o.Command))
			}
		}
		if e.Done() {
			return e.Result()
		}
		next := e.NextTimeout()
		if len(inputs) > 0 && inputs[0].at <= next {
			i := inputs[0]
			inputs, now = inputs[1:], i.at
			if strings.HasPrefix(i.line, "cqe") || strings.HasPrefix(i.line, "event") || strings.HasPrefix(i.line, "ok") {
				e.Reply(now, i.line)
			} else {
				e.Frame(now, builder(i.line))
			}
			continue
		}
		if next == mono.Never {
			t.Fatal("the engine waits for ever")
		}
		now = next
		e.Advance(now)
	}
}

// opposite returns a function that builds the frames of the device.
func opposite(t *testing.T, e *Engine) func(line string) []byte {
	o := e.o
	o.Tester, o.DUT, o.Tester6, o.DUT6, o.TesterMAC, o.DUTMAC = o.DUT, o.Tester, o.DUT6, o.Tester6, o.DUTMAC, o.TesterMAC
	return func(line string) []byte {
		s, err := script.Parse("device", "spec \"x\" must\n< "+line)
		if err != nil {
			t.Fatal(err)
		}
		d, err := New(s, o)
		if err != nil {
			t.Fatal(err)
		}
		d.env["dut.num"], d.objects["dut"] = numberOf(testerQPN), true
		return d.build(&s.Body[0].(*script.Send).Packet).Bytes
	}
}

// answer is the answer of an agent to a command.
func answer(command string) string {
	switch {
	case strings.Contains(command, "size=77"):
		return "hello world"
	case strings.Contains(command, "size=78"):
		return "ok num=99999999999999999999"
	}
	switch verb, _, _ := strings.Cut(command, " "); verb {
	case "qp":
		return "ok num=5"
	case "mr":
		return "ok va=4096 lkey=1 rkey=2"
	case "check":
		return "ok data=000102"
	case "query":
		return "ok state=RTS retry=7"
	case "counter":
		return "ok value=3"
	case "destroy":
		return "error busy"
	case "pd":
		return "error no verb pd"
	}
	return "ok"
}

const ms = mono.Time(time.Millisecond)

// TestOutcomes runs scripts against devices that behave and misbehave.
func TestOutcomes(t *testing.T) {
	const qp = "qp = dut.qp rc\n"
	for name, c := range map[string]struct {
		script string
		inputs []input
		want   string // outcome and the beginning of the reason
	}{
		"match":                    {"> SEND_ONLY psn=P+1 ackreq!=1", []input{{1, "SEND_ONLY psn=P"}}, "failed: expected SEND_ONLY psn="},
		"passes":                   {"> SEND_ONLY psn=P", []input{{1, "SEND_ONLY psn=P"}}, "passed: "},
		"silent device":            {"> SEND_ONLY psn=P", nil, "failed: expected SEND_ONLY psn="},
		"another opcode":           {"> SEND_ONLY", []input{{1, "SEND_FIRST"}}, "failed: expected SEND_ONLY; the device sent SEND_FIRST"},
		"any opcode":               {"> ANY", []input{{1, "SEND_FIRST"}}, "passed: "},
		"another destination":      {"b = dut.qp rc peer=0x12\n> SEND_ONLY", []input{{1, "SEND_ONLY dst=0x12"}}, "failed: expected SEND_ONLY; the device sent SEND_ONLY dst=0x12"},
		"named destination":        {"> SEND_ONLY dst=0x12", []input{{1, "SEND_ONLY dst=0x12"}}, "passed: "},
		"range":                    {"> SEND_ONLY psn=P..P+2", []input{{1, "SEND_ONLY psn=P+2"}}, "passed: "},
		"beyond the range":         {"> SEND_ONLY psn=P..P+2", []input{{1, "SEND_ONLY psn=P+3"}}, "failed: expected"},
		"before the range":         {"> SEND_ONLY psn=P..P+2", []input{{1, "SEND_ONLY psn=P-1"}}, "failed: expected"},
		"not":                      {"> SEND_ONLY psn!=P", []input{{1, "SEND_ONLY psn=P"}}, "failed: expected SEND_ONLY psn!="},
		"any value":                {"> SEND_ONLY psn=* ackreq=1", []input{{1, "SEND_ONLY psn=9 ackreq=1"}}, "passed: "},
		"field differs":            {"> SEND_ONLY ackreq=1", []input{{1, "SEND_ONLY"}}, "failed: expected SEND_ONLY ackreq=1; the device sent SEND_ONLY"},
		"second field differs":     {"> SEND_ONLY psn=P ackreq=1", []input{{1, "SEND_ONLY psn=P"}}, "failed: expected SEND_ONLY psn="},
		"beyond a plain range":     {"> SEND_ONLY ip.dscp=1..2", []input{{1, "SEND_ONLY ip.dscp=3"}}, "failed: expected"},
		"payload":                  {"> SEND_ONLY payload=count(3)", []input{{1, "SEND_ONLY payload=count(3)"}}, "passed: "},
		"payload differs":          {"> SEND_ONLY payload=fill(3, 1)", []input{{1, "SEND_ONLY payload=count(3)"}}, "failed: expected"},
		"payload length":           {"> SEND_ONLY payload=3", []input{{1, "SEND_ONLY payload=count(4)"}}, "failed: expected"},
		"any credits":              {"> ACKNOWLEDGE syndrome=ACK", []input{{1, "ACKNOWLEDGE syndrome=7"}}, "passed: "},
		"NAK for ACK":              {"> ACKNOWLEDGE syndrome=ACK", []input{{1, "ACKNOWLEDGE syndrome=NAK_SEQ"}}, "failed: expected"},
		"exact NAK":                {"> ACKNOWLEDGE syndrome=NAK_SEQ", []input{{1, "ACKNOWLEDGE syndrome=NAK_INV"}}, "failed: expected"},
		"in order":                 {"> { SEND_FIRST ; SEND_LAST }", []input{{1, "SEND_LAST"}, {2, "SEND_FIRST"}}, "failed: expected SEND_FIRST"},
		"any order":                {"> any { SEND_FIRST ; SEND_LAST }", []input{{1, "SEND_LAST"}, {2, "SEND_FIRST"}}, "passed: "},
		"any order, once each":     {"> any { SEND_FIRST ; SEND_LAST }", []input{{1, "SEND_LAST"}, {2, "SEND_LAST"}}, "failed: expected SEND_FIRST"},
		"any order, a copy":        {"> any { SEND_FIRST ; SEND_LAST }", []input{{1, "SEND_LAST"}, {2, "SEND_LAST"}, {3, "SEND_FIRST"}}, "failed: expected SEND_FIRST"},
		"in a group may lack":      {"> { ? SEND_FIRST ; SEND_LAST }", []input{{1, "SEND_LAST"}}, "passed: "},
		"many":                     {"> + ACKNOWLEDGE psn=P..P+2 until psn=P+2", []input{{1, "ACKNOWLEDGE psn=P"}, {2, "ACKNOWLEDGE psn=P+2"}}, "passed: "},
		"many without the end":     {"> + ACKNOWLEDGE psn=P..P+2 until psn=P+2", []input{{1, "ACKNOWLEDGE psn=P"}}, "failed: expected + ACKNOWLEDGE"},
		"many, coalesced":          {"> + ACKNOWLEDGE psn=P..P+2 until psn=P+2", []input{{1, "ACKNOWLEDGE psn=P+2"}}, "passed: "},
		"optional comes":           {"> ? CNP\n> SEND_ONLY", []input{{1, "CNP"}, {2, "SEND_ONLY"}}, "passed: "},
		"optional comes twice":     {"> ? CNP\n> SEND_ONLY", []input{{1, "CNP"}, {2, "CNP"}, {3, "SEND_ONLY"}}, "failed: expected SEND_ONLY"},
		"optional is missing":      {"> ? CNP\n> SEND_ONLY", []input{{2, "SEND_ONLY"}}, "passed: "},
		"ignored":                  {"ignore CNP\n> SEND_ONLY", []input{{1, "CNP"}, {2, "CNP"}, {3, "SEND_ONLY"}}, "passed: "},
		"ignored, but expected":    {"ignore ANY\n> SEND_ONLY psn=2\nquiet 5ms", []input{{1, "SEND_ONLY psn=1"}, {2, "SEND_ONLY psn=2"}, {3, "SEND_ONLY psn=2"}}, "passed: "},
		"ignored, expected later":  {"ignore ANY\nwait 5ms\n> SEND_ONLY psn=2", []input{{1, "SEND_ONLY psn=1"}, {2, "SEND_ONLY psn=2"}}, "passed: "},
		"ignored while quiet":      {"ignore CNP\nquiet 5ms", []input{{1, "CNP"}, {1, "CNP"}, {1, "SEND_ONLY"}}, "failed: the device is not quiet; it sent SEND_ONLY"},
		"ignored, came before":     {"< SEND_ONLY dst=5\nwait 5ms\nignore CNP\n> SEND_ONLY", []input{{1, "CNP"}, {3 * ms, "CNP"}, {6 * ms, "SEND_ONLY"}}, "passed: "},
		"too late":                 {"< SEND_ONLY dst=5\n> SEND_ONLY within 2ms", []input{{3 * ms, "SEND_ONLY"}}, "failed: expected SEND_ONLY; the device sent nothing within 2ms"},
		"just in time":             {"< SEND_ONLY dst=5\n> SEND_ONLY within 2ms", []input{{2 * ms, "SEND_ONLY"}}, "passed: "},
		"refused as it must be":    {qp + "dut.destroy qp fails=1", nil, "passed: "},
		"too early":                {"a: < SEND_ONLY dst=5\n> SEND_ONLY after 2ms of a", []input{{ms, "SEND_ONLY"}}, "failed: SEND_ONLY dst=0x11 psn=0 came after 1ms, too early"},
		"late enough":              {"a: < SEND_ONLY dst=5\n> SEND_ONLY after 2ms of a", []input{{2 * ms, "SEND_ONLY"}}, "passed: "},
		"from a label":             {"a: < SEND_ONLY dst=5\nwait 5ms\n> SEND_ONLY within 6ms of a", []input{{6 * ms, "SEND_ONLY"}}, "passed: "},
		"after a pause":            {"wait 5ms\n> SEND_ONLY within 2ms", []input{{8 * ms, "SEND_ONLY"}}, "failed: expected SEND_ONLY; the device sent nothing"},
		"quiet":                    {"quiet 5ms", []input{{3 * ms, "SEND_ONLY"}}, "failed: the device is not quiet"},
		"quiet until the end":      {"quiet 5ms\nwait 5ms\n> SEND_ONLY", []input{{6 * ms, "SEND_ONLY"}}, "passed: "},
		"a packet too much":        {"wait 5ms", []input{{3 * ms, "SEND_ONLY"}}, "failed: the device sent a packet that the script does not expect"},
		"loop":                     {"for i in 0..2 { > SEND_ONLY psn=P+i }", []input{{1, "SEND_ONLY psn=P"}, {2, "SEND_ONLY psn=P+1"}, {3, "SEND_ONLY psn=P+2"}}, "passed: "},
		"loop, too few":            {"for i in 0..2 { > SEND_ONLY psn=P+i }", []input{{1, "SEND_ONLY psn=P"}, {2, "SEND_ONLY psn=P+1"}}, "failed: expected"},
		"empty loop":               {"for i in 3..2 { > SEND_ONLY psn=P+i }", nil, "passed: "},
		"refused, as it has to":    {qp + "dut.modify qp state=RTR fails=1", nil, "failed: dut.modify: the device does what it has to refuse"},
		"once more":                {"qp = dut.qp rc state=RTR\ndut.event qp COMM_EST\nwait 3ms", []input{{1, "event on=qp type=COMM_EST"}, {2, "event on=qp type=COMM_EST"}}, "failed: the device reports the event COMM_EST of qp"},
		"armed again":              {"qp = dut.qp rc state=RTR\ndut.event qp COMM_EST\ndut.modify qp state=RTS\nwait 3ms", []input{{1, "event on=qp type=COMM_EST"}, {2, "event on=qp type=COMM_EST"}}, "passed: "},
		"either, first":            {"either { > { SEND_FIRST ; SEND_LAST } } or { > SEND_ONLY psn=P }", []input{{1, "SEND_FIRST"}, {2, "SEND_LAST"}}, "passed: "},
		"either, second":           {"either { > { SEND_FIRST ; SEND_LAST } } or { > SEND_ONLY psn=P\n> CNP }\n> SEND_ONLY", []input{{1, "SEND_ONLY psn=P"}, {2, "CNP"}, {3, "SEND_ONLY"}}, "passed: "},
		"either, none":             {"either { > SEND_FIRST } or { > SEND_ONLY psn=P }", []input{{1, "SEND_ONLY psn=P+1"}}, "failed: expected SEND_FIRST or SEND_ONLY psn="},
		"either, not to end":       {"either { > { SEND_FIRST ; SEND_LAST } } or { > SEND_ONLY }", []input{{1, "SEND_FIRST"}, {2, "SEND_ONLY"}}, "failed: expected SEND_LAST"},
		"either, silent":           {"either { > SEND_FIRST } or { > SEND_ONLY within 2ms }", nil, "failed: expected the first packet of a branch; the device sent nothing within 100ms"},
		"either, too late":         {"< SEND_ONLY dst=5\neither { > SEND_FIRST } or { > SEND_ONLY within 2ms }", []input{{3 * ms, "SEND_ONLY"}}, "failed: SEND_ONLY dst=0x11 psn=0 came after 3ms, too late"},
		"either in a loop":         {"for i in 0..1 { either { > SEND_FIRST } or { > SEND_ONLY psn=P+i } }\n> CNP", []input{{1, "SEND_ONLY psn=P"}, {2, "SEND_FIRST"}, {3, "CNP"}}, "passed: "},
		"either, optional":         {"> ? CNP\neither { > SEND_FIRST } or { > SEND_ONLY }", []input{{1, "CNP"}, {2, "SEND_ONLY"}}, "passed: "},
		"field of a packet":        {"r: > READ_REQUEST\n< READ_RESP_ONLY dst=5 psn=r.psn\n> SEND_ONLY psn=r.psn+1", []input{{1, "READ_REQUEST psn=7"}, {2, "SEND_ONLY psn=8"}}, "passed: "},
		"broken frame":             {"> SEND_ONLY", []input{{1, "SEND_ONLY icrc=bad"}}, "failed: the device sent a broken frame: wrong ICRC"},
		"completion":               {qp + "dut.cqe qp SUCCESS wr=1 op=SEND", []input{{1, "cqe on=qp queue=send wr=1 status=SUCCESS op=SEND"}}, "passed: "},
		"completion, status":       {qp + "dut.cqe qp SUCCESS wr=1", []input{{1, "cqe on=qp queue=send wr=1 status=RETRY_EXC_ERR"}}, "failed: the completion is wr=1 RETRY_EXC_ERR, expected SUCCESS"},
		"completion, key":          {qp + "dut.cqe qp SUCCESS wr=1 len=5", []input{{1, "cqe on=qp queue=send wr=1 status=SUCCESS len=6"}}, "failed: the completion is wr=1 SUCCESS len=6, expected len=5"},
		"completion, order":        {qp + "dut.cqe qp SUCCESS wr=1", []input{{1, "cqe on=qp queue=send wr=2 status=SUCCESS"}, {2, "cqe on=qp queue=send wr=1 status=SUCCESS"}}, "failed: expected dut.cqe"},
		"completion, any error":    {qp + "dut.cqe qp ERROR wr=1", []input{{1, "cqe on=qp queue=send wr=1 status=WR_FLUSH_ERR"}}, "passed: "},
		"completion, imm":          {qp + "dut.cqe qp SUCCESS wr=1 len=4", []input{{1, "cqe on=qp queue=recv wr=1 status=SUCCESS len=4 imm=7"}}, "failed: the completion is wr=1 SUCCESS len=4 imm=7, which has imm= that the script does not name"},
		"completion, inv":          {qp + "dut.cqe qp SUCCESS wr=1 len=4", []input{{1, "cqe on=qp queue=recv wr=1 status=SUCCESS len=4 inv=7"}}, "failed: the completion is wr=1 SUCCESS len=4 inv=7, which has inv= that the script does not name"},
		"completion, no error":     {qp + "dut.cqe qp ERROR wr=1", []input{{1, "cqe on=qp queue=send wr=1 status=SUCCESS"}}, "failed: the completion is wr=1 SUCCESS, expected ERROR"},
		"two queues":               {qp + "dut.cqe qp SUCCESS wr=1\ndut.cqe qp SUCCESS wr=2", []input{{1, "cqe on=qp queue=recv wr=2 status=SUCCESS"}, {2, "cqe on=qp queue=send wr=1 status=SUCCESS"}}, "passed: "},
		"no completion":            {qp + "dut.cqe qp SUCCESS wr=1", nil, "failed: expected dut.cqe on=qp status=SUCCESS wr=1 within 100ms; the device reports nothing"},
		"a completion too much":    {qp + "wait 1ms", []input{{1, "cqe on=qp queue=send wr=1 status=SUCCESS"}}, "failed: qp has a completion that the script does not expect: wr=1 SUCCESS"},
		"event":                    {qp + "dut.event qp QP_FATAL", []input{{1, "event on=qp type=QP_FATAL"}}, "passed: "},
		"another event":            {qp + "dut.event qp QP_FATAL", []input{{1, "event on=qp type=COMM_EST"}}, "failed: expected dut.event on=qp type=QP_FATAL within 100ms; the device reports [event COMM_EST]"},
		"event, too early":         {qp + "a: < SEND_ONLY\ndut.event qp QP_FATAL after 2ms of a", []input{{ms, "event on=qp type=QP_FATAL"}}, "failed: the event QP_FATAL came after 1ms, too early"},
		"event, late enough":       {qp + "a: < SEND_ONLY\ndut.event qp QP_FATAL after 2ms of a", []input{{2 * ms, "event on=qp type=QP_FATAL"}}, "passed: "},
		"event, came before":       {qp + "a: < SEND_ONLY\nwait 5ms\ndut.event qp QP_FATAL after 2ms of a", []input{{ms, "event on=qp type=QP_FATAL"}}, "failed: the event QP_FATAL came after 1ms, too early"},
		"completion, too early":    {qp + "a: < SEND_ONLY\ndut.cqe qp SUCCESS wr=1 after 2ms of a", []input{{ms, "cqe on=qp queue=send wr=1 status=SUCCESS"}}, "failed: the completion wr=1 SUCCESS came after 1ms, too early"},
		"completion, late":         {qp + "a: < SEND_ONLY\ndut.cqe qp SUCCESS wr=1 after 2ms of a", []input{{2 * ms, "cqe on=qp queue=send wr=1 status=SUCCESS"}}, "passed: "},
		"an event too much":        {qp + "wait 5ms", []input{{1, "event on=qp type=QP_FATAL"}}, "failed: the device reports the event QP_FATAL of qp, which the script does not expect"},
		"event of an error":        {qp + "dut.cqe qp ERROR wr=1", []input{{1, "event on=qp type=QP_FATAL"}, {2, "cqe on=qp queue=send wr=1 status=LOC_PROT_ERR"}}, "passed: "},
		"event of a NAK":           {qp + "< SEND_ONLY psn=0\n> ACKNOWLEDGE", []input{{1, "event on=qp type=QP_REQ_ERR"}, {2, "ACKNOWLEDGE psn=0 syndrome=NAK_INV"}}, "passed: "},
		"event of RTR":             {"qp = dut.qp rc state=RTR\nwait 5ms", []input{{1, "event on=qp type=COMM_EST"}}, "passed: "},
		"event of each connection": {"qp = dut.qp rc state=RTR\nwait 3ms\ndut.modify qp state=RTR\nwait 3ms", []input{{1, "event on=qp type=COMM_EST"}, {4 * ms, "event on=qp type=COMM_EST"}}, "passed: "},
		"event of RTS":             {qp + "wait 5ms", []input{{1, "event on=qp type=COMM_EST"}}, "failed: the device reports the event COMM_EST"},
		"event of another one":     {"a = dut.qp rc state=RTR\nqp = dut.qp rc\nwait 5ms", []input{{1, "event on=qp type=COMM_EST"}}, "failed: the device reports the event COMM_EST"},
		"last WQE, no error":       {"s = dut.srq\nqp = dut.qp rc srq=s\nwait 5ms", []input{{1, "event on=qp type=QP_LAST_WQE_REACHED"}}, "failed: the device reports the event QP_LAST_WQE_REACHED"},
		"last WQE":                 {"s = dut.srq\nqp = dut.qp rc srq=s\ndut.modify qp state=ERR\nwait 5ms", []input{{1, "event on=qp type=QP_LAST_WQE_REACHED"}}, "passed: "},
		"notification":             {"q = dut.cq\ndut.arm q solicited=1\ndut.event q COMPLETION", []input{{1, "event on=q type=COMPLETION"}}, "passed: "},
		"notified too often":       {"q = dut.cq\ndut.arm q\nwait 5ms", []input{{1, "event on=q type=COMPLETION"}}, "failed: the device reports the event COMPLETION of q"},
		"depth":                    {"c = dut.connect\ndut.event c CONNECT_RESPONSE resources=2 depth=3", []input{{1, "event on=c type=CONNECT_RESPONSE private= resources=2 depth=3"}}, "passed: "},
		"another depth":            {"c = dut.connect\ndut.event c CONNECT_RESPONSE resources=2 depth=3", []input{{1, "event on=c type=CONNECT_RESPONSE private= resources=2 depth=2"}}, "failed: depth of CONNECT_RESPONSE is 2, expected 3"},
		"memory":                   {"mr = dut.mr size=8\ndut.check mr[0:3] data=count(3)", nil, "passed: "},
		"memory differs":           {"mr = dut.mr size=8\ndut.check mr[0:3] data=fill(3, 1)", nil, "failed: mr[0:3] holds 000102, expected 010101; the first difference is at byte 0"},
		"query":                    {qp + "dut.query qp state=RTS retry=7", nil, "passed: "},
		"query differs":            {qp + "dut.query qp state=ERR", nil, "failed: state of qp is RTS, expected ERR"},
		"counter":                  {"dut.counter x min=3 max=3", nil, "passed: "},
		"counter, too few":         {"dut.counter x min=4", nil, "failed: counter x has grown by 3"},
		"counter, too many":        {"dut.counter x max=2", nil, "failed: counter x has grown by 3"},
		"refused":                  {qp + "dut.destroy qp", nil, "failed: dut.destroy: the device answers: busy"},
		"not applicable":           {"> SEND_ONLY", nil, "failed"},
		"no verb":                  {"p = dut.pd", nil, "broken: the agent answers: no verb pd"},
		"too long a frame":         {"< SEND_ONLY dst=5 payload=rand(70000)", nil, "bad script: the frame has 70058 bytes; no link takes more than 65554"},
		"too many options":         {"< SEND_ONLY dst=5 ip.options=rand(44)", nil, "bad script: IP options need IPv4 and a multiple of four bytes up to 40"},
		"another answer":           {"a = dut.cq size=77 fails=1", nil, `broken: the agent answers "hello world" to dut.cq; it must begin with ok or error`},
		"no number":                {"a = dut.cq size=78", nil, "broken: the agent answers num=99999999999999999999 to dut.cq, which is not a number of 64 bits"},
		"no answer expected":       {"wait 1ms", []input{{1, "ok"}}, "broken: the agent answers without a command"},
	} {
		t.Run(name, func(t *testing.T) {
			r := device(t, c.script, c.inputs...)
			if got := fmt.Sprintf("%v: %s", r.Outcome, r.Text); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// TestWrongScripts: names are checked before the run, values when a statement needs them. Errors say where.
func TestWrongScripts(t *testing.T) {
	for text, want := range map[string]string{
		"> SEND_ONLI":                   "x.drill:2:3: there is no packet SEND_ONLI",
		"> SEND_ONLY psm=1":             "x.drill:2:13: there is no field psm",
		"dut.sent qp":                   "x.drill:2:1: there is no verb dut.sent",
		"for i in 0..1 { dut.sent qp }": "x.drill:2:17: there is no verb dut.sent",
		"> ? CNP within 1ms":            "x.drill:2:9: an optional packet has no time: it may come at any time from here on",
		"< SEND_ONLY psn=x":             "x.drill:2:17: x is not defined before this line",
		"< SEND_ONLY msn=1":             "SEND_ONLY has no field msn",
		"< SEND_ONLY psn=1..2":          "a packet to send has one value for psn",
		"< SEND_ONLY dst=1 payload=7":   "payload: 0x7 are not bytes",
		"dut.send qp wr=1":              "x.drill:2:10: there is no object qp before this line",
		"qp = dut.qp rc mtuu=1":         `dut.qp has no key mtuu; did you mean "mtu"?; it has access,`,
		"dut.qp rc":                     "dut.qp creates an object: write NAME = dut.qp",
		"x = dut.query qp":              "dut.query creates no object",
		"x = 7[1:2]":                    "0x7 is neither a memory region nor bytes",
		"x = 1 / 0":                     "division by zero",
		"x = rand(1, 2)":                "rand has 1 arguments, not 2",
		"qp = dut.qp rc\ndut.cqe qp SUCCESS solicited=1": "dut.cqe has no key solicited",
		"x = rant(1)":              "there is no function rant",
		"x = count(3)\ny = x[2:9]": "[2:9] is outside of 3 bytes",
		"either { a: > CNP } or { a: > SEND_ONLY ; b: > CNP }\n< SEND_ONLY psn=a.psn imm=b.psn": "b.psn is not defined before this line",
		"> SEND_ONLY within 1ms of nothing":                                                     "there is no label nothing before this line",
	} {
		if r := device(t, text); r.Outcome != BadScript || !strings.Contains(r.Text, want) {
			t.Errorf("%q: %v: %s, want %s", text, r.Outcome, r.Text, want)
		}
	}
}

// TestRetry: a device with slack may need time until a query has the expected answer, but no more than the slack. A device
// without slack has none.
func TestRetry(t *testing.T) {
	for _, c := range []struct {
		slack   time.Duration
		ready   mono.Time // when the device answers as expected
		outcome Outcome
	}{{10 * time.Millisecond, 8 * ms, Passed}, {10 * time.Millisecond, 15 * ms, Failed}, {0, ms, Failed}} {
		s, err := script.Parse("x", "spec \"x\" must\nqp = dut.qp rc\ndut.query qp state=ERR")
		if err != nil {
			t.Fatal(err)
		}
		o := options()
		o.Slack = c.slack
		e, err := New(s, o)
		if err != nil {
			t.Fatal(err)
		}
		now := mono.Time(0)
		for !e.Done() {
			for out, ok := e.Poll(now); ok; out, ok = e.Poll(now) {
				switch {
				case strings.HasPrefix(out.Command, "qp"):
					e.Reply(now, "ok num=5")
				case now < c.ready:
					e.Reply(now, "ok state=RTS")
				default:
					e.Reply(now, "ok state=ERR")
				}
			}
			if !e.Done() {
				now = e.NextTimeout()
				e.Advance(now)
			}
		}
		if r := e.Result(); r.Outcome != c.outcome || len(r.Log) > 4 {
			t.Errorf("%+v: %+v", c, r)
		}
	}
}

// TestHungAgent: an agent that does not answer ends the run.
func TestHungAgent(t *testing.T) {
	s, err := script.Parse("x", "spec \"x\" must\nqp = dut.qp rc")
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(s, options())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := e.Poll(0); !ok {
		t.Fatal("no command")
	}
	e.Poll(e.NextTimeout())
	if r := e.Result(); r == nil || r.Outcome != Broken || r.Text != `the agent does not answer "qp name=qp type=rc" within 20s` {
		t.Errorf("%+v", r)
	}
}

// TestNeed: a script whose capability the device lacks is not applicable and touches nothing.
func TestNeed(t *testing.T) {
	s, err := script.Parse("x", "spec \"x\" must\nneed ud\n< SEND_ONLY dst=1")
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(s, options())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := e.Poll(0); ok || e.Result().Outcome != NotApplicable || e.Result().Text != "the device has no ud" {
		t.Errorf("%+v", e.Result())
	}
}

// TestAckTimeout: a result has the shortest acknowledgement timeout that the script sets.
func TestAckTimeout(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"qp = dut.qp rc psn=P rqpsn=Q":                                            0,
		"qp = dut.qp rc psn=P rqpsn=Q timeout=0":                                  0,
		"a = dut.qp rc timeout=9 rqpsn=Q\nb = dut.qp rc timeout=8 rqpsn=Q peer=2": 4096 << 8,
		"qp = dut.qp rc timeout=10 rqpsn=Q\ndut.modify qp timeout=12":             4096 << 10,
	} {
		if r := device(t, text); r.Outcome != Passed || r.AckTimeout != want {
			t.Errorf("%s: %v, %s, %v, want %v", text, r.Outcome, r.Text, r.AckTimeout, want)
		}
	}
}

// TestEarly: a result says by how much the device was too early.
func TestEarly(t *testing.T) {
	if r := device(t, "a: < SEND_ONLY dst=5\n> SEND_ONLY after 3ms of a", input{2 * ms, "SEND_ONLY"}); r.Outcome != Failed || r.Early != time.Millisecond {
		t.Errorf("%v: %s, %v", r.Outcome, r.Text, r.Early)
	}
}

// TestWrap: odd seeds begin close to the wrap, even ones do not.
func TestWrap(t *testing.T) {
	for seed := range uint64(20) {
		o := options()
		o.Seed = seed
		e, err := New(&script.Script{}, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"P", "Q"} {
			if psn := e.env[name].num; psn >= 1<<24 || seed%2 == 1 && psn < 1<<24-8 {
				t.Errorf("seed %d: %s=%#x", seed, name, psn)
			}
		}
	}
}

// TestShortFrames: a device may send frames that end anywhere. Each is a failure or no RoCEv2, never a crash.
func TestShortFrames(t *testing.T) {
	s, err := script.Parse("x", "spec \"x\" must\nquiet 1ms")
	if err != nil {
		t.Fatal(err)
	}
	for _, packet := range []string{"WRITE_ONLY payload=count(9)", "EXT_SEND_ONLY payload=count(9)", "UD_SEND_ONLY", "ATOMIC_ACK", "READ_REQUEST vlan.id=3"} {
		e, err := New(s, options())
		if err != nil {
			t.Fatal(err)
		}
		whole := opposite(t, e)(packet)
		for n := range len(whole) {
			if e, err = New(s, options()); err != nil {
				t.Fatal(err)
			}
			e.Poll(0)
			e.Frame(1, whole[:n])
			for _, x := range e.log {
				if x.Frame != nil {
					_ = x.Frame.String()
				}
			}
			if e.Advance(2 * ms); e.Result() == nil {
				t.Errorf("%s, %d bytes: no result", packet, n)
			}
		}
	}
}

// TestApplicable: a script that needs more than device, link and run have does not run, and the reason says what.
func TestApplicable(t *testing.T) {
	for text, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"need rc\nqp = dut.qp rc":               {func(*Options) {}, ""},
		"need rc, mw\nwait 1ms":                 {func(*Options) {}, "the device has no mw"},
		"need rc\ns = dut.mw":                   {func(*Options) {}, "the device has no mw"},
		"need rc\nfor i in 0..1 { w = dut.mw }": {func(*Options) {}, "the device has no mw"},
		"qp = dut.qp uc":                        {func(*Options) {}, "the device has no uc"},
		"need ipv4\nwait 1ms":                   {func(o *Options) { o.IP = 6 }, "it needs IPv4, the run is by IPv6 (--ip 6)"},
		"need ipv6\nwait 1ms":                   {func(o *Options) { o.IP = 4 }, "it needs IPv6, the run is by IPv4 (--ip 4)"},
		"need rc\nwait 1ms":                     {func(o *Options) { o.Caps = []string{"rc", "ipv6"} }, "the device has no IPv4 address 198.18.0.2; run by IPv6 (--ip 6)"},
		"need tagged\nwait 1ms":                 {func(*Options) {}, "it needs a run in a VLAN (--vlan)"},
		"need untagged\nwait 1ms":               {func(o *Options) { o.VLAN = 7 }, "it needs a link without a VLAN, the run is in VLAN 7"},
		"qp = dut.qp rc mtu=4096":               {func(o *Options) { o.MTU, o.MTULimit = 1024, "the link is short" }, "it needs the path MTU 4096, but the link is short"},
		"qp = dut.qp rc\nwait 1ms":              {func(o *Options) { o.MTU, o.MTULimit = 512, "the link is short" }, "it needs the path MTU 1024, but the link is short"},
		"qp = dut.qp rc mtu=512":                {func(o *Options) { o.MTU = 512 }, ""},
		"< SEND_ONLY dst=5 payload=count(960)":  {func(o *Options) { o.LinkMTU = 1000 }, "it sends a packet of 1004 bytes, but the tester's interface has the MTU 1000"},
	} {
		s, err := script.Parse("x.drill", "spec \"x\" must\n"+text)
		if err != nil {
			t.Fatal(err)
		}
		o := options()
		c.change(&o)
		e, err := New(s, o)
		if err != nil {
			t.Fatal(err)
		}
		e.Poll(0)
		switch r := e.Result(); {
		case c.want == "" && r != nil && r.Outcome != Passed, c.want != "" && (r == nil || r.Outcome != NotApplicable || r.Text != c.want):
			t.Errorf("%s: %+v, want %q", text, r, c.want)
		}
	}
}

// TestPath: packets of a run in a VLAN have its tag, commands the run's IP version, VLAN and service level.
func TestPath(t *testing.T) {
	for text, want := range map[string]string{
		"qp = dut.qp rc":                     "qp name=qp type=rc ip=6 vlan=7 sl=3",
		"qp = dut.qp rc sl=1":                "qp name=qp type=rc sl=1 ip=6 vlan=7",
		"qp = dut.qp rc vlan=9":              "qp name=qp type=rc vlan=9 ip=6 sl=3",
		"a = dut.ah":                         "ah name=a ip=6 vlan=7 sl=3",
		"m = dut.mr size=1":                  "mr name=m size=1",
		"< SEND_ONLY dst=5":                  "7",
		"< SEND_ONLY dst=5 vlan.pcp=3":       "7",
		"< SEND_ONLY dst=5 vlan.id=9":        "9",
		"< SEND_ONLY dst=5 vlan=none":        "none",
		"< SEND_ONLY dst=5 vlan=none psn=P":  "none",
		"< SEND_ONLY dst=5 vlan.id=0":        "0",
		"< SEND_ONLY dst=tester.vlan psn=P":  "7",
		"qp = dut.qp rc state=INIT peer=0x5": "qp name=qp type=rc peer=5 state=INIT ip=6 vlan=7 sl=3",
	} {
		s, err := script.Parse("x.drill", "spec \"x\" must\n"+text)
		if err != nil {
			t.Fatal(err)
		}
		o := options()
		o.IP, o.VLAN, o.SL = 6, 7, 3
		e, err := New(s, o)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := e.Poll(0)
		tag := "none"
		if f, err := frame.Parse(got.Frame); err == nil {
			if id, ok := f.Get("vlan.id"); ok {
				tag = fmt.Sprint(id)
			}
		}
		if got.Command != want && (got.Frame == nil || tag != want) {
			t.Errorf("%s: %q, tag %s, want %s", text, got.Command, tag, want)
		}
	}
}
