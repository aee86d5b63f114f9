package daemon

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"roced.io/roced/internal/daemon/config"
)

// Rate limits of the log. A message may appear logBurst times, then once every logPause. Clients and peers can
// provoke most messages as often as they like.
const (
	logBurst = 10
	logPause = time.Second
	// logSentences limits the number of messages that are counted. Some messages contain numbers.
	logSentences = 1024
)

// limited is a slog.Handler that drops messages beyond the rate limit. The next message that passes carries the
// number of dropped ones. Debug messages are not limited.
type limited struct {
	slog.Handler
	said *sentences
}

// sentences counts the records of each message.
type sentences struct {
	sync.Mutex
	list map[string]*sentence
}

type sentence struct {
	free   int // records that may pass at once
	at     time.Time
	unsaid int
}

func newLimited(h slog.Handler) slog.Handler {
	return limited{h, &sentences{list: map[string]*sentence{}}}
}

// may reports whether a message may pass now, and how many were dropped since the last one that passed.
func (s *sentences) may(text string, now time.Time) (ok bool, unsaid int) {
	s.Lock()
	defer s.Unlock()
	e := s.list[text]
	if e == nil {
		if len(s.list) >= logSentences {
			clear(s.list)
		}
		e = &sentence{free: logBurst, at: now}
		s.list[text] = e
	}
	if n := int(now.Sub(e.at) / logPause); n > 0 {
		e.free, e.at = min(e.free+n, logBurst), e.at.Add(time.Duration(n)*logPause)
	}
	if e.free == 0 {
		e.unsaid++
		return false, 0
	}
	e.free--
	unsaid, e.unsaid = e.unsaid, 0
	return true, unsaid
}

// logOutput is a slog.Handler whose level and format can change.
type logOutput struct {
	base *atomic.Pointer[slog.Handler] // shared by all handlers that derive from one
	with func(slog.Handler) slog.Handler
}

func newLogOutput(c *config.Log) *logOutput {
	o := &logOutput{base: &atomic.Pointer[slog.Handler]{}, with: func(h slog.Handler) slog.Handler { return h }}
	o.set(c)
	return o
}

// set changes level and format.
func (o *logOutput) set(c *config.Log) {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // validated
	opts := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewTextHandler(os.Stderr, opts)
	if c.Format == "json" {
		h = slog.NewJSONHandler(os.Stderr, opts)
	}
	o.base.Store(&h)
}

// Enabled implements slog.Handler.
func (o *logOutput) Enabled(ctx context.Context, l slog.Level) bool {
	return (*o.base.Load()).Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (o *logOutput) Handle(ctx context.Context, r slog.Record) error {
	return o.with(*o.base.Load()).Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (o *logOutput) WithAttrs(a []slog.Attr) slog.Handler {
	return &logOutput{o.base, func(h slog.Handler) slog.Handler { return o.with(h).WithAttrs(a) }}
}

// WithGroup implements slog.Handler.
func (o *logOutput) WithGroup(name string) slog.Handler {
	return &logOutput{o.base, func(h slog.Handler) slog.Handler { return o.with(h).WithGroup(name) }}
}

// Handle implements slog.Handler.
func (h limited) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		ok, unsaid := h.said.may(r.Message, r.Time)
		if !ok {
			return nil
		}
		if unsaid > 0 {
			r.AddAttrs(slog.Int("unsaid", unsaid))
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h limited) WithAttrs(a []slog.Attr) slog.Handler {
	return limited{h.Handler.WithAttrs(a), h.said}
}

// WithGroup implements slog.Handler.
func (h limited) WithGroup(name string) slog.Handler {
	return limited{h.Handler.WithGroup(name), h.said}
}
