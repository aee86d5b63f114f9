package ctl

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/version"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/observe/decode"
	"roced.io/roced/internal/observe/pcapng"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fake is a daemon with fixed answers. It records its requests.
type fake struct {
	told []string
	pcap []byte
	// traces are keyed by queue pair.
	traces map[string][]byte
}

var links = []api.Link{
	{Name: "rxe_a", MAC: "02:00:00:00:00:01", GIDs: []string{"fe80::ff:fe00:1", "10.0.0.1"}, VLANs: []uint16{0, 10}, State: "ACTIVE", MTU: 4200, ActiveMTU: 4096,
		Port: "tap", Device: "tap_a", Segments: 128, Poll: "50µs", Clients: 2, Faults: 1,
		Congestion: &api.Congestion{Algorithm: "dcqcn", Params: map[string]float64{"line_rate_bps": 1e10, "g": 0.5}}, Devices: []api.Device{
			{Name: "rxe_a", Profile: "rc", Socket: "/run/roced/uverbs0"}, {Name: "rxe_a_irn", Profile: "irn", Socket: "/run/roced/uverbs1"}}},
	{Name: "rxe_b", MAC: "02:00:00:00:00:02", State: "DOWN", Reason: "no carrier", MTU: 1500, ActiveMTU: 1024, Port: "unix", Poll: "busy"},
	{Name: "rxe_c", MAC: "02:00:00:00:00:03", GIDs: []string{"10.0.0.3", "::", "fe80::ff:fe00:3"}, State: "ACTIVE", MTU: 1500, ActiveMTU: 1024,
		Port: "packet", Device: "eth0", Mode: "AF_PACKET", Overruns: 3, Segments: 64, Poll: "50µs", Planes: []api.Plane{
			{Device: "eth0", State: "ACTIVE", Sent: 7000, Received: 500}, {Device: "eth1", State: "DOWN", Reason: "interface eth1 is set down"}},
		Losses: []api.Loss{{Counter: "tx_dropped_mtu", Frames: 7, Reason: "packets are longer"}}},
}

var resources = map[string][]api.Resource{
	"qp": {{NIC: "rxe_a", PID: 7, UID: 1000, QP: &api.QP{Num: 17, Type: "RC", State: "RTS", PD: 1, SendCQ: 2, RecvCQ: 3, Dest: 18,
		Peer: "10.0.0.2", PathMTU: 4096, SQPSN: 5, RQPSN: 6, Window: 65536, Rate: 2_500_000_000}}, {NIC: "rxe_b", PID: 8, QP: &api.QP{Num: 19, Type: "UD", State: "INIT"}}},
	"mr":  {{NIC: "rxe_a", PID: 7, MR: &api.MR{ID: 4, PD: 1, Length: 65536, Access: 15}}},
	"cq":  {{NIC: "rxe_a", PID: 7, CQ: &api.CQ{ID: 2, CQE: 255, Users: 1}}},
	"pd":  {{NIC: "rxe_a", PID: 7, PD: &api.PD{ID: 1, Users: 3}}},
	"srq": {{NIC: "rxe_a", PID: 7, SRQ: &api.SRQ{ID: 9, PD: 1, MaxWR: 63, Limit: 8, Posted: 5}}},
	"cm_id": {{NIC: "rxe_a", PID: 7, CMID: &api.CMID{ID: 4, State: "LISTEN", PS: "TCP", Src: "0.0.0.0:7471"}},
		{NIC: "rxe_a", PID: 7, CMID: &api.CMID{ID: 5, State: "CONNECT", PS: "TCP", Src: "10.0.0.1:7471", Dst: "10.0.0.2:40000", QPN: 17}}},
	"ah": {{NIC: "rxe_a", PID: 7, AH: &api.AH{Handle: 3, PD: 1, Peer: "10.0.0.2"}}},
}

