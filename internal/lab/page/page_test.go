package page

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"roced.io/roced/bth"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/observe/decode"
)

func TestMain(m *testing.M) { lab.LongMain(m, nil) }

// served is the configuration of a daemon with a page.
const served = "web: {listen: \"127.0.0.1:0\", control: true}\n"

// shown is a lab, and the page of its first daemon.
type shown struct {
	*lab.Lab
	*Page
}

func show(t *testing.T, o netlab.LabOptions) *shown {
	t.Helper()
	return showIn(t, 1000, o)
}

// showIn is show in a window of the given height.
func showIn(t *testing.T, height int, o netlab.LabOptions) *shown {
	t.Helper()
	lab.Need(t, "chromium")
	o.Daemon = served
	s := &shown{Lab: lab.New(t, o)}
	s.Page = openPage(t, 1400, height)
	s.Go(lab.Query[api.Page](s.Lab, 0, "page").URL)
	s.Wait(`document.getElementById("status").textContent === "live"`)
	return s
}

// clean fails if the page has logged a problem or has contacted a host other than its own server. The browser logs
// every violation of the policy.
func (s *shown) clean() {
	s.T.Helper()
	noProblems(s.T, s.Page)
}

func noProblems(t testing.TB, p *Page) {
	t.Helper()
	for _, text := range p.Problems() {
		t.Error(text)
	}
	const others = `performance.getEntriesByType("resource").map((e) => e.name).filter((n) => !n.startsWith(location.origin + "/") && !n.startsWith("blob:")).join()`
	if text := eval[string](p, others); text != "" {
		t.Errorf("the page has asked %s", text)
	}
}

// pair starts roceperf between the hosts.
func (s *shown) pair(args ...string) (client, server *lab.Proc) {
	s.T.Helper()
	dir, err := os.MkdirTemp(s.Dir, "o")
	lab.Must(s.T, err)
	sock := filepath.Join(dir, "s")
	side := func(i int) []string {
		return append(append([]string{lab.Program("roceperf")}, args...), "--oob", "unix:"+sock, "--run-dir", s.Host[i].RunDir)
	}
	server = s.Start(1, side(1)...)
	lab.Must(s.T, server.Ready("it listens", func() (bool, error) { _, err := os.Stat(sock); return err == nil, nil }))
	return s.Start(0, append(side(0), "peer")...), server
}

// transfer runs roceperf until it exits.
func (s *shown) transfer(args ...string) {
	s.T.Helper()
	client, server := s.pair(args...)
	lab.Must(s.T, client.Wait(lab.Limit))
	lab.Must(s.T, server.Wait(lab.Limit))
}

// counter returns the value of a counter on the page, digits only.
func (s *shown) counter(name string) string {
	s.T.Helper()
	s.Do(`document.querySelector("#counters input[type=checkbox]").checked = true`)
	s.Do(fmt.Sprintf(`(() => { const f = document.querySelector("#counters input[type=search]"); f.value = %q; f.dispatchEvent(new Event("input")); })()`, name))
	return eval[string](s.Page, fmt.Sprintf(`[...document.querySelectorAll("#counters .space .row")].filter((r) => r.children[0].textContent === %q)
		.map((r) => r.children[1].textContent.replace(/\D/g, "")).join()`, name))
}

// TestPage tests the page over real traffic between two namespaces.
func TestPage(t *testing.T) {
	s := show(t, netlab.LabOptions{NoOffload: true, Extra: "    profile: mp-rdma\n"})
	s.numbers()
	s.rule()
	s.failure()
	s.connection()
	s.flows()
	s.capture()
	s.linkDown()
	s.clean()
}

