package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab/bench/measure"
	"roced.io/roced/internal/lab/netlab"
)

// watched measures a build in one lab, alternating between no reader of the live page and a reader like a browser.
func (c *comparison) watched() error {
	return c.Lab(netlab.LabOptions{Bin: c.bins[1], Daemon: "web: {listen: \"127.0.0.1:0\"}\n"}, func(l *netlab.Lab) error {
		fmt.Println("| measured | unwatched | watched | watched/unwatched | range of the rounds |\n|---|--:|--:|--:|---|")
		for _, m := range kinds {
			var seen atomic.Int64
			p, err := c.alternate(&m, func(i int) (_ *netlab.Lab, stop func(), err error) {
				if i == 1 {
					stop, err = look(l, &seen)
				}
				return l, stop, err
			})
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			if seen.Load() == 0 {
				return errors.New("the page has shown nothing")
			}
			fmt.Printf("| %s | %.3g | %.3g | %.3f | %.2f-%.2f |\n", m.name, measure.Median(p.values[0]), measure.Median(p.values[1]),
				measure.Median(p.ratios), slices.Min(p.ratios), slices.Max(p.ratios))
		}
		return nil
	})
}

// look reads the streams of both daemons' pages until stop is called, and counts the bytes.
func look(l *netlab.Lab, seen *atomic.Int64) (stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
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
