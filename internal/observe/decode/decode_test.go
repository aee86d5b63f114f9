package decode_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"roced.io/roced/bth"
	"roced.io/roced/internal/observe/decode"
	"roced.io/roced/internal/observe/pcapng"
)

func captures(tb testing.TB) []string {
	tb.Helper()
	files, err := filepath.Glob("../../../bth/testdata/*.pcap")
	if err != nil || len(files) == 0 {
		tb.Fatalf("captures: %v, %v", files, err)
	}
	return files
}

// record is a line of JSON.
type record struct {
	decode.Record
	Syndrome, MSN, VA, RKey, DMALen *uint64
	Ext                             struct {
		Fields map[string]uint64
		Own    string
	}
}

func records(tb testing.TB, file []byte) ([]record, decode.Stats) {
	tb.Helper()
	var out bytes.Buffer
	stats, err := decode.Stream(bytes.NewReader(file), &out, decode.Options{JSON: true})
	if err != nil {
		tb.Fatal(err)
	}
	var all []record
	for dec := json.NewDecoder(&out); ; {
		var r record
		if err := dec.Decode(&r); err == io.EOF {
			return all, stats
		} else if err != nil {
			tb.Fatal(err)
		}
		all = append(all, r)
	}
}

func TestCaptures(t *testing.T) {
	want := map[string]int{"rc_send": 41, "rc_write": 41, "rc_writeimm": 41, "rc_read": 41, "rc_atomic": 26, "rc_mixed": 45}
	for _, path := range captures(t) {
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all, stats := records(t, file)
		name := strings.TrimSuffix(filepath.Base(path), ".pcap")
		if stats.Malformed != 0 || stats.BadICRC != 0 || stats.RoCE != len(all) || stats.RoCE+stats.Skipped != stats.Frames {
			t.Errorf("%s: %+v, %d lines", name, stats, len(all))
		}
		if n := want[name]; n != 0 && n != stats.RoCE {
			t.Errorf("%s: %d RoCE frames, want %d", name, stats.RoCE, n)
		}
		ce := 0
		for _, r := range all {
			if r.ECN == "ce" {
				ce++
			}
		}
		if (ce > 0) != (name == "ecn_write") {
			t.Errorf("%s: %d CE marks", name, ce)
		}
	}
}

// TestAgreesWithTshark checks that Wireshark and this package agree on every frame of the captures.
func TestAgreesWithTshark(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	for _, path := range captures(t) {
		out, err := exec.Command(tshark, "-r", path, "-Y", "infiniband.bth", "-T", "fields", "-E", "occurrence=f",
			"-e", "frame.number", "-e", "frame.time_epoch", "-e", "infiniband.bth.destqp", "-e", "infiniband.bth.psn",
			"-e", "infiniband.bth.a", "-e", "infiniband.bth.padcnt", "-e", "infiniband.aeth.syndrome", "-e", "infiniband.aeth.msn",
			"-e", "infiniband.reth.va", "-e", "infiniband.reth.r_key", "-e", "infiniband.reth.dmalen").Output()
		if err != nil {
			t.Fatal(err)
		}
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all, _ := records(t, file)
		var got strings.Builder
		for _, r := range all {
			got.WriteString(tsharkLine(r) + "\n")
		}
		if d := cmp.Diff(normal(string(out)), normal(got.String())); d != "" {
			t.Errorf("%s: (-tshark +ours)\n%s", path, d)
		}
	}
}

func tsharkLine(r record) string {
	ackReq := "0"
	if r.AckReq {
		ackReq = "1"
	}
	f := []string{
		fmt.Sprint(r.Packet), fmt.Sprintf("%d.%09d", r.Time.Unix(), r.Time.Nanosecond()),
		fmt.Sprint(r.QPN), fmt.Sprint(r.PSN), ackReq, fmt.Sprint(*r.Pad), "", "", "", "", "",
	}
	for i, v := range []*uint64{r.Syndrome, r.MSN, r.VA, r.RKey, r.DMALen} {
		if v != nil {
			f[6+i] = fmt.Sprint(*v)
		}
	}
	return strings.Join(f, "\t")
}

