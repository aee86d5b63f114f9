package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"roced.io/roced/drill/dut"
	"roced.io/roced/drill/engine"
	"roced.io/roced/drill/script"
	"roced.io/roced/internal/base/interrupt/cut"
	"roced.io/roced/internal/observe/pcapng"
)

// passing and failing are scripts for our NIC.
const (
	passing = `about "A queue pair is created."
spec "IBTA 10.3.1" must
need rc
qp = dut.qp rc
`
	failing = `about "The second packet is another one."
spec "IBTA 9.7" must
need rc
mr = dut.mr size=4096 fill=count
qp = dut.qp rc mtu=1024 psn=P
dut.send qp wr=1 mr[0:1500]
> SEND_FIRST psn=P
> SEND_LAST psn=P+7
`
	silent = `spec "IBTA 9.7" policy
qp = dut.qp rc
> SEND_ONLY psn=P within 5ms
`
	inapplicable = `spec "IBTA 9.7" must
need ipv6
wait 1ms
`
)

// folder writes scripts and returns their folder.
func folder(t *testing.T, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name+".drill"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// call runs the program and returns its exit code and its output.
func call(args ...string) (code int, out, diag string) {
	var o, d bytes.Buffer
	code = Main(args, &o, &d)
	return code, o.String(), d.String()
}

var all = map[string]string{"pass": passing, "fail": failing, "silent": silent, "none": inapplicable}

// TestTable: the terminal's table names file, line, column and the expected packet in the script's notation.
func TestTable(t *testing.T) {
	dir := folder(t, all)
	code, out, diag := call("run", dir, "--seed", "2", "--ip", "4")
	want := []string{
		"failed         DIR/fail.drill",
		"               DIR/fail.drill:8:1: (seed 2) expected SEND_LAST psn=*; the device sent SEND_LAST dst=0x11 psn=* payload=476 bytes 1415161718191a1b...: psn is *, expected *",
		"not applicable DIR/none.drill", "               it needs IPv6, the run is by IPv4 (--ip 4)",
		"passed         DIR/pass.drill",
		"differs        DIR/silent.drill",
		"               DIR/silent.drill:3:1: (seed 2) expected SEND_ONLY psn=*; the device sent nothing within 5ms",
		"1 passed, 1 failed, 1 not applicable, 1 differ by policy", "",
	}
	lines := strings.Split(strings.ReplaceAll(out, dir, "DIR"), "\n")
	if code != exitFailed || diag != "" || !slices.EqualFunc(lines, want, func(got, want string) bool {
		ok, _ := filepath.Match(strings.NewReplacer("/", "|", "[", "(").Replace(want), strings.NewReplacer("/", "|", "[", "(").Replace(got))
		return ok
	}) {
		t.Errorf("%d %s\n%s", code, diag, strings.Join(lines, "\n"))
	}
}

// TestReports: JSON, JUnit XML, and the page with a ladder diagram and a capture of each failed script.
func TestReports(t *testing.T) {
	dir := folder(t, all)
	junit, page := filepath.Join(dir, "junit.xml"), filepath.Join(dir, "new", "page.html")
	code, out, diag := call("run", dir, "--ip", "4", "--json", "--junit", junit, "--html", page)
	if code != exitFailed || diag != "" {
		t.Fatal(code, diag)
	}
	var s summary
	if err := json.Unmarshal([]byte(out), &s); err != nil || s.Passed != 1 || s.Failed != 1 || s.Differs != 1 || s.NotApplicable != 1 || s.DUT != "virtual" {
		t.Fatal(err, out)
	}
	if r := s.Scripts[0]; r.Line != 8 || r.Column != 1 || !strings.HasPrefix(r.Wanted, "SEND_LAST psn=") || len(r.Log) != 8 ||
		r.Log[7].From != "dut" || !strings.HasPrefix(r.Log[7].Packet, "SEND_LAST") || r.Log[4].Text == "" {
		t.Errorf("%+v", r)
	}

	var x junitSuite
	text := read(t, junit)
	if err := xml.Unmarshal(text, &x); err != nil || x.Tests != 4 || x.Failures != 1 || x.Skipped != 1 || x.Cases[0].Failure == nil ||
		!strings.Contains(x.Cases[0].Failure.Text, "dut -> tester SEND_FIRST") || x.Cases[1].Skipped == nil || x.Cases[2].Failure != nil || x.Cases[3].Failure != nil ||
		!strings.HasPrefix(x.Cases[3].Output, "the device differs from this policy: ") || !slices.Contains(x.Cases[0].Properties, junitProperty{"section", "IBTA 9.7"}) ||
		!slices.Contains(x.Cases[3].Properties, junitProperty{"kind", "policy"}) || !slices.Contains(x.Cases[2].Properties, junitProperty{"seed", "1"}) {
		t.Errorf("%v %s", err, text)
	}

	html := string(read(t, page))
	for _, want := range []string{"expected: SEND_LAST psn=", `class="missing"`, `class="wrong"`, `href="page-1.pcapng"`, `href="page-4.pcapng"`,
		"<b>  8  &gt; SEND_LAST psn=P&#43;7</b>", "1 passed, 1 failed, 1 not applicable, 1 differ by policy"} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(html, "http") {
		t.Error("the page refers to other hosts")
	}
	r, err := pcapng.NewReader(bytes.NewReader(read(t, filepath.Join(dir, "new", "page-1.pcapng"))))
	if err != nil {
		t.Fatal(err)
	}
	var f pcapng.Frame
	n := 0
	for ; r.Next(&f) != io.EOF; n++ {
		if f.Direction != pcapng.Inbound || f.Comment != "line 7" && f.Comment != "line 8" {
			t.Errorf("%+v", f)
		}
	}
	if n != 2 {
		t.Errorf("%d frames", n)
	}
}

// TestNoCapture: the page is whole without a capture that cannot be written, and the exit code is that of the run.
func TestNoCapture(t *testing.T) {
	dir := folder(t, all)
	if err := os.Mkdir(filepath.Join(dir, "page-1.pcapng"), 0o700); err != nil {
		t.Fatal(err)
	}
	code, _, diag := call("run", dir, "--ip", "4", "--html", dir+"/page.html")
	html := string(read(t, dir+"/page.html"))
	if code != exitFailed || diag != "rocedrill: the page lacks a capture: open "+dir+"/page-1.pcapng: is a directory\n" || strings.Contains(html, "page-1.pcapng") ||
		!strings.Contains(html, `href="page-4.pcapng"`) || !strings.Contains(html, "expected: SEND_LAST psn=") || !strings.Contains(html, "</html>") ||
		strings.Contains(html, `href=""`) {
		t.Error(code, diag, html)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestExitCodes: 0, 1 failed, 2 wrong script or usage, 3 the device is lost; each with a clear message.
func TestExitCodes(t *testing.T) {
	dir := folder(t, all)
	wrong := folder(t, map[string]string{"x": passing + "> SEND_ONLI\n"})
	late := folder(t, map[string]string{"x": passing + "x = 1 / (P-P)\n"})
	t.Setenv("ROCEDRILL_TOKEN", "")
	socket, long := "unix:"+dir+"/s", "/tmp/"+strings.Repeat("x", 96)
	for _, c := range []struct {
		code int
		diag string
		args []string
	}{
		{0, "", []string{"run", dir + "/pass.drill", dir + "/none.drill"}},
		{1, "", []string{"run", dir + "/fail.drill"}},
		{0, "", []string{"run", dir + "/silent.drill"}},
		{2, "x.drill:5:3: there is no packet SEND_ONLI", []string{"run", wrong}},
		{2, "x.drill:5:3: there is no packet SEND_ONLI", []string{"lint", wrong}},
		{0, "", []string{"lint", dir}},
		{2, "no script: name scripts or folders", []string{"lint"}},
		{2, "--must: no script tests a demand", []string{"run", dir + "/silent.drill", "--must"}},
		{2, `--only "IBTA 9.8": no script has this section; did you mean "IBTA 9.7"?`, []string{"run", dir, "--only", "IBTA 9.8"}},
		{2, "nowhere: no such file", []string{"run", dir, "--known", "nowhere"}},
		{2, "--ip 5: must be 4 or 6", []string{"run", dir, "--ip", "5"}},
		{2, "--vlan 4095: must be at most 4094", []string{"run", dir, "--vlan", "4095"}},
		{2, "--sl 16: must be at most 15", []string{"run", dir, "--sl", "16"}},
		{2, "--port 0: must be between 1 and 255", []string{"run", dir, "--port", "0"}},
		{2, "--gid-index -5: must be between 0 and 255", []string{"run", dir, "--gid-index", "-5"}},
		{2, "--gid-index 99999999999: must be between 0 and 255", []string{"run", dir, "--gid-index", "99999999999"}},
		{2, `--device "a b=c": must be the name of an RDMA device, without spaces`, []string{"run", dir, "--device", "a b=c"}},
		{2, "--dut-address 198.18.0.1: is the address of the tester", []string{"run", dir, "--dut", "agent:x", "--link", socket, "--dut-address", "198.18.0.1"}},
		{2, "--dut-address fd00::2: is the address of the tester", []string{"model", "--dut", "agent:x", "--link", socket, "--tester-address", "fd00::2"}},
		{2, `--cap ipv7: there is no such capability; did you mean "ipv4"?`, []string{"run", dir, "--cap", "ipv7"}},
		{2, "x.drill:5:7: division by zero", []string{"run", late}},
		{2, "usage: rocedrill run SCRIPT|FOLDER...", []string{"run"}},
		{2, "nowhere: no such file", []string{"run", "nowhere"}},
		{2, "no scripts (*.drill)", []string{"run", t.TempDir()}},
		{2, "--dut x: must be virtual, roced, rxe-6.1, rxe-6.12 or agent:COMMAND", []string{"run", dir, "--dut", "x"}},
		{2, "needs a command and --link", []string{"run", dir, "--dut", "agent:rocedrill-agent"}},
		{2, "--link is for --dut agent:COMMAND", []string{"run", dir, "--link", "eth0"}},
		{2, "--dut-address: ParseAddr", []string{"run", dir, "--dut", "agent:x", "--link", "eth0", "--dut-address", "host"}},
		{2, "unknown flag: --slak", []string{"run", dir, "--slak", "1ms"}},
		{2, "unknown command", []string{"walk"}},
		{2, "/pass.drill: not a directory", []string{"run", dir + "/pass.drill", "--junit", dir + "/pass.drill/x.xml"}},
		{2, "link nowhere0: route ip+net: no such network interface; name an interface", []string{"run", dir, "--dut", "agent:x", "--link", "nowhere0"}},
		{2, "link tap:: the name has 0 bytes; an interface's name has 1 to 15", []string{"run", dir, "--dut", "agent:x", "--link", "tap:"}},
		{2, "link tap:sixteen-letters_: the name has 16 bytes; an interface's name has 1 to 15", []string{"run", dir, "--dut", "agent:x", "--link", "tap:sixteen-letters_"}},
		{2, long + ".tester: the path has 108 bytes; a socket's path has at most 107", []string{"run", dir, "--dut", "agent:x", "--link", "unix:" + long}},
		{2, "agent: the command is empty", []string{"run", dir, "--dut", "agent: ", "--link", socket}},
		{2, "agent: fork/exec /nowhere/x: no such file", []string{"run", dir, "--dut", "agent:/nowhere/x", "--link", socket}},
		{2, `agent: exec: "nonexist": executable file not found in $PATH; name a program`, []string{"model", "--dut", "agent:nonexist", "--link", socket}},
		{2, "agent tcp:foo: address foo: missing port in address; write tcp:HOST:PORT", []string{"run", dir, "--dut", "agent:tcp:foo", "--link", socket}},
		{2, "agent tcp:[::1]:99999: address 99999: invalid port; write tcp:HOST:PORT", []string{"run", dir, "--dut", "agent:tcp:[::1]:99999", "--link", socket}},
		{2, "agent tcp:[::1]:1: $ROCEDRILL_TOKEN is not set; set it to the agent's token", []string{"run", dir, "--dut", "agent:tcp:[::1]:1", "--link", socket}},
	} {
		code, _, diag := call(c.args...)
		if code != c.code || !strings.Contains(diag, c.diag) || strings.Count(diag, "\n") > 1 || (c.code == exitUsage && strings.Contains(diag, dut.ErrLost.Error())) {
			t.Errorf("%v: %d %s, want %d %s", c.args, code, diag, c.code, c.diag)
		}
	}
}

// TestBadScript: later scripts run after one that is wrong. All reports have it, and the exit code is 2 also if a script failed.
func TestBadScript(t *testing.T) {
	dir := folder(t, map[string]string{"a": passing + "x = 1 / (P-P)\n", "b": failing, "c": passing})
	junit := filepath.Join(dir, "junit.xml")
	code, out, diag := call("run", dir, "--json", "--junit", junit)
	var s summary
	if err := json.Unmarshal([]byte(out), &s); err != nil || code != exitUsage || diag != "rocedrill: "+dir+"/a.drill:5:7: division by zero\n" ||
		s.Broken != 1 || s.Failed != 1 || s.Passed != 1 || s.NotRun != 0 || s.Lost != "" {
		t.Errorf("%d %s %v %s", code, diag, err, out)
	}
	var x junitSuite
	if err := xml.Unmarshal(read(t, junit), &x); err != nil || x.Tests != 3 || x.Errors != 1 || x.Failures != 1 {
		t.Errorf("%v %+v", err, x)
	}
}

// TestKnown: a known failure is none, with its reason, and a known failure that passes is told. --must and --only choose scripts.
func TestKnown(t *testing.T) {
	dir := folder(t, all)
	list := filepath.Join(dir, "known")
	write := func(text string) {
		if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# failures\nfail.drill pass: It is so.\n")
	code, out, _ := call("run", dir, "--known", list, "--must")
	if code != 0 || !strings.HasSuffix(out, "2 passed, 0 failed, 0 not applicable, 1 known\n") || !strings.Contains(out, "known: It is so.") ||
		!strings.Contains(out, "pass.drill is a known failure, but has passed") || strings.Contains(out, "silent") {
		t.Error(code, out)
	}
	for text, want := range map[string]string{
		"fail.drill\n": "known:1: must be NAME...: REASON", "fail:  \n": "known:1: must be NAME...: REASON",
		"# x\n : It is so.\n": "known:2: must be NAME...: REASON",
	} {
		write(text)
		if code, out, diag := call("run", dir, "--known", list); code != exitUsage || out != "" || !strings.Contains(diag, want) {
			t.Errorf("%q: %d %s, want %s", text, code, diag, want)
		}
	}
	for text, want := range map[string]string{
		"fial.drill: It is so.\n":                 `known:1: there is no fial among the scripts; did you mean "fail"?`,
		filepath.Base(dir) + "/fial: It is so.\n": `did you mean "` + filepath.Base(dir) + `/fail"?`,
		"ail: It is so.\n":                        "known:1: there is no ail among the scripts",
	} {
		write(text)
		if code, out, diag := call("run", dir, "--known", list); code != exitFailed || out == "" || !strings.Contains(diag, want) {
			t.Errorf("%q: %d %s, want %s", text, code, diag, want)
		}
	}
	write("silent: A policy, which --must omits.\n")
	if code, _, diag := call("run", dir+"/pass.drill", dir+"/silent.drill", "--known", list, "--must"); code != 0 {
		t.Error(code, diag)
	}
	for rule, want := range map[string]string{"IBTA 9.7": "1 passed, 1 failed", "IBTA 10": "1 passed, 0 failed", "IBTA": "2 passed, 1 failed", "IBTA 10.3.1": "1 passed, 0 failed"} {
		if _, out, _ := call("run", dir, "--only", rule, "--must"); !strings.Contains(out, want) {
			t.Errorf("--only %s: %s, want %s", rule, out, want)
		}
	}
}

// TestLost: a device that cannot be reached leaves a report that has all scripts.
func TestLost(t *testing.T) {
	dir := folder(t, all)
	junit := filepath.Join(dir, "junit.xml")
	code, out, diag := call("run", dir, "--json", "--junit", junit, "--dut", "agent:/bin/false", "--link", "unix:"+dir+"/s")
	var s summary
	if err := json.Unmarshal([]byte(out), &s); err != nil || code != exitLost || strings.Count(diag, "\n") != 1 || s.NotRun != 4 || len(s.Scripts) != 4 ||
		s.Scripts[0].Outcome != notRun || !strings.Contains(s.Scripts[0].Reason, "the agent has ended") {
		t.Errorf("%d %s %v %s", code, diag, err, out)
	}
	var x junitSuite
	if err := xml.Unmarshal(read(t, junit), &x); err != nil || x.Tests != 4 || x.Skipped != 4 || x.Failures+x.Errors != 0 {
		t.Errorf("%v %+v", err, x)
	}
}

// TestMeasured: all reports have the values that scripts measure.
func TestMeasured(t *testing.T) {
	dir := folder(t, map[string]string{"x": passing + "t = 14\nprint \"timeout\" 4096ns<<t\nprint \"retries\" 3\n"})
	junit, page := filepath.Join(dir, "junit.xml"), filepath.Join(dir, "page.html")
	_, out, _ := call("run", dir, "--junit", junit, "--html", page)
	if !strings.Contains(out, "line 6, seed 0: timeout 67.108864ms\n") || !strings.Contains(out, "line 7, seed 1: retries 3\n") {
		t.Error(out)
	}
	if text := string(read(t, junit)); !strings.Contains(text, `name="line 6, seed 1: timeout" value="67.108864ms"`) {
		t.Error(text)
	}
	if text := string(read(t, page)); !strings.Contains(text, "timeout 67.108864ms") {
		t.Error(text)
	}
	_, out, _ = call("run", dir, "--json")
	var s summary
	if err := json.Unmarshal([]byte(out), &s); err != nil || len(s.Scripts[0].Measured) != 4 || s.Scripts[0].Measured[0] != (measured{6, 0, "timeout", "67.108864ms", 0.067108864}) {
		t.Error(err, out)
	}
}

// TestLabels: labels of a ladder stay in their place.
func TestLabels(t *testing.T) {
	l := &ladder{}
	long := strings.Repeat("x", 200)
	l.add(rung{Arrow: true, Label: long})
	l.add(rung{Label: long})
	l.add(rung{Label: "short"})
	for i, want := range []int{arrowLabel, noteLabel, len("short")} {
		if got := l.Rows[i].Short; len(got) != want || i < 2 && !strings.HasSuffix(got, "...") {
			t.Errorf("%q", got)
		}
	}
}

// TestList: scripts, and coverage by section in the order of section numbers.
func TestList(t *testing.T) {
	dir := folder(t, all)
	_, out, _ := call("list", dir)
	if lines := strings.Split(out, "\n"); len(lines) != 5 || !strings.Contains(lines[2], "pass.drill    IBTA 10.3.1  must    A queue pair is created.") {
		t.Error(out)
	}
	_, out, _ = call("list", "--spec", dir)
	if want := "section      must  policy  model\nIBTA 9.7     2     1       0\nIBTA 10.3.1  1     0       0\n2 sections   3     1       0\n"; out != want {
		t.Errorf("%s, want %s", out, want)
	}
	var list []section
	if _, out, _ = call("list", "--spec", "--json", dir); json.Unmarshal([]byte(out), &list) != nil || len(list) != 2 || len(list[0].Scripts) != 3 {
		t.Error(out)
	}
}

// TestLintJSON: the output has each error with its place, also one of the grammar, and is a list without errors.
func TestLintJSON(t *testing.T) {
	for text, want := range map[string]string{
		passing:                                  "[]\n",
		passing + "> SEND_ONLI\n":                `[{"script":"x.drill","line":5,"column":3,"text":"there is no packet SEND_ONLI; did you mean \"SEND_ONLY\"?"}]`,
		passing + "> CNP psn=x\n> CNP\nwait x\n": `[{"script":"x.drill","line":5,"column":11,"text":"x is not defined before this line"},{"script":"x.drill","line":7,"column":6,"text":"x is not defined before this line"}]`,
		passing + "wait (\n":                     `[{"script":"x.drill","line":5,"column":7,"text":"the end of the line instead of a value"}]`,
	} {
		dir := folder(t, map[string]string{"x": text})
		code, out, diag := call("lint", dir, "--json")
		var got bytes.Buffer
		if err := json.Compact(&got, []byte(strings.ReplaceAll(out, dir+"/", ""))); err != nil || strings.TrimSpace(got.String()) != strings.TrimSpace(want) || (code == 2) != (diag != "") {
			t.Errorf("%d: %s%s, want %s", code, got.String(), diag, want)
		}
	}
}

// TestRecord: a recorded script runs.
func TestRecord(t *testing.T) {
	const capture = "../../bth/testdata/rc_send.pcap"
	out := filepath.Join(t.TempDir(), "a", "new", "folder", "x.drill")
	if code, _, diag := call("record", capture, "--qp", "0x11", "--address", "198.18.0.1", "-o", out); code != 0 {
		t.Fatal(code, diag)
	}
	if code, said, diag := call("run", out); code != 0 {
		t.Fatal(code, said, diag)
	}
	var v struct{ Script string }
	code, said, diag := call("record", capture, "--qp", "0x11", "--address", "198.18.0.1", "--json")
	if err := json.Unmarshal([]byte(said), &v); code != 0 || err != nil || v.Script != string(read(t, out)) {
		t.Error(code, err, said, diag)
	}
	for _, c := range []struct {
		diag string
		args []string
	}{
		{"usage: rocedrill record CAPTURE --qp N", []string{"record", capture}},
		{"--qp 0x1000000: must be a number of up to 24 bits", []string{"record", capture, "--qp", "0x1000000"}},
		{"rc_send.pcap: no packet goes to queue pair 0x5; the capture has 0x", []string{"record", capture, "--qp", "5"}},
		{"no such file", []string{"record", "nowhere", "--qp", "5"}},
	} {
		if code, _, diag := call(c.args...); code != exitUsage || !strings.Contains(diag, c.diag) {
			t.Errorf("%v: %d %s", c.args, code, diag)
		}
	}
}

// TestSameFile: no output overwrites the input or another output, also by another name.
func TestSameFile(t *testing.T) {
	dir := folder(t, map[string]string{"pass": passing})
	capture, link := filepath.Join(dir, "c.pcap"), filepath.Join(dir, "link")
	want := read(t, "../../bth/testdata/rc_send.pcap")
	if err := errors.Join(os.WriteFile(capture, want, 0o600), os.Symlink(capture, link)); err != nil {
		t.Fatal(err)
	}
	code, _, diag := call("record", capture, "--qp", "0x11", "--address", "198.18.0.1", "-o", link)
	if code != exitUsage || !strings.Contains(diag, "link: is the capture; name another file") || !bytes.Equal(read(t, capture), want) {
		t.Error(code, diag)
	}
	code, out, diag := call("run", dir, "--junit", dir+"/new/x", "--html", dir+"/./new/x")
	if code != exitUsage || out != "" || !strings.Contains(diag, "x: is the file of --junit; name another file") {
		t.Error(code, out, diag)
	}
}

// TestAnalyze: the checks of a capture, with the exit code 1 if one is violated.
func TestAnalyze(t *testing.T) {
	const capture = "../../bth/testdata/loss2_write.pcap"
	code, out, diag := call("analyze", capture)
	for _, want := range []string{"440 frames\n", "198.18.0.1/0x12 -> 198.18.0.2/0x12\n", "  ok           resumes at the NAK           10 retransmissions after a NAK\n",
		"               frames 126 127: the slowest: 27µs\n", "  no case      CNPs for marks, pacing of CNPs\n"} {
		if code != 0 || diag != "" || !strings.Contains(out, want) {
			t.Errorf("%d %s lacks %q:\n%s", code, diag, want, out)
		}
	}
	counters := filepath.Join(t.TempDir(), "counters")
	if err := os.WriteFile(counters, []byte("rcvd_seq_err 11\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, _ = call("analyze", capture, "--counters", "198.18.0.1="+counters, "--json")
	if code != exitFailed || !strings.Contains(out, "rcvd_seq_err is 11, the capture has 10") {
		t.Error(code, out)
	}
	const captures = "../../internal/test/captures/testdata/"
	short := filepath.Join(t.TempDir(), "cut.pcap")
	if err := os.WriteFile(short, read(t, capture)[:5000], 0o600); err != nil {
		t.Fatal(err)
	}
	for option, want := range map[string]string{"": " frames; the capture is cut at byte 4", "--json": `"cut_at": 4`} {
		if code, out, diag = call("analyze", short, "--json="+strconv.FormatBool(option != "")); code != 0 || diag != "" || !strings.Contains(out, want) {
			t.Error(code, out, diag)
		}
	}
	code, out, diag = call("analyze", captures+"v4frag.pcap")
	if code != exitNothing || diag != "rocedrill: the capture has no frame of RoCEv2: 2 other frames (2 IP fragments)\n" {
		t.Error(code, out, diag)
	}
	if code, out, _ = call("analyze", captures+"vxlan.pcap", "--icrc", "ignore"); code != 0 || !strings.Contains(out, "3 RoCEv2 packets") {
		t.Error(code, out)
	}
	for _, c := range []struct {
		diag string
		args []string
	}{
		{`"x": must be check or ignore`, []string{"analyze", capture, "--icrc", "x"}},
		{"usage: rocedrill analyze CAPTURE", []string{"analyze"}},
		{"no such file", []string{"analyze", "nowhere"}},
		{"run_test.go: ", []string{"analyze", "run_test.go"}},
		{"--counters x: must be ADDRESS=FILE", []string{"analyze", capture, "--counters", "x"}},
		{"run_test.go: line 1: \"package cli\": must be a name and a number", []string{"analyze", capture, "--counters", "198.18.0.1=run_test.go"}},
		{"rocedrill: /dev/zero: line 1: longer than 65536 bytes: must be a name and a number\n", []string{"analyze", capture, "--counters", "198.18.0.1=/dev/zero"}},
	} {
		if code, _, diag := call(c.args...); code != exitUsage || !strings.Contains(diag, c.diag) {
			t.Errorf("%v: %d %s", c.args, code, diag)
		}
	}
}

// TestInterrupted: an interrupt ends a script in each kind of loop: while its time passes, while it computes, while it sends. The
// scripts that ran before are reported.
func TestInterrupted(t *testing.T) {
	const head = "spec \"x\" policy\nneed rc\nqp = dut.qp rc rqpsn=Q\n"
	for name, loop := range map[string]string{"waits": "wait 1ns", "computes": "x = i", "fills": "x = rand(16000000)", "sends": "< SEND_ONLY psn=Q+i", "calls": "dut.query qp state=RTS",
		"loops": "for k in 0..9999999999 { x = k }", "nothing": "ignore ANY"} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, map[string]string{"a": passing, "b": head + "for i in 0..9999999999 { " + loop + " }\n"})
			ctx, cancel := context.WithCancel(t.Context())
			out := cut.Output{Cancel: cancel}
			c := newCommand(&out, io.Discard)
			c.SetArgs([]string{"run", dir, "--repeat", "1"})
			err := c.ExecuteContext(ctx)
			if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "interrupted: 1 of 2 scripts have ended; their results are reported") ||
				!strings.Contains(out.String(), "1 passed, 0 failed") {
				t.Errorf("%v\n%s", err, out.String())
			}
		})
	}
}

// lastMoment is a device whose run passes while an interrupt arrives.
type lastMoment struct{ cancel func() }

func (d lastMoment) Run(ctx context.Context, _ *script.Script, _ uint64) (*engine.Result, error) {
	d.cancel()
	return &engine.Result{}, ctx.Err()
}

// TestInterruptedCount: the error of an interrupt counts the scripts that the report has.
func TestInterruptedCount(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var sum summary
	a := app{out: io.Discard}
	err := a.runOn(ctx, lastMoment{cancel}, []*script.Script{{Path: "a"}, {Path: "b"}}, runFlags{}, nil, &sum)
	if err == nil || !strings.Contains(err.Error(), "1 of 2 scripts have ended") || sum.Passed != 1 {
		t.Error(err, sum.Passed)
	}
}

// fakeDevice returns the flags of a device that answers requests for its MAC address, and of an agent that is a shell script. The
// agent answers every command alike, so that scripts break, and writes its process ID into the file "pid" of the folder.
func fakeDevice(t *testing.T) (flags []string, dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cli") // with a short path, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	link, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: dir + "/dut", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close() })
	go func() {
		const op, sender, target, length = 20, 22, 32, 10 // ARP
		for b := make([]byte, 2000); ; {
			n, from, err := link.ReadFromUnix(b)
			if err != nil {
				return
			}
			if n < target+length || b[12] != 8 || b[13] != 6 {
				continue
			}
			asked := bytes.Clone(b[sender : target+length])
			copy(b, asked[:6])
			copy(b[6:], "\x02\x00\x00\x00\x00\x02")
			b[op+1] = 2
			copy(b[target:], asked[:length])
			copy(b[sender:], b[6:12])
			copy(b[sender+6:], asked[length+6:])
			link.WriteToUnix(b[:n], from)
		}
	}()
	const agent = "echo $$ >$0.pid; while read n line; do echo $n ok version=5 mtu=4096 gid4=0 gid6=1 caps=rc,ipv4,ipv6 va=1 lkey=1 rkey=1 num=5; done\n"
	if err := os.WriteFile(dir+"/agent", []byte(agent), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--dut", "agent:/bin/sh " + dir + "/agent", "--link", "unix:" + dir + "/dut", "--slack", "10s"}, dir
}

// observer calls look with each text that a command prints.
type observer struct{ look func(text string) }

func (o observer) Write(b []byte) (int, error) {
	o.look(string(b))
	return len(b), nil
}

// TestReportFirst: run and model print the report before they end the device, which may take longer than an interrupt permits.
func TestReportFirst(t *testing.T) {
	for name, args := range map[string][]string{"run": {"run", folder(t, map[string]string{"a": passing})}, "model": {"model", "--steps", "1", "--keep", t.TempDir()}} {
		t.Run(name, func(t *testing.T) {
			flags, dir := fakeDevice(t)
			reported := false
			code := Main(append(args, flags...), observer{func(text string) {
				if !strings.Contains(text, " passed, ") && !strings.Contains(text, " rules failed") {
					return
				}
				reported = true
				pid, err := strconv.Atoi(strings.TrimSpace(string(read(t, dir+"/agent.pid"))))
				if err != nil || syscall.Kill(pid, 0) != nil {
					t.Errorf("the agent has ended before the report; %v", err)
				}
			}}, io.Discard)
			if !reported {
				t.Errorf("no report; exit code %d", code)
			}
		})
	}
}

// TestEndless: a file without end is refused with its name.
func TestEndless(t *testing.T) {
	for _, line := range []string{"run /dev/zero", "lint /dev/zero", "run ../suite/windows --known /dev/zero"} {
		if code, _, diag := call(strings.Fields(line)...); code != 2 || !strings.Contains(diag, "/dev/zero: longer than the limit of 16 MiB") {
			t.Errorf("%s: exit code %d: %s", line, code, diag)
		}
	}
}