func (f *fake) routes() http.Handler {
	mux := http.NewServeMux()
	give := func(pattern string, v any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { _ = json.NewEncoder(w).Encode(v) })
	}
	give("GET /v1/links", links)
	for kind, r := range resources {
		give("GET /v1/res/"+kind, r)
	}
	give("GET /v1/stat", []api.Stat{{NIC: "rxe_a", Counters: map[string]uint64{"sent_pkts": 12, "rcvd_pkts": 7}}})
	give("GET /v1/events", api.Event{Time: time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC), NIC: "rxe_a", Object: "qp", Number: 17,
		Event: "qp_access_error", PID: 7})
	give("GET /v1/faults/rxe_a", []api.FaultRule{{Rule: "tx drop psn=+3 n=1", Matched: 10, Hit: 1}, {Rule: "rx delay 2ms", Matched: 5, Hit: 5}})
	give("GET /v1/poll/rxe_a", api.PollSetting{Poll: "50µs"})
	mux.HandleFunc("POST /v1/capture/rxe_a", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(f.pcap) })
	mux.HandleFunc("POST /v1/trace/rxe_a/{qp}", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(f.traces[r.PathValue("qp")]) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || strings.HasPrefix(r.URL.Path, "/v1/capture") || strings.HasPrefix(r.URL.Path, "/v1/trace") {
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(api.Fault{Error: "no such NIC"})
			return
		}
		body, _ := io.ReadAll(r.Body)
		f.told = append(f.told, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+string(body)))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Like the daemon, it answers before the end of the request.
		_ = http.NewResponseController(w).EnableFullDuplex()
		mux.ServeHTTP(w, r)
	})
}

// start serves a fake daemon and returns its socket.
func (f *fake) start(t *testing.T) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(f.routes())
	s.Listener.Close()
	s.Listener = ln
	s.Start()
	t.Cleanup(s.Close)
	return socket
}

// ctl runs rocectl.
func ctl(args ...string) (code int, out, diag string) {
	var o, d bytes.Buffer
	code = Main(args, &o, &d)
	return code, o.String(), d.String()
}

// TestOutput compares the output of commands with golden files.
func TestOutput(t *testing.T) {
	socket := new(fake).start(t)
	for name, line := range map[string]string{
		"link": "link", "link_show_json": "link show --json", "res": "res show", "qp": "res show qp", "mr": "res show mr", "cq": "res show cq",
		"pd": "res show pd", "srq": "res show srq", "ah": "res show ah", "cm_id": "res show cm_id", "qp_json": "res show qp --json", "stat": "stat",
		"stat_json": "stat --json", "events": "events", "events_json": "events --json", "faults": "fault list rxe_a",
		"faults_json": "fault list rxe_a --json", "poll": "poll rxe_a",
	} {
		code, out, diag := ctl(append(strings.Fields(line), "--socket", socket)...)
		if code != 0 || diag != "" {
			t.Errorf("%s: exit code %d, %s", line, code, diag)
		}
		file := filepath.Join("testdata", name+".golden")
		if *update {
			if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), out); d != "" {
			t.Errorf("%s: (-want +got)\n%s", line, d)
		}
	}
}

// TestOrders checks the requests that the daemon receives.
func TestOrders(t *testing.T) {
	f := new(fake)
	socket := f.start(t)
	for _, args := range [][]string{
		{"fault", "add", "rxe_a", "tx drop psn=+3 n=1", "rx delay 2ms p=0.1"},
		{"fault", "add", "rxe_a", "both drop p=0.01 seed=7", "--replace"},
		{"fault", "clear", "rxe_a"},
		{"poll", "rxe_a", "busy"},
	} {
		if code, out, diag := ctl(append(args, "--socket", socket)...); code != 0 || out != "" || diag != "" {
			t.Errorf("%v: exit code %d, %s%s", args, code, out, diag)
		}
	}
	want := []string{
		`POST /v1/faults/rxe_a {"rules":["tx drop psn=+3 n=1","rx delay 2ms p=0.1"]}`,
		`POST /v1/faults/rxe_a {"rules":["both drop p=0.01 seed=7"],"replace":true}`,
		`DELETE /v1/faults/rxe_a`,
		`PUT /v1/poll/rxe_a {"poll":"busy"}`,
	}
	if d := cmp.Diff(want, f.told); d != "" {
		t.Error(d)
	}
}

