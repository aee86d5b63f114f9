package daemon

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/config"
)

// TestTraceWaits: one trace waits for the next queue pair, and a second one is refused. The first trace ends complete
// when its client cancels it; then another one may wait.
func TestTraceWaits(t *testing.T) {
	path, runDir := configFile(t)
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Start(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	c := api.NewClient(filepath.Join(runDir, api.Socket))
	defer c.Close()
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		body, err := c.Trace(ctx, "rxe_a", api.NextQP, false)
		if err != nil {
			t.Fatal(err)
		}
		for which, want := range map[string]string{api.NextQP: "in use", "77": "no queue pair", "x": "neither", "-1": "neither"} {
			if b, err := c.Trace(t.Context(), "rxe_a", which, false); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", which, err, want)
				if err == nil {
					b.Close()
				}
			}
		}
		cancel()
		text, err := io.ReadAll(body)
		body.Close()
		if err != nil || string(text) != `{"t":0,"event":"end"}`+"\n" {
			t.Errorf("the trace is %q, %v", text, err)
		}
	}
}
