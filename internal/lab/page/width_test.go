package page

import (
	"fmt"
	"testing"

	"roced.io/roced/internal/lab/netlab"
)

// wide lists the texts that are wider than their elements: the page, titles of columns and charts, numbers of queue pairs.
const wide = `(() => {
	const bad = [];
	if (document.documentElement.scrollWidth > innerWidth) bad.push("the page: " + document.documentElement.scrollWidth);
	for (const e of document.querySelectorAll("header > *, h2, figcaption b, #qps .row.head > div, #qps .space .row > div:first-child, #qps .space .row > div:nth-child(5)"))
		if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline") bad.push(e.textContent + ": " + e.scrollWidth + " of " + e.clientWidth);
	return bad;
})()`

// TestWidths: on narrow and wide windows nothing is cut off, and one queue pair is told as one.
func TestWidths(t *testing.T) {
	s := show(t, netlab.LabOptions{})
	client, _ := s.pair("write-bw", "-s", "64k", "-q", "1", "--duration", "300s")
	defer client.Kill()
	s.Wait(`document.querySelectorAll("#qps .space .row").length === 1`)
	if text := eval[string](s.Page, `document.querySelector("#qps .state").textContent`); text != "1 queue pair" {
		t.Errorf("the page says %q", text)
	}
	for _, width := range []int64{500, 900, 1400} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			s.Size(width, 900)
			s.Wait(fmt.Sprintf("innerWidth === %d", width))
			for _, text := range eval[[]string](s.Page, wide) {
				t.Error(text)
			}
		})
	}
	s.clean()
}