// numbers: after the traffic ends, the page's numbers become those of rocectl stat.
func (s *shown) numbers() {
	s.T.Helper()
	s.transfer("write-bw", "-s", "64k", "-n", "50", "-q", "2")
	for _, name := range []string{"port_xmit_packets", "port_rcv_packets", "sent_pkts", "rcvd_pkts", "rdma_sends", "retransmitted_packets", "unicast_xmit_packets"} {
		lab.Eventually(s.T, lab.Limit, "the page's number of "+name, func() bool {
			want, ok := lab.Query[[]api.Stat](s.Lab, 0, "stat")[0].Counters[name]
			return ok && s.counter(name) == fmt.Sprint(want)
		})
	}
	if n := lab.Query[[]api.Stat](s.Lab, 0, "stat")[0].Counters["sent_pkts"]; n < 1000 {
		s.T.Errorf("%d packets were sent", n)
	}
}

// rule: a rule typed into the page drops a packet, shows its hit, and is removed.
func (s *shown) rule() {
	s.T.Helper()
	before := lab.Query[[]api.Stat](s.Lab, 0, "stat")[0].Counters["retransmitted_packets"]
	s.Do(`document.querySelector("#faults input").focus()`)
	s.Press("tx drop psn=+3 n=1" + kb.Enter)
	s.Wait(`document.querySelector("#faults tbody td")?.textContent === "tx drop psn=+3 n=1"`)
	s.transfer("write-bw", "-s", "64k", "-n", "10")
	s.Wait(`document.querySelector("#faults tbody tr").cells[2].textContent === "1"`)
	rules := lab.Query[[]api.FaultRule](s.Lab, 0, "fault", "list", s.Host[0].Device)
	if len(rules) != 1 || rules[0].Rule != "tx drop psn=+3 n=1" || rules[0].Hit != 1 {
		s.T.Errorf("the rules are %+v", rules)
	}
	if after := lab.Query[[]api.Stat](s.Lab, 0, "stat")[0].Counters["retransmitted_packets"]; after == before {
		s.T.Error("nothing was sent again: the packet was not dropped")
	}
	s.Do(`document.querySelector("#faults input").focus()`)
	s.Press("tx explode" + kb.Enter)
	s.Wait(`document.querySelector("#faults [role=alert]").textContent.includes("explode")`)
	s.Problems() // the browser logs the answer, 400
	s.Click(`#faults tbody button`)
	s.Wait(`document.querySelector("#faults tbody tr") === null`)
	if rules := lab.Query[[]api.FaultRule](s.Lab, 0, "fault", "list", s.Host[0].Device); len(rules) != 0 {
		s.T.Errorf("the rules are %+v", rules)
	}
}

// connection: the keyboard alone selects, traces and draws a queue pair.
func (s *shown) connection() {
	s.T.Helper()
	client, server := s.pair("write-bw", "-s", "16k", "-t", "4", "-D", "300s", "--quiet")
	s.Wait(`document.querySelector("#qps .space .row")`)
	qp := lab.Query[[]api.Resource](s.Lab, 0, "res", "show", "qp")
	s.Wait(fmt.Sprintf(`document.querySelectorAll("#qps .space .row").length === %d`, len(qp)))
	s.Do(`document.querySelector("#qps .table").focus()`)
	s.Press(kb.ArrowDown)
	s.Wait(`document.querySelector("#qps [aria-selected=true]").id === document.querySelector("#qps .table").getAttribute("aria-activedescendant")`)
	s.Wait(fmt.Sprintf(`document.querySelector("#qp h3").textContent === "Queue pair %s"`, bth.QPN(qp[0].QP.Num).Text()))
	s.Press(kb.Tab + kb.Enter) // Tab moves to the button
	s.Wait(`document.querySelector(".trace button").textContent === "Stop trace"`)
	for _, chart := range []string{"sequence", "rtt", "window"} {
		s.Wait(fmt.Sprintf(`!document.querySelector("[data-chart=%s]").hidden && document.querySelector("[data-chart=%s] canvas")`, chart, chart))
	}
	s.Wait(`parseInt(document.querySelector("[data-chart=sequence] .summary").textContent.replace(/\D/, "")) > 100`)
	s.Press(kb.Enter)
	s.Wait(`document.querySelector(".trace .state").textContent.startsWith("Stopped.")`)
	s.Wait(`!document.querySelectorAll(".trace button")[1].disabled`)
	s.zoomed()
	for _, p := range []*lab.Proc{client, server} {
		p.Signal(os.Interrupt)
		p.Exit(lab.Limit)
	}
	s.Wait(`document.querySelectorAll("#qps .space .row").length === 0`)
}

