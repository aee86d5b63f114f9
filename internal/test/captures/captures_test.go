// Package captures tests all programs that read captures on the same files: decode, watch, analyze and record give the same answers.
package captures

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/drill/record"
	"roced.io/roced/internal/observe/check"
	"roced.io/roced/internal/observe/decode"
	"roced.io/roced/internal/observe/flow"
	"roced.io/roced/internal/observe/pcapng"
	"roced.io/roced/internal/observe/watch"
)

// answers are those of the programs about a capture.
type answers struct {
	decoded  decode.Stats
	watched  flow.Totals
	flows    []flow.Flow
	analyzed *check.Report
	script   string // of queue pair 0x11
	refusal  error  // of record
}

// ask runs all programs on a capture.
func ask(t *testing.T, file []byte, ignoreICRC bool) (a answers) {
	t.Helper()
	var err error
	if a.decoded, err = decode.Stream(bytes.NewReader(file), new(bytes.Buffer), decode.Options{}); err != nil {
		t.Fatal(err)
	}
	x := flow.New(flow.Options{IgnoreICRC: ignoreICRC})
	if err := watch.Replay(t.Context(), bytes.NewReader(file), &watch.Reporter{}, x, 0, func(*watch.Report) error { return nil }); err != nil {
		t.Fatal(err)
	}
	a.watched, a.flows = x.Totals(), x.Flows()
	if a.analyzed, err = check.Read(bytes.NewReader(file), check.Options{IgnoreICRC: ignoreICRC}); err != nil {
		t.Fatal(err)
	}
	a.script, a.refusal = record.Script(bytes.NewReader(file), "test", record.Device{QPN: 0x11, IgnoreICRC: ignoreICRC})
	return a
}

// messages and retransmitted are those of all flows.
func (a *answers) messages() (n, retransmitted uint64) {
	for i := range a.flows {
		n += a.flows[i].Messages
		retransmitted += a.flows[i].Requests.Retransmitted + a.flows[i].Responses.Retransmitted
	}
	return n, retransmitted
}

// String summarises the answers.
func (a answers) String() string {
	d, w := &a.decoded, &a.watched
	n, again := a.messages()
	packets := a.analyzed.Checks[0]
	text := fmt.Sprintf("decode: %d frames, %d RoCE, %d other%v, %d truncated, %d malformed, %d bad ICRC\n", d.Frames, d.RoCE, d.Skipped, d.Others, d.Truncated, d.Malformed, d.BadICRC)
	text += fmt.Sprintf("watch: %d packets, %d other%v, %d truncated, %d malformed, %d bad ICRC, %d messages, %d retransmitted\n",
		w.Packets, w.Other, w.Others, w.Cut, w.Malformed, w.BadICRC, n, again)
	text += fmt.Sprintf("analyze: %s: %s, violated %v\n", packets.Verdict, packets.Text, a.analyzed.Violated())
	if a.refusal != nil {
		return text + "record: " + a.refusal.Error()
	}
	_, script, _ := strings.Cut(a.script, "need ")
	return text + "record: " + strings.ReplaceAll(strings.TrimSpace(script), "\n", "; ")
}

