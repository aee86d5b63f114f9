package page

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"roced.io/roced/internal/lab"
)

const root = "../../.."

// view shows a file in a browser.
func view(t *testing.T, file string) *Page {
	t.Helper()
	lab.Need(t, "chromium")
	c := lab.Launch(t, (*exec.Cmd).Start, []string{lab.Program("rocectl"), "view", file})
	lab.Must(t, c.Ready("its address", func() (bool, error) { return strings.Contains(c.Out.String(), "\n"), nil }))
	p := openPage(t, 1200, 900)
	p.Go(strings.TrimSpace(c.Out.String()))
	t.Cleanup(func() {
		c.Signal(os.Interrupt)
		if code := c.Exit(lab.Limit); code != 0 {
			t.Errorf("rocectl view: exit code %d, %s", code, &c.Diag)
		}
	})
	return p
}

// TestViewTrace shows a stored trace that is mostly idle time, and compresses the idle time.
func TestViewTrace(t *testing.T) {
	p := view(t, filepath.Join(root, "internal/observe/trace/testdata/mp-rdma.jsonl"))
	p.Wait(`document.querySelector("[data-chart=sequence] canvas")`)
	p.Wait(`document.querySelector("[data-chart=sequence] .summary").textContent.startsWith("272 sent, 112 of them again, 1 timeouts")`)
	p.Click(`#stored input[type=checkbox]`)
	p.Wait(`/\(1 pause\)/.test(document.querySelector("#stored .controls").textContent)`)
	noProblems(t, p)
}

// TestViewCapture shows a capture: its flows, its frames, and PSNs over time.
func TestViewCapture(t *testing.T) {
	p := view(t, filepath.Join(root, "bth/testdata/loss2_write.pcap"))
	p.Wait(`document.querySelectorAll("#stored .table")[1]?.querySelectorAll(".space .row").length > 5`)
	p.Wait(`document.querySelector("[data-chart=sequence] canvas")`)
	noProblems(t, p)
}

// TestViewSimulation shows a stored result of rocesim.
func TestViewSimulation(t *testing.T) {
	dir := filepath.Join(lab.Dir(t), "result")
	c := lab.Launch(t, (*exec.Cmd).Start, []string{lab.Program("rocesim"), "run", filepath.Join(root, "configs/sim/incast.yaml"), "-q", "--out", dir})
	lab.Must(t, c.Wait(lab.Limit))
	p := view(t, dir)
	p.Wait(`document.querySelector("#stored tbody tr")`)
	p.Wait(`document.querySelector("[data-chart=slowdown] canvas")`)
	noProblems(t, p)
}

// TestViewNothing: for a file that cannot be shown, the page states the reason.
func TestViewNothing(t *testing.T) {
	dir := lab.Dir(t)
	for name, text := range map[string]string{"empty": "", "text": "hello", "json": `{"a":1}`} {
		file := filepath.Join(dir, name)
		lab.Must(t, os.WriteFile(file, []byte(text), 0o600))
		c := lab.Launch(t, (*exec.Cmd).Start, []string{lab.Program("rocectl"), "view", file})
		if code := c.Exit(lab.Limit); code != 1 || !strings.HasPrefix(c.Diag.String(), "rocectl: "+file+" is ") {
			t.Errorf("%s: exit code %d, %s", name, code, &c.Diag)
		}
	}
}