// failure: the page shows why a queue pair has failed, although its program destroys it at once.
func (s *shown) failure() {
	s.T.Helper()
	client, server := s.pair("write-bw", "-s", "16k", "-D", "300s", "--quiet")
	s.Wait(`document.querySelector("#qps .space .row")`)
	s.Click(`#qps .space .row`)
	s.Wait(`document.querySelector("#qp p.state").textContent.startsWith("RC RTS")`)
	ctl := func(args ...string) {
		lab.Must(s.T, s.Start(0, append([]string{lab.Program("rocectl"), "--run-dir", s.Host[0].RunDir, "fault"}, args...)...).Wait(lab.Limit))
	}
	ctl("add", s.Host[0].Device, "tx drop")
	client.Fails(lab.Limit, "transport retry counter exceeded")
	s.Wait(`document.querySelector("#qp p.state").textContent.endsWith("after an error: transport retry counter exceeded.")`)
	s.Wait(`document.querySelector("#events [data-event=completion_error]").textContent.includes("transport retry counter exceeded")`)
	ctl("clear", s.Host[0].Device)
	server.Kill()
}

// zoomed: the keys of a chart change the visible range of all charts.
func (s *shown) zoomed() {
	s.T.Helper()
	const part = `document.querySelector("[data-chart=rtt]").getAttribute("aria-description")`
	s.Do(`document.querySelector("[data-chart=sequence]").focus()`)
	seen := []string{eval[string](s.Page, part)}
	for _, key := range []string{"+", kb.ArrowRight, "-"} {
		s.Press(key)
		seen = append(seen, eval[string](s.Page, part))
	}
	for i := 1; i < len(seen); i++ {
		if seen[i] == seen[i-1] {
			s.T.Errorf("a key does nothing: %q", seen)
		}
	}
	s.Press("0")
	if now := eval[string](s.Page, part); now != seen[0] {
		s.T.Errorf("0 shows %s, not %s", now, seen[0])
	}
}

// flows: while frames are watched, the page shows a connection with its volume.
func (s *shown) flows() {
	s.T.Helper()
	s.Click(`#flows button`)
	s.Wait(`document.querySelector("#flows button").textContent === "Stop"`)
	const messages = 30
	s.transfer("write-bw", "-s", "4k", "-n", fmt.Sprint(messages))
	s.Wait(fmt.Sprintf(`[...document.querySelectorAll("#flows .space .row")].some((r) => parseInt(r.children[4].textContent) >= %d && r.children[2].textContent === "mp-rdma")`, messages))
	s.Click(`#flows button`)
	s.Wait(`document.querySelector("#flows button").textContent === "Watch"`)
}

// capture: a capture that is started and stopped on the page is downloaded, and has the frames sent meanwhile.
func (s *shown) capture() {
	s.T.Helper()
	dir := s.T.TempDir()
	s.Downloads(dir)
	s.Click(`#capture button`)
	s.Wait(`document.querySelector("#capture button").textContent === "Stop and download"`)
	lab.Eventually(s.T, lab.Limit, "the capture", func() bool {
		return eval[bool](s.Page, `document.querySelector("#capture .state").textContent !== ""`) // its first block has arrived
	})
	const messages = 20
	s.transfer("write-bw", "-s", "4k", "-n", fmt.Sprint(messages), "-q", "1")
	s.Click(`#capture button`)
	file := filepath.Join(dir, s.Host[0].Device+".pcapng")
	var text strings.Builder
	lab.Eventually(s.T, lab.Limit, "the download", func() bool { // browsers create an empty file first
		f, err := os.Open(file)
		if err != nil {
			return false
		}
		defer f.Close()
		text.Reset()
		_, err = decode.Stream(f, &text, decode.Options{})
		return err == nil
	})
	if n := strings.Count(text.String(), "WRITE"); n < messages {
		s.T.Errorf("%d packets of WRITEs are in the capture:\n%s", n, text.String())
	}
}