// TestFiles: the answers about captures of the field.
func TestFiles(t *testing.T) {
	const (
		head  = "record: rc; mr = dut.mr size=4096 fill=count; qp = dut.qp rc mtu=1024 psn=P rqpsn=Q; "
		recv  = head + "dut.recv qp wr=1 mr[0:4096]; < SEND_ONLY psn=Q ackreq=1 payload=count(16); "
		three = recv + "< WRITE_FIRST psn=Q+1 va=mr.va rkey=mr.rkey len=0x1000 payload=count(1024); dut.cqe qp SUCCESS wr=1"
		whole = "decode: 3 frames, 3 RoCE, 0 other, 0 truncated, 0 malformed, 0 bad ICRC\n" +
			"watch: 3 packets, 0 other, 0 truncated, 0 malformed, 0 bad ICRC, 1 messages, 0 retransmitted\n" +
			"analyze: ok: 3 RoCEv2 packets, 0 others, violated false\n" + three
		cut = "decode: 3 frames, 3 RoCE, 0 other, 2 truncated, 0 malformed, 0 bad ICRC\n" +
			"watch: 3 packets, 0 other, 2 truncated, 0 malformed, 0 bad ICRC, 1 messages, 0 retransmitted\n" +
			"analyze: undecidable: 2 packets are truncated; their ICRC cannot be checked, violated false\n" +
			"record: frame 3 is truncated inside its headers, so that its fields are unknown: capture at least 256 bytes of each frame"
	)
	for name, want := range map[string]string{
		"vxlan.pcap": whole, "erspan2.pcap": whole, "v6hbh.pcap": whole, "snap64.pcap": cut, "trunc_noorig.pcap": cut,
		"ng_unsup.pcapng": "decode: 3 frames, 2 RoCE, 1 other (1 link type 220), 0 truncated, 0 malformed, 0 bad ICRC\n" +
			"watch: 2 packets, 1 other (1 link type 220), 0 truncated, 0 malformed, 0 bad ICRC, 1 messages, 0 retransmitted\n" +
			"analyze: ok: 2 RoCEv2 packets, 1 others (1 link type 220), violated false\n" + three,
		"v4frag.pcap": "decode: 2 frames, 0 RoCE, 2 other (2 IP fragments), 0 truncated, 0 malformed, 0 bad ICRC\n" +
			"watch: 0 packets, 2 other (2 IP fragments), 0 truncated, 0 malformed, 0 bad ICRC, 0 messages, 0 retransmitted\n" +
			"analyze: no case: 2 other frames (2 IP fragments), violated false\n" +
			"record: no packet goes to queue pair 0x11; the capture has no RoCEv2 packets (2 IP fragments)",
		"two_conn.pcap": "decode: 14 frames, 14 RoCE, 0 other, 0 truncated, 0 malformed, 0 bad ICRC\n" +
			"watch: 14 packets, 0 other, 0 truncated, 0 malformed, 0 bad ICRC, 7 messages, 0 retransmitted\n" +
			"analyze: ok: 14 RoCEv2 packets, 0 others, violated false\n" +
			head + "< WRITE_ONLY psn=Q ackreq=1 va=mr.va rkey=mr.rkey len=0x10 payload=count(16); > ACKNOWLEDGE psn=Q syndrome=ACK; " +
			"< WRITE_ONLY psn=Q+1 ackreq=1 va=mr.va rkey=mr.rkey len=0x10 payload=count(16); > ACKNOWLEDGE psn=Q+1 syndrome=ACK",
		"many_comments.pcapng.gz": "decode: 1 frames, 1 RoCE, 0 other, 0 truncated, 0 malformed, 0 bad ICRC\n" +
			"watch: 1 packets, 0 other, 0 truncated, 0 malformed, 0 bad ICRC, 1 messages, 0 retransmitted\n" +
			"analyze: ok: 1 RoCEv2 packets, 0 others, violated false\n" +
			head + "dut.recv qp wr=1 mr[0:4096]; < SEND_ONLY psn=Q payload=count(16); dut.cqe qp SUCCESS wr=1",
	} {
		if got := ask(t, load(t, name), false).String(); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}

func load(t *testing.T, name string) []byte {
	t.Helper()
	file, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// TestCut: all programs read a file whose writer was killed up to the same byte, and refuse one without a complete packet.
func TestCut(t *testing.T) {
	file := load(t, "two_conn.pcap")
	for size := range len(file) {
		b := file[:size]
		d, err := decode.Stream(bytes.NewReader(b), io.Discard, decode.Options{})
		var last watch.Report
		watched := watch.Replay(t.Context(), bytes.NewReader(b), &watch.Reporter{}, flow.New(flow.Options{}), 0, func(r *watch.Report) error { last = *r; return nil })
		r, analyzed := check.Read(bytes.NewReader(b), check.Options{})
		script, recorded := record.Script(bytes.NewReader(b), "test", record.Device{QPN: 0x11})
		if d.Frames == 0 {
			if want := size != 24; (err != nil) != want || (watched != nil) != want || (analyzed != nil) != want || recorded == nil {
				t.Fatalf("%d bytes: %v, %v, %v, %v", size, err, watched, analyzed, recorded)
			}
			continue
		}
		if err = errors.Join(err, watched, analyzed, recorded); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		note := ""
		if d.Cut > 0 {
			note = fmt.Sprintf("Recorded from test; the capture is cut at byte %d, inside a packet: queue pair", d.Cut)
		}
		if last.Cut != d.Cut || r.Cut != d.Cut || r.Frames != d.Frames || strings.Contains(script, " is cut ") != (note != "") || !strings.Contains(script, note) {
			t.Fatalf("%d bytes: %+v, %+v, %+v\n%s", size, d, last, r, script)
		}
	}
}

// TestLinkType: the programs name an unknown link type, and those that they know.
func TestLinkType(t *testing.T) {
	file := load(t, "two_conn.pcap")
	binary.LittleEndian.PutUint32(file[20:], 9999)
	a := ask(t, file, false)
	for _, text := range []string{a.decoded.Others.Instead(), a.watched.Others.Instead(), a.analyzed.Checks[0].Text, a.refusal.Error()} {
		if want := " (14 link type 9999); link type 9999 is not known, only 1 (Ethernet), 0 and 108"; !strings.Contains(text, want) {
			t.Errorf("%s\nlacks %s", text, want)
		}
	}
	var links []pcapng.LinkType
	for _, s := range regexp.MustCompile(`\d+`).FindAllString(flow.KnownLinks, -1) {
		n, _ := strconv.Atoi(s)
		links = append(links, pcapng.LinkType(n))
	}
	for link := range pcapng.LinkType(65535) {
		if _, _, err := link.Network(make([]byte, 64), new([]uint16)); (err == nil) != slices.Contains(links, link) {
			t.Errorf("%v: %v, but KnownLinks is %s", link, err, flow.KnownLinks)
		}
	}
}

// TestManyStreams: analyze and record name their limit, and what to do about it.
func TestManyStreams(t *testing.T) {
	file := load(t, "two_conn.pcap")
	end := 24 + 16 + int(binary.LittleEndian.Uint32(file[24+8:]))
	all := slices.Clone(file[:24])
	for i := range uint16(flow.DefaultStreams + 3) {
		frame := slices.Clone(file[24:end])
		binary.BigEndian.PutUint16(frame[16+14+20+8+6:], 0x100+i) // the queue pair
		if err := bth.SealICRC(frame[16+14:]); err != nil {
			t.Fatal(err)
		}
		all = append(all, frame...)
	}
	a := ask(t, all, false)
	want := "; 3 streams are forgotten, because at most 4096 (two for each connection) are followed at once: filter the capture by host or queue pair"
	if k := a.analyzed.Checks[0]; k.Verdict != check.Undecidable || k.Text != "4099 RoCEv2 packets, 0 others"+want || a.refusal == nil || !strings.HasSuffix(a.refusal.Error(), want) {
		t.Errorf("%+v, %v", k, a.refusal)
	}
}

// TestCopies: frames that were captured twice are no retransmissions, acknowledgements, or steps of a script.
func TestCopies(t *testing.T) {
	a := ask(t, load(t, "any_v6.pcap"), false)
	n, again := a.messages()
	if f := a.flows[0]; len(a.flows) != 1 || n != 20 || again != 0 || f.Requests.Duplicated != 20 || f.Responses.Duplicated != 20 || f.Responses.Acks != 20 {
		t.Errorf("%d messages, %d retransmitted: %+v", n, again, f)
	}
	if want := "for i in 0..19 {\n< WRITE_ONLY psn=Q+i ackreq=1 va=mr.va rkey=mr.rkey len=0x10 payload=count(16)\n> ACKNOWLEDGE psn=Q+i syndrome=ACK\n}\n"; !strings.HasSuffix(a.script, want) {
		t.Error(a.script)
	}
	for _, c := range a.analyzed.Connections[0].Checks {
		if c.Name == "acknowledgements in order" && c.Text != "20 ACKs" || c.Name == "retransmission without NAK" && c.Verdict != check.NoCase {
			t.Errorf("%+v", c)
		}
	}
}