// normal normalizes the hexadecimal numbers and booleans of different tshark versions.
func normal(s string) []string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i, l := range lines {
		f := strings.Split(l, "\t")
		for j, v := range f {
			if n, err := strconv.ParseUint(v, 0, 64); err == nil {
				f[j] = fmt.Sprint(n)
			} else if b, err := strconv.ParseBool(v); err == nil {
				f[j] = map[bool]string{false: "0", true: "1"}[b] // tshark 4.4
			}
		}
		lines[i] = strings.Join(f, " ")
	}
	return lines
}

func TestDamagedCapture(t *testing.T) {
	file, err := os.ReadFile("../../../bth/testdata/rc_send.pcap")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	stats, err := decode.Stream(bytes.NewReader(file[:len(file)-5]), &out, decode.Options{})
	if err != nil || stats.Cut == 0 || stats.RoCE != 40 || strings.Count(out.String(), "\n") != 40 {
		t.Errorf("%+v, %v", stats, err)
	}
	copy(file[stats.Cut+8:], "\xff\xff\xff\xff") // the length
	stats, err = decode.Stream(bytes.NewReader(file), io.Discard, decode.Options{})
	if want := fmt.Sprintf("decode: packet %d at byte ", stats.Frames+1); !errors.Is(err, pcapng.ErrFormat) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%q does not begin with %q", err, want)
	}
	if _, err := decode.Stream(strings.NewReader("no capture"), &out, decode.Options{}); !errors.Is(err, pcapng.ErrFormat) {
		t.Errorf("no capture: %v", err)
	}
}

func TestWriteErrorEndsStream(t *testing.T) {
	for _, opt := range []decode.Options{{}, {JSON: true}} {
		r, w := io.Pipe()
		r.Close()
		fd, err := os.Open(captures(t)[0])
		if err != nil {
			t.Fatal(err)
		}
		defer fd.Close()
		if _, err := decode.Stream(fd, w, opt); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%+v: %v", opt, err)
		}
	}
}

func FuzzDecodeStream(f *testing.F) {
	for _, path := range captures(f) {
		file, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file[:min(len(file), 2000)])
	}
	f.Add(capture(f, pcapng.LinkEthernet, pcapng.PacketInfo{Comment: "c"}, ethernet(0x0800, ipv4(0x11, send()))))
	f.Add(capture(f, pcapng.LinkRaw, pcapng.PacketInfo{}, ipv6(0x11, send())))
	f.Fuzz(func(t *testing.T, file []byte) {
		var text, jsonText bytes.Buffer
		a, errA := decode.Stream(bytes.NewReader(file), &text, decode.Options{})
		b, errB := decode.Stream(bytes.NewReader(file), &jsonText, decode.Options{JSON: true})
		if !cmp.Equal(a, b) || (errA == nil) != (errB == nil) {
			t.Fatalf("text %+v %v, JSON %+v %v", a, errA, b, errB)
		}
		if n := bytes.Count(text.Bytes(), []byte("\n")); n != a.RoCE {
			t.Fatalf("%d lines of %d frames", n, a.RoCE)
		}
		for line := range bytes.Lines(jsonText.Bytes()) {
			if !json.Valid(line) {
				t.Fatalf("not JSON: %s", line)
			}
		}
	})
}

func BenchmarkStream(b *testing.B) {
	file, err := os.ReadFile("../../../bth/testdata/loss2_write.pcap")
	if err != nil {
		b.Fatal(err)
	}
	for _, opt := range []decode.Options{{}, {JSON: true}} {
		b.Run(fmt.Sprintf("json=%v", opt.JSON), func(b *testing.B) {
			b.SetBytes(int64(len(file)))
			for b.Loop() {
				if _, err := decode.Stream(bytes.NewReader(file), io.Discard, opt); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// send returns a SEND ONLY of 5 bytes without its ICRC.
func send() []byte {
	p := bth.Packet{Opcode: 0x04, AckReq: true, PKey: bth.DefaultPKey, DestQP: 17, PSN: bth.MakePSN(0xfffff8), Payload: []byte("hello")}
	return p.AppendTo(nil)
}
