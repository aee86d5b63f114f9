package page

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"roced.io/roced/internal/lab"
)

// TestDrawings renders the drawings of the documents. Text is inside the picture and inside the box where it begins. It
// covers neither text nor lines, and is legible in light and dark.
func TestDrawings(t *testing.T) {
	lab.Need(t, "chromium")
	docs := filepath.Join(root, "docs")
	var files []string
	for _, pattern := range []string{"*.svg", "curves/*.svg", "results/papers/*.svg"} {
		some, err := filepath.Glob(filepath.Join(docs, pattern))
		lab.Must(t, err)
		if len(some) == 0 && pattern != "results/papers/*.svg" { // rows of papers that are not run have none
			t.Fatalf("no drawings: %s", pattern)
		}
		files = append(files, some...)
	}
	srv := httptest.NewServer(http.FileServer(http.Dir(docs)))
	defer srv.Close()
	p := openPage(t, 1000, 600)
	for _, file := range files {
		for _, theme := range []string{"light", "dark"} {
			p.Theme(theme)
			p.Go(srv.URL + strings.TrimPrefix(file, docs))
			if n := eval[int](p, `document.querySelectorAll("text").length`); n == 0 {
				t.Errorf("%s has no text", file)
			}
			for _, bad := range eval[[]string](p, drawn) {
				t.Errorf("%s, %s: %s", filepath.Base(file), theme, bad)
			}
		}
	}
}

// drawn lists the errors of a drawing. Positions are in the picture's coordinates.
const drawn = `(() => {
	const svg = document.documentElement, view = svg.viewBox.baseVal, bad = [], dark = matchMedia("(prefers-color-scheme: dark)").matches;
	const inside = (a, b) => a.x >= b.x && a.y >= b.y && a.x + a.width <= b.x + b.width && a.y + a.height <= b.y + b.height;
	const apart = (a, b) => a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y;
	const light = (css) => {
		const [r, g, b] = css.match(/[\d.]+/g).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const toView = svg.getScreenCTM().inverse();
	const boxOf = (e) => { // as it is seen, turned text too
		const r = e.getBoundingClientRect(), p = new DOMPoint(r.x, r.y).matrixTransform(toView), q = new DOMPoint(r.right, r.bottom).matrixTransform(toView);
		return { x: p.x, y: p.y, width: q.x - p.x, height: q.y - p.y };
	};
	const boxes = [...svg.querySelectorAll("rect")].map((e) => ({ box: boxOf(e), fill: getComputedStyle(e).fill }));
	const texts = [...svg.querySelectorAll("text")].filter((e) => e.textContent).map((e) => ({ e, box: boxOf(e), says: e.textContent }));
	const lines = [...svg.querySelectorAll("path")].map((e) => [...Array(101).keys()].map((i) => e.getPointAtLength(e.getTotalLength() * i / 100)));
	texts.forEach((t, i) => {
		if (!inside(t.box, view)) bad.push(t.says + " is cut");
		const around = boxes.filter((r) => !apart(t.box, r.box));
		for (const r of around) if (!inside(t.box, r.box)) bad.push(t.says + " runs over the edge of a box");
		for (const u of texts.slice(0, i)) if (!apart(t.box, u.box)) bad.push(t.says + " covers " + u.says);
		for (const l of lines) if (l.some((p) => p.x > t.box.x && p.x < t.box.x + t.box.width && p.y > t.box.y && p.y < t.box.y + t.box.height)) bad.push(t.says + " covers a line");
		const below = around.length ? light(around.at(-1).fill) : dark ? light("rgb(13, 17, 23)") : 1, ink = light(getComputedStyle(t.e).fill);
		const ratio = (Math.max(below, ink) + 0.05) / (Math.min(below, ink) + 0.05);
		if (ratio < 4.5) bad.push(t.says + " has a contrast of " + ratio.toFixed(2));
	});
	return bad;
})()`
