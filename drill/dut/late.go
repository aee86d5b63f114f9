package dut

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"roced.io/roced/drill/engine"
)

// lateness is the longest time by which the tester was late in a run: to send, and to read a frame or the clock.
type lateness struct{ sends, reads time.Duration }

// leastSlack is the slack of a link whose agent answers at once.
const leastSlack = 20 * time.Millisecond

// roundTrip measures the longest of several round trips of the agent, which do not reach the device.
func (s *Session) roundTrip(ctx context.Context) (longest time.Duration, err error) {
	const trips = 8
	for range trips {
		began := time.Now()
		if _, err := s.command(ctx, "ping"); err != nil {
			return 0, err
		}
		longest = max(longest, time.Since(began))
	}
	return longest, nil
}

// measure sets the slack of the session by the agent's round trip, unless the user has set it.
func (s *Session) measure(ctx context.Context) error {
	trip, err := s.roundTrip(ctx)
	if s.options.Slack == 0 {
		s.options.Slack = leastSlack + 2*trip
	}
	return err
}

// Slack returns the time that is added to each upper bound.
func (s *Session) Slack() time.Duration { return s.options.Slack }

// judge makes a run inconclusive if the tester sent late. A run that failed is also inconclusive if the tester read late, if its
// agent answers late, or if a device on this machine whose time was wrong had to wait for a processor. Late is later than the
// slack; in a run that failed also later than the shortest acknowledgement timeout, after which the device retransmits. A packet
// that came too early follows one that left late, if the device waited for longer than that.
func (s *Session) judge(ctx context.Context, r *engine.Result, waited time.Duration) error {
	late, text := s.late.sends, "the tester sent late by"
	slack, limit := s.options.Slack, "slack of %v (--slack)"
	if r.Outcome == engine.Failed && r.AckTimeout > 0 && r.AckTimeout < slack {
		slack, limit = r.AckTimeout, "device's acknowledgement timeout of %v"
	}
	switch {
	case r.Outcome != engine.Failed && r.Outcome != engine.Passed:
		return nil
	case late > slack || r.Outcome == engine.Passed:
	case s.late.reads > slack:
		late, text = s.late.reads, "the tester read late by"
	case r.Timed && waited > slack:
		late, text = waited, "the device waited for a processor for"
	case r.Early > 0 && waited > r.Early:
		late, text, slack, limit = waited, "the device waited for a processor for", r.Early, "%v by which it was too early"
	case r.Early > 0 && s.late.reads > r.Early:
		late, text, slack, limit = s.late.reads, "the tester read late by", r.Early, "%v by which the device was too early"
	default:
		var err error
		if late, err = s.roundTrip(ctx); err != nil {
			return err
		}
		text = "the agent answered after"
	}
	if late > slack {
		r.Inconclusive(fmt.Sprintf("%s %v, more than the "+limit, text, late.Round(time.Millisecond), slack))
	}
	return nil
}

// waits returns how long the threads of processes on this machine have waited for a processor.
func waits(pids []int) (sum time.Duration) {
	for _, pid := range pids {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, f := range files {
			var ran, waited time.Duration
			text, _ := os.ReadFile(f) // a thread may end meanwhile
			fmt.Sscan(string(text), &ran, &waited)
			sum += waited
		}
	}
	return sum
}
