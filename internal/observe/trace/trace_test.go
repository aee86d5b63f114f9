package trace

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/flor/engine"
	"roced.io/roced/internal/base/chart"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/reorder"
)

const stored = "testdata/mp-rdma.jsonl"

func load(t testing.TB) *Trace {
	t.Helper()
	f, err := os.Open(stored)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tr, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// The pictures of a stored trace are whole, and the one in docs is of it.
func TestDraw(t *testing.T) {
	dir := t.TempDir()
	files, err := load(t).Draw(filepath.Join(dir, "new"), false)
	if err != nil || len(files) < 4 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		got, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for d := xml.NewDecoder(bytes.NewReader(got)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", f, err)
			}
		}
		if bytes.Contains(got, []byte("NaN")) || bytes.Contains(got, []byte("Inf")) {
			t.Errorf("%s has a place that is none", f)
		}
		if filepath.Base(f) != "trace-sequence.svg" {
			continue
		}
		want, err := os.ReadFile("../../../docs/curves/trace-sequence.svg")
		if err != nil || !bytes.Equal(want, got) {
			t.Errorf("docs/curves/trace-sequence.svg is not that of %s: run make curves (%v)", stored, err)
		}
		for _, name := range []string{">sent (", ">retransmitted (", ">cumulative ACK (", ">SACK ("} {
			if !bytes.Contains(got, []byte(name)) {
				t.Errorf("no %q in %s", name, f)
			}
		}
	}
}

// A recorder writes what Read reads, and counts what finds no room.
func TestRecorder(t *testing.T) {
	r := newRecorder(4)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	r.Begin(100, Start{Time: time.Unix(1, 0).UTC(), NIC: "rxe_a", QPN: 17, Profile: "irn", MTU: 1024})
	psn := bth.MakePSN(5)
	r.Trace(100, qp.TraceEvent{Kind: qp.TraceLimits, Window: 4096, Rate: ^uint64(0)})
	r.Trace(110, qp.TraceEvent{Kind: qp.TraceSent, PSN: psn, Span: 1, Length: 7, Retransmission: true})
	if err := r.Drain(enc); err != nil {
		t.Fatal(err)
	}
	f := reorder.Feedback{Expected: psn, Gap: true, HasSACK: true, SACK: psn.Next(), ECE: true}
	for _, e := range []qp.TraceEvent{
		{Kind: qp.TraceAck, Feedback: f, RTT: 9},
		{Kind: qp.TraceReceived, PSN: psn, Verdict: reorder.Held, Degree: 3, Response: true},
		{Kind: qp.TraceTimeout, PSN: psn, Lost: 2},
		{Kind: qp.TraceFootprint, Bytes: 30},
		{Kind: qp.TraceFootprint, Bytes: 31},
	} {
		r.Trace(120, e)
	}
	if err := r.Finish(enc); err != nil {
		t.Fatal(err)
	}
	want := `{"t":0,"event":"start","start":{"time":"1970-01-01T00:00:01Z","nic":"rxe_a","qpn":17,"dest_qpn":0,"profile":"irn","path_mtu":1024,"sq_psn":0,"rq_psn":0}}
{"t":0,"event":"limits","window":4096}
{"t":10,"event":"sent","psn":5,"length":7,"rtx":true}
{"t":20,"event":"ack","psn":5,"sack":6,"nak":true,"ece":true,"rtt_ns":9}
{"t":20,"event":"received","response":true,"psn":5,"verdict":"held","degree":3}
{"t":20,"event":"timeout","psn":5,"lost":2}
{"t":20,"event":"footprint","bytes":30}
{"t":0,"event":"end","lost":1,"events":6}
`
	if b.String() != want {
		t.Errorf("written:\n%swant:\n%s", &b, want)
	}
	tr, err := Read(&b)
	if err != nil || tr.Lost != 1 || len(tr.Records) != 6 || tr.Start.QPN != 17 {
		t.Errorf("read: %+v, %v", tr, err)
	}
	r.Closed()
	r.Closed()
	<-r.Done()
}

// A recorder that is told so reads what packets say to Flor, before they are another's.
func TestRecorderReadsFlor(t *testing.T) {
	h := engine.Header{Kind: engine.KindGrant, RN: 3, GN: 4, Message: 9, Key: 5, Addr: 6}
	ack := engine.Ack{QPN: 18, Delay: 7}
	ack.AddWrite(engine.MakeImm(false, 9, 2))
	payload := make([]byte, engine.HeaderLen)
	h.Put(payload)
	write := bth.Packet{Opcode: bth.TransportUC | bth.OpWriteLastImm, Imm: uint32(engine.MakeImm(true, 9, 1))}
	send := bth.Packet{Opcode: bth.TransportUC | bth.OpSendOnly, Payload: payload}
	datagram := bth.Packet{Opcode: bth.TransportUD | bth.OpSendOnly, Payload: ack.Append(nil)}
	want := map[bool]string{
		true: `{"t":0,"event":"sent","psn":0,"flor":{"kind":"write","hint":true,"message":9,"chunk":1}}
{"t":0,"event":"sent","psn":0,"flor":{"kind":"grant","rn":3,"gn":4,"message":9,"key":5,"addr":6}}
{"t":0,"event":"received","psn":0,"verdict":"in-order","flor":{"kind":"ack","ack":{"qpn":18,"delay_ns":7,"wqes":[{"message":9,"chunk":2}]}}}
`,
		false: `{"t":0,"event":"sent","psn":0}
{"t":0,"event":"sent","psn":0}
{"t":0,"event":"received","psn":0,"verdict":"in-order"}
`}
	for _, flor := range []bool{true, false} {
		r := newRecorder(4)
		if flor {
			r.ReadFlor()
		}
		r.Begin(0, Start{})
		r.Trace(0, qp.TraceEvent{Kind: qp.TraceSent, Packet: &write})
		r.Trace(0, qp.TraceEvent{Kind: qp.TraceSent, Packet: &send})
		r.Trace(0, qp.TraceEvent{Kind: qp.TraceReceived, Packet: &datagram})
		clear(payload)
		var b bytes.Buffer
		if err := r.Drain(json.NewEncoder(&b)); err != nil {
			t.Fatal(err)
		}
		if _, got, _ := strings.Cut(b.String(), "\n"); got != want[flor] {
			t.Errorf("written:\n%swant:\n%s", got, want[flor])
		}
		h.Put(payload)
	}
}

