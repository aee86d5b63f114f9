package page

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// pictures is the output folder of TestPictures.
var pictures = flag.String("pictures", "", "folder for pictures of the page, for docs/")

// TestPictures takes the pictures of docs/: a connection under loss, in light and dark.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("-args -pictures ../../../docs takes them")
	}
	s := showIn(t, 1480, netlab.LabOptions{NoOffload: true, Extra: "    profile: mp-rdma\n    congestion: {algorithm: dctcp}\n    link: {rate: 1e9}\n"})
	s.Run(0, "fault", "add", s.Host[0].Device, "tx drop p=0.002 seed=7", "rx delay 2ms p=0.5")
	client, server := s.pair("write-bw", "-s", "8k", "-q", "4", "-t", "2", "-D", "300s", "--quiet")
	s.Wait(`document.querySelectorAll("#qps .space .row").length === 4`)
	s.Do(`document.querySelector("#qps .table").focus()`)
	s.Press(kb.ArrowDown + kb.Tab + kb.Enter)
	s.Wait(`parseInt(document.querySelector("[data-chart=sequence] .summary").textContent.replace(/\D/g, "")) > 100`)
	s.Wait(`document.querySelector("[data-chart=rtt] .summary").textContent !== ""`)
	s.Do(`(() => { const f = document.querySelector(".trace select"); f.value = "1"; f.dispatchEvent(new Event("change")); })()`)
	s.Wait(`/in ([6-9]|\d\d)\.\d+\s+s/.test(document.querySelector("[data-chart=sequence] .summary").textContent)`)
	s.Press(kb.Enter)
	s.Wait(`document.querySelector(".trace .state").textContent.startsWith("Stopped.")`)
	s.Do(`document.querySelector("[data-chart=sequence]").focus()`)
	s.Press("+++++")
	for _, theme := range []string{"light", "dark"} {
		s.Theme(theme)
		s.Do(`(document.activeElement.blur(), scrollTo(0, 0))`)
		lab.Must(t, os.WriteFile(filepath.Join(*pictures, "page-"+theme+".png"), s.Picture(), 0o644))
	}
	for _, p := range []*lab.Proc{client, server} {
		p.Signal(os.Interrupt)
		p.Exit(lab.Limit)
	}
}
