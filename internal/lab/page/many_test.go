package page

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/verbs"
)

// TestManyQueuePairs: with 1,000 queue pairs only the visible ones have rows, at any scroll position, and the last one
// is reachable.
func TestManyQueuePairs(t *testing.T) {
	const many = 1000
	s := show(t, netlab.LabOptions{Unix: true})
	dev, err := verbs.Open(filepath.Join(s.Host[0].RunDir, "uverbs0"))
	lab.Must(t, err)
	defer dev.Close()
	pd, err := dev.AllocPD()
	lab.Must(t, err)
	cq, err := dev.CreateCQ(16, nil)
	lab.Must(t, err)
	for range many {
		_, err := pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1})
		lab.Must(t, err)
	}
	s.Wait(fmt.Sprintf(`document.querySelector("#qps [role=status]").textContent === "%d queue pairs"`, many))
	// rows returns the number of rows, and whether they cover the visible part.
	const rows = `(() => {
		const v = document.querySelector("#qps .view"), rows = [...v.querySelectorAll(".row")].map((r) => r.getBoundingClientRect()), box = v.getBoundingClientRect();
		const top = Math.min(...rows.map((r) => r.top)), bottom = Math.max(...rows.map((r) => r.bottom));
		return top <= box.top + 1 && bottom >= box.bottom - 3 ? rows.length : -rows.length;
	})()`
	for i := range 21 {
		s.Do(fmt.Sprintf(`(() => { const v = document.querySelector("#qps .view"); v.scrollTop = v.scrollHeight * %d / 20; })()`, i))
		lab.Eventually(t, lab.Limit, "rows that cover the view", func() bool { return eval[int](s.Page, rows) > 0 })
		if n := eval[int](s.Page, rows); n > 30 {
			t.Errorf("%d rows", n)
		}
	}
	s.Do(`document.querySelector("#qps .table").focus()`)
	s.Press(kb.End)
	s.Wait(fmt.Sprintf(`document.querySelector("#qps [aria-selected=true]").getAttribute("aria-rowindex") === "%d"`, many+1))
	s.Do(`(() => { const f = document.querySelector("#qps input"); f.value = "RESET"; f.dispatchEvent(new Event("input")); })()`)
	s.Wait(fmt.Sprintf(`document.querySelector("#qps [role=status]").textContent === "%d queue pairs"`, many))
	s.clean()
}