func TestExitCodes(t *testing.T) {
	socket := new(fake).start(t)
	for _, c := range []struct {
		code int
		line string
		word string
	}{
		{2, "fault ad rxe_a", `did you mean "add"?`}, {2, "stat --wach 1s", `did you mean "--watch"?`}, {2, "watch x --jsom", `did you mean "--json"?`},
		{2, "frob", `unknown command "frob"`}, {2, "--frob", "unknown flag"}, {2, "res show frob", "qp, mr, cq, pd, srq, ah, cm_id"},
		{2, "stat --watch=-1s", "negative"}, {2, "stat a b", "usage: rocectl stat [NIC]"}, {2, "capture rxe_a", "-w FILE is required"},
		{2, "capture rxe_a -w x --duration=-1s", "negative"}, {2, "capture rxe_a -w x -c many", "invalid argument"},
		{2, "fault add rxe_a frob", `rule "frob"`}, {2, "fault add rxe_a", "usage"}, {2, "version x", "usage"},
		{1, "fault list rxe_z", "no such NIC"}, {1, "stat rxe_z", "no such NIC"}, {1, "capture rxe_z -w x", "no such NIC"},
		{2, "trace rxe_a", "either --qp N or --next"}, {2, "trace rxe_a --qp 1 --next", "either --qp N or --next"},
		{2, "trace rxe_a --qp x", "invalid argument"}, {2, "trace rxe_a --next --duration=-1s", "negative"},
		{2, "trace rxe_a --next -w - --svg x", "need a trace file"}, {2, "trace draw x", "is missing"}, {1, "trace draw x --svg x", "no such file"},
		{1, "trace rxe_z --next -w x", "no such NIC"}, {2, "trace draw x y", "usage"}, {1, "trace draw ctl_test.go --svg x", "line 1"},
		{1, "decode /nonexistent", "no such file"}, {0, "link", ""}, {0, "--help", ""}, {0, "", ""},
	} {
		code, _, diag := ctl(append(strings.Fields(c.line), "--socket", socket)...)
		if code != c.code || !strings.Contains(diag, c.word) {
			t.Errorf("%q: exit code %d, %s", c.line, code, diag)
		}
		if code != 0 && !strings.HasPrefix(diag, "rocectl: ") {
			t.Errorf("%q: says %s", c.line, diag)
		}
	}
	if _, err := os.Stat("x"); err == nil {
		t.Error("a capture of nothing has made a file")
	}
}

