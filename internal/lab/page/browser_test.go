package page

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"roced.io/roced/internal/lab"
)

// Page is a page in a separate browser: Debian's Chromium, without a window and without access to other hosts.
type Page struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	problems []string
}

// openPage starts a browser with an empty page of the given size in pixels.
func openPage(t testing.TB, width, height int) *Page {
	t.Helper()
	lab.Need(t, "chromium")
	// The browser writes its profile until it exits, which is later than the request to exit.
	dir, err := os.MkdirTemp("", "browser")
	lab.Must(t, err)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"), chromedp.UserDataDir(dir), chromedp.WindowSize(width, height),
		chromedp.NoSandbox, chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	ctx, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, endTab := chromedp.NewContext(ctx)
	p := &Page{t: t, ctx: ctx}
	t.Cleanup(func() {
		endTab()
		end()
		os.RemoveAll(dir)
	})
	lab.Must(t, chromedp.Do(ctx))
	p.listen()
	return p
}

// listen collects the page's problems: errors of scripts and of requests, and policy violations.
func (p *Page) listen() {
	_, err := chromedp.Call(p.ctx, log.Enable, cdp.Empty{})
	lab.Must(p.t, err)
	entries, thrown := chromedp.Events(p.ctx, log.EntryAdded), chromedp.Events(p.ctx, runtime.ExceptionThrown)
	said := chromedp.Events(p.ctx, runtime.ConsoleAPICalled)
	go func() {
		for e, err := range entries {
			if err != nil {
				return
			}
			p.problem(fmt.Sprintf("%v: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
		}
	}()
	go func() {
		for e, err := range thrown {
			if err != nil {
				return
			}
			text, _ := json.Marshal(e.ExceptionDetails)
			p.problem(string(text))
		}
	}()
	go func() {
		for e, err := range said {
			if err != nil {
				return
			}
			text, _ := json.Marshal(e.Args)
			p.problem(fmt.Sprintf("console.%v: %s", e.Type, text))
		}
	}()
}

func (p *Page) problem(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, text)
}

// Problems returns the page's problems since the last call.
func (p *Page) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.problems
	p.problems = nil
	return out
}

// Size sets the size of the window in pixels.
func (p *Page) Size(width, height int64) {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
	lab.Must(p.t, err)
}

// Theme renders the page as on a system with dark or light colours.
func (p *Page) Theme(name string) {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
	lab.Must(p.t, err)
}

// Downloads sets the folder for downloads, under the names that the page gives them. A file may exist before it is
// complete.
func (p *Page) Downloads(dir string) {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{
		Behavior: browser.SetDownloadBehaviorBehaviorAllow, DownloadPath: dir})
	lab.Must(p.t, err)
}

// Go loads an address.
func (p *Page) Go(url string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, lab.Limit)
	defer cancel()
	lab.Must(p.t, chromedp.Do(ctx, chromedp.Navigate(url)))
}

// Press sends keys to the focused element. Package kb of chromedp has the keys without a letter.
func (p *Page) Press(keys string) {
	p.t.Helper()
	lab.Must(p.t, chromedp.Do(p.ctx, chromedp.KeyEvent(keys)))
}

// eval returns the value of an expression.
func eval[T any](p *Page, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, lab.Limit)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// Do evaluates an expression and ignores its value.
func (p *Page) Do(expression string) {
	p.t.Helper()
	eval[bool](p, "("+expression+", true)")
}

// Click clicks the first element that matches a selector. The element must exist.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.Wait(fmt.Sprintf("document.querySelector(%q) !== null", selector))
	p.Do(fmt.Sprintf("document.querySelector(%q).click()", selector))
}

// Wait waits until an expression is true.
func (p *Page) Wait(expression string) {
	p.t.Helper()
	lab.Eventually(p.t, lab.Limit, expression, func() bool { return eval[bool](p, "Boolean("+expression+")") })
}

// Picture returns the window's contents as PNG.
func (p *Page) Picture() []byte {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, lab.Limit)
	defer cancel()
	r, err := chromedp.Call(ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{})
	lab.Must(p.t, err)
	return r.Data
}