// linkDown: an asynchronous event arrives together with the port's new state.
func (s *shown) linkDown() {
	s.T.Helper()
	s.Output(0, "ip", "link", "set", "tap_a", "down")
	s.Wait(`document.querySelector("#events li[data-event=port_error]")`)
	s.Wait(`document.querySelector("#nics [role=tab]").dataset.state === "DOWN"`)
}

// TestColours: the page follows the system's dark or light theme until the user selects another. Text is legible (WCAG
// 2, 1.4.3: a contrast of 4.5).
func TestColours(t *testing.T) {
	s := show(t, netlab.LabOptions{Unix: true})
	const background = `getComputedStyle(document.body).backgroundColor`
	seen := map[string]string{}
	for _, theme := range []string{"light", "dark"} {
		s.Theme(theme)
		seen[theme] = eval[string](s.Page, background)
		if bad := eval[string](s.Page, contrast); bad != "" {
			t.Errorf("%s: %s", theme, bad)
		}
	}
	if seen["light"] == seen["dark"] {
		t.Errorf("backgrounds %v", seen)
	}
	s.Click("#theme")
	if now := eval[string](s.Page, background); now != seen["light"] {
		t.Errorf("the button has made it %s of %v", now, seen)
	}
	for _, e := range []string{"button", "input", "select"} { // all have a name
		unnamed := fmt.Sprintf(`[...document.querySelectorAll(%q)].filter((e) => !(e.textContent.trim() || e.ariaLabel || e.labels?.length)).map((e) => e.outerHTML).join()`, e)
		if text := eval[string](s.Page, unnamed); text != "" {
			t.Errorf("without a name: %s", text)
		}
	}
	s.clean()
}

// contrast lists colour variables that are hard to read on cards.
const contrast = `(() => {
	const css = getComputedStyle(document.documentElement), probe = document.createElement("i");
	document.body.append(probe);
	const light = (name) => {
		probe.style.color = css.getPropertyValue("--" + name);
		const [r, g, b] = getComputedStyle(probe).color.match(/[\d.]+/g).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
	const bad = [];
	for (const on of ["card", "page"]) for (const name of ["ink", "quiet", "accent", "blue", "green", "red", "violet", "orange"]) {
		const r = ratio(light(name), light(on));
		if (r < 4.5) bad.push(name + " on " + on + ": " + r.toFixed(2));
	}
	probe.remove();
	return bad.join();
})()`

// TestWithoutToken: on a loopback address without a token the page shows the public data, and no controls that change
// state.
func TestWithoutToken(t *testing.T) {
	s := show(t, netlab.LabOptions{Unix: true})
	s.Do(`sessionStorage.clear()`)
	s.Go(lab.Query[api.Page](s.Lab, 0, "page").Address)
	s.Wait(`document.getElementById("status").textContent === "live"`)
	s.Wait(`document.querySelector("#nics [role=tab]")`)
	const parts = `[...document.querySelectorAll("section:not([hidden])")].map((s) => s.id).join(" ")`
	if got := eval[string](s.Page, parts); got != "nics traffic qps qp counters faults events" {
		t.Errorf("shown are %s", got)
	}
	s.Wait(`document.getElementById("qp").textContent.includes("With its token, this page also shows PSNs")`)
	if eval[bool](s.Page, `document.querySelector("#faults form") !== null`) {
		t.Error("there is a form for rules")
	}
	if url := eval[string](s.Page, "location.href"); strings.Contains(url, "token") {
		t.Errorf("the address is %s", url)
	}
	s.clean()
}
