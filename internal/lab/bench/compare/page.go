package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab/bench/measure"
	"roced.io/roced/internal/lab/netlab"
)

// Page returns the part that measures the cost of the live page.
func Page() measure.Part {
	return measure.Part{Name: "page", Short: "Measure the cost of a reader of the live page", Title: "The live page", Run: measure.Run{Seconds: 1, Rounds: 10},
		Measure: func(r *measure.Run, w io.Writer) error { return (&comparison{Run: r}).page(w) }}
}

// page measures a build in one lab, alternating between no reader of the live page and a reader like a browser.
func (c *comparison) page(w io.Writer) error {
	return c.Lab(netlab.LabOptions{Daemon: "web: {listen: \"127.0.0.1:0\"}\n"}, func(l *netlab.Lab) error {
		measure.Table(w, "measured", ">without reader", ">with reader", ">with/without", "range of the rounds")
		for _, m := range kinds {
			var seen atomic.Int64
			p, err := c.alternate(&m, func(i int) (_ *netlab.Lab, stop func(), err error) {
				if i == 1 {
					stop, err = readPages(c.Ctx, l, &seen)
				}
				return l, stop, err
			})
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			if seen.Load() == 0 {
				return errors.New("the page has sent nothing")
			}
			p.write(w, m.name)
		}
		return nil
	})
}

// readPages reads the streams of both daemons' pages until stop is called, and counts the bytes.
func readPages(ctx context.Context, l *netlab.Lab, seen *atomic.Int64) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{}, len(l.Host))
	begun := 0
	stop = func() {
		cancel()
		for range begun {
			<-done
		}
	}
	for _, h := range l.Host {
		body, err := stream(ctx, h)
		if err != nil {
			stop()
			return nil, err
		}
		begun++
		go func() {
			n, _ := io.Copy(io.Discard, body) // the copy ends with ctx
			seen.Add(n)
			body.Close()
			done <- struct{}{}
		}()
	}
	return stop, nil
}

// stream opens the event stream of a daemon's page.
func stream(ctx context.Context, h *netlab.Host) (io.ReadCloser, error) {
	admin := api.NewClient(filepath.Join(h.RunDir, api.Socket))
	defer admin.Close()
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var p api.Page
	if err := admin.Get(within, &p, "page"); err != nil {
		return nil, err
	}
	_, token, _ := strings.Cut(p.URL, "#token=")
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Address+"live?view=links&view=stat&view=res/qp&view=events&view=faults/"+h.Device, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("the page answers %s", resp.Status)
	}
	return resp.Body, nil
}