// Events may be put in while others are written.
func TestRecorderRace(t *testing.T) {
	const events = 10_000
	r := newRecorder(64)
	done := make(chan struct{})
	r.Begin(0, Start{QPN: 1})
	go func() {
		defer close(done)
		for i := range events {
			r.Trace(mono.Time(i), qp.TraceEvent{Kind: qp.TraceFootprint, Bytes: i + 1})
		}
	}()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for more := true; more; {
		select {
		case <-done:
			more = false
		default:
		}
		if err := r.Drain(enc); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Finish(enc); err != nil {
		t.Fatal(err)
	}
	tr, err := Read(&b)
	if err != nil || len(tr.Records)+int(tr.Lost) != events {
		t.Errorf("%d events and %d lost of %d, %v", len(tr.Records), tr.Lost, events, err)
	}
	for i, x := range tr.Records {
		if int(x.T)+1 != x.Bytes || i > 0 && x.T <= tr.Records[i-1].T {
			t.Fatalf("event %d: %+v", i, x)
		}
	}
}

const begin = `{"event":"start","start":{"qpn":1}}` + "\n"

// A file is hostile.
func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "does not begin",
		`{"event":"end"}`:          "does not begin",
		"frob":                     "line 1",
		begin + `{"event":"frob"}`: `line 2: unknown event "frob"`,
		begin + `{"event":"` + strings.Repeat("frob", 100) + `"}`:              `line 2: unknown event "` + strings.Repeat("frob", 10) + `"`,
		begin + `{"event":"sent"}`:                                             "sent without a PSN",
		begin + `{"event":"ack"}`:                                              "ack without a PSN",
		begin + `{"event":"end","t":-1}`:                                       "negative",
		begin + strings.Repeat("x", maxLine+1):                                 "line 2: longer than 65536 bytes: name a file",
		begin + `{"event":"limits","t":9223372036854775807}`:                   "out of range",
		begin + `{"event":"limits","t":2}` + "\n" + `{"event":"limits","t":1}`: "time goes back",
		begin: "ends early",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
}

// FuzzRead: whatever can be read can be drawn and written.
func FuzzRead(f *testing.F) {
	f.Add(begin + `{"t":5,"event":"sent","psn":16777215}` + "\n" + `{"t":6,"event":"sent","psn":0,"rtx":true}`)
	f.Add(begin + `{"t":36028797018963968,"event":"limits","window":18446744073709551615,"rate":1}`)
	f.Add(begin + `{"event":"ack","psn":4294967295,"sack":7,"rtt_ns":1}` + "\n" + `{"t":1,"event":"footprint"}`)
	f.Fuzz(func(t *testing.T, text string) {
		tr, err := Read(strings.NewReader(text))
		if tr == nil {
			if err == nil {
				t.Fatal("neither a trace nor an error")
			}
			return
		}
		for _, p := range tr.pictures() {
			if svg := p.svg(tr.subtitle(), chart.Time(tr.until(), pauses(tr.instants()))); bytes.Contains(svg, []byte("NaN")) {
				t.Fatalf("%s", svg)
			}
		}
		if err := tr.WriteCSV(io.Discard); err != nil {
			t.Fatal(err)
		}
	})
}

// CSV has a column for each name and a line for each event.
func TestCSV(t *testing.T) {
	tr := load(t)
	var b bytes.Buffer
	if err := tr.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(lines) != len(tr.Records)+1 || len(lines[0]) != len(columns) {
		t.Errorf("%d lines, %v", len(lines), err)
	}
}

// PSNs go on where their 24 bits begin anew, and back.
func TestUnwrap(t *testing.T) {
	var u unwrapper
	for i, c := range []struct {
		psn  uint32
		want float64
	}{{0xfffffe, 0}, {0xffffff, 1}, {0, 2}, {0xffffff, 1}, {5, 7}, {0xfffff0, 0}} {
		if got := u.unwrap(c.psn); got != c.want {
			t.Errorf("%d: %v, want %v", i, got, c.want)
		}
	}
}

// A recorder for looking takes so many events between two looks, and counts the others.
func TestThinRecorder(t *testing.T) {
	r := NewThinRecorder(5)
	r.Begin(0, Start{NIC: "a"})
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for range 2 {
		for range 100 {
			r.Trace(1, qp.TraceEvent{Kind: qp.TraceFootprint})
		}
		if err := r.Drain(enc); err != nil {
			t.Fatal(err)
		}
	}
	if written, lost := r.Counts(); written != 8+7 || lost != 92+93 {
		t.Errorf("%d events, %d lost", written, lost)
	}
	if err := r.Finish(enc); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), `{"t":1,"event":"skipped","lost":92}`+"\n"); n != 1 {
		t.Errorf("%d times it says what it has left out:\n%s", n, &b)
	}
	if tr, err := Read(&b); err != nil || len(tr.Records) != 15 || tr.Lost != 185 {
		t.Errorf("read again: %+v, %v", tr, err)
	}
}