// TestFilesWithoutRoCE: a file without RoCEv2 has an exit code of its own, and the reasons are printed. A cut file has a note.
func TestFilesWithoutRoCE(t *testing.T) {
	const captures = "../test/captures/testdata/"
	whole, err := os.ReadFile("../../bth/testdata/rc_send.pcap")
	short := filepath.Join(t.TempDir(), "short.pcap")
	if err = errors.Join(err, os.WriteFile(short, whole[:1000], 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code       int
		args, word string
	}{
		{4, "decode " + captures + "v4frag.pcap", "2 other (2 IP fragments)"}, {4, "watch " + captures + "v4frag.pcap", "no frame of RoCEv2 (2 IP fragments)"},
		{0, "decode " + captures + "ng_unsup.pcapng", "1 other (1 link type 220)"}, {0, "watch " + captures + "many_comments.pcapng.gz --icrc ignore", ""},
		{2, "watch " + captures + "vxlan.pcap --icrc maybe", `"maybe": must be check or ignore`},
		{0, "decode " + short, "; the capture is cut at byte "}, {0, "watch " + short, "; the capture is cut at byte "},
		{0, "watch --qp 0x11 " + short, "short.pcap; the capture is cut at byte "}, {0, "watch --json " + short, `"cut_at":`},
	} {
		if code, out, diag := ctl(strings.Fields(c.args)...); code != c.code || !strings.Contains(out+diag, c.word) {
			t.Errorf("%s: %d, %s", c.args, code, diag)
		}
	}
}

// TestEveryCommandHasExamples checks every command for examples.
func TestEveryCommandHasExamples(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Short == "" || c.Example == "" {
			t.Errorf("%s has no description or no examples", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newCommand(io.Discard, io.Discard))
}

// TestRates checks that the output holds only changing counters, as rates per second.
func TestRates(t *testing.T) {
	var out bytes.Buffer
	a := &app{out: &out, json: true}
	a.rates(api.Stat{NIC: "rxe_a", Counters: map[string]uint64{"same": 5, "up": 30}}, map[string]uint64{"same": 5, "up": 10}, 2*time.Second)
	if want := `{"nic":"rxe_a","per_second":{"up":10}}` + "\n"; out.String() != want {
		t.Errorf("%s", &out)
	}
	out.Reset()
	a.json = false
	a.rates(api.Stat{NIC: "rxe_a", Counters: map[string]uint64{"up": 30}}, nil, time.Second)
	if !strings.HasSuffix(out.String(), " rxe_a  up 30/s\n") {
		t.Errorf("%s", &out)
	}
}

func TestVersion(t *testing.T) {
	code, out, _ := ctl("version", "--json")
	var v version.Info
	if err := json.Unmarshal([]byte(out), &v); code != 0 || err != nil || v.Version != version.Number || !strings.HasPrefix(v.Go, "go") {
		t.Errorf("%d, %s, %v", code, out, err)
	}
}

// pcap returns a capture of n frames.
func pcap(t *testing.T, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := pcapng.NewWriter(&b, "test")
	if err == nil {
		_, err = w.AddInterface(pcapng.Interface{Link: pcapng.LinkEthernet})
	}
	for i := 0; i < n && err == nil; i++ {
		err = w.WritePacket(pcapng.PacketInfo{Time: int64(i), Comment: "c"}, make([]byte, 60+i))
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestCapture(t *testing.T) {
	f := &fake{pcap: pcap(t, 9)}
	socket := f.start(t)
	file := filepath.Join(t.TempDir(), "x.pcapng")
	for _, c := range []struct {
		args []string
		want int
	}{{nil, 9}, {[]string{"-c", "4"}, 4}, {[]string{"-c", "20"}, 9}, {[]string{"-c", "4", "--json"}, 4}} {
		code, out, diag := ctl(append(c.args, "capture", "rxe_a", "-w", file, "--socket", socket)...)
		if code != 0 || (out == "") == (diag == "") {
			t.Errorf("%v: exit code %d, %s%s", c.args, code, out, diag)
		}
		if _, _, diag := ctl("decode", file); !strings.HasPrefix(diag, string(rune('0'+c.want))+" frames, 0 RoCE") {
			t.Errorf("%v: %s", c.args, diag)
		}
	}
	code, out, diag := ctl("capture", "rxe_a", "-w", "-", "--socket", socket)
	if code != 0 || out != string(f.pcap) || diag != "9 frames, "+itoa(len(f.pcap))+" bytes\n" {
		t.Errorf("exit code %d, %d bytes, %s", code, len(out), diag)
	}
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

// TestBrokenCapture checks that a file ends with a complete block, wherever the stream ends.
func TestBrokenCapture(t *testing.T) {
	whole := pcap(t, 3)
	for cut := range len(whole) {
		var out bytes.Buffer
		c := &recorder{seen: func() {}}
		err := c.copy(&out, bytes.NewReader(whole[:cut]))
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if (err == nil) != (out.Len() == cut) || !bytes.HasPrefix(whole, out.Bytes()) || c.bytes != uint64(out.Len()) {
			t.Fatalf("cut at %d: %d bytes, %v", cut, out.Len(), err)
		}
	}
	for _, n := range []uint32{0, 8, 13, 1 << 30} {
		b := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, 6), n)
		c := &recorder{seen: func() {}}
		if err := c.copy(io.Discard, bytes.NewReader(b)); err == nil || !strings.Contains(err.Error(), "the daemon sent a malformed block") {
			t.Errorf("block of %d bytes: %v", n, err)
		}
	}
}

// disk is a file on a disk of limited size.
type disk struct {
	bytes.Buffer
	room int
}

func (d *disk) Write(b []byte) (int, error) {
	n, _ := d.Buffer.Write(b[:min(len(b), d.room)])
	if d.room -= n; n < len(b) {
		return n, unix.ENOSPC
	}
	return n, nil
}

func (d *disk) Truncate(size int64) error {
	d.Buffer.Truncate(int(size))
	return nil
}

// TestFullDisk: a capture on a full disk ends with a complete block, and the counters agree.
func TestFullDisk(t *testing.T) {
	whole := pcap(t, 3)
	for room := range len(whole) {
		d, c := &disk{room: room}, &recorder{seen: func() {}}
		if err := c.copy(d, bytes.NewReader(whole)); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("room for %d: %v", room, err)
		}
		st := decode.Stats{}
		if d.Len() > 0 {
			var err error
			if st, err = decode.Stream(bytes.NewReader(d.Bytes()), io.Discard, decode.Options{}); err != nil {
				t.Fatalf("room for %d: %v", room, err)
			}
		}
		if c.bytes != uint64(d.Len()) || c.frames != uint64(st.Frames) || !bytes.HasPrefix(whole, d.Bytes()) {
			t.Fatalf("room for %d: %d bytes and %d frames, the file has %d and %d", room, c.bytes, c.frames, d.Len(), st.Frames)
		}
	}
}

func TestDecode(t *testing.T) {
	code, out, diag := ctl("decode", "../../bth/testdata/rc_send.pcap")
	if code != 0 || strings.Count(out, "\n") != 41 || !strings.Contains(diag, " 41 RoCE, ") || !strings.Contains(diag, "0 with a bad ICRC") {
		t.Errorf("exit code %d, %s", code, diag)
	}
	code, out, _ = ctl("decode", "--json", "../../bth/testdata/rc_send.pcap")
	for line := range strings.Lines(out) {
		if !json.Valid([]byte(line)) {
			t.Fatalf("not JSON: %s", line)
		}
	}
	if code != 0 || strings.Count(out, "\n") != 41 {
		t.Errorf("exit code %d, %s", code, out)
	}
}
