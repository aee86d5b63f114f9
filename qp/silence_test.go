package qp_test

import (
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// extendedProfiles are the profiles whose recoveries have their own timeouts.
var extendedProfiles = []string{"irn", "melo", "mp-rdma", "eunomia"}

// ask delivers a READ of one byte from the peer.
func (s *solo) ask() {
	s.t.Helper()
	read := bth.Packet{Opcode: bth.OpReadRequest, PSN: psn(0), RETH: bth.RETH{VA: soloMem, RKey: 1, Length: 1}}
	if d := s.rx(read, bth.XETH{Flags: bth.XHasReadSN}); d != qp.Accepted {
		s.t.Fatalf("%v", d)
	}
}

// responses counts the responses that the queue pair sends.
func (s *solo) responses() (n int) {
	for _, p := range s.poll() {
		if p.Opcode.IsReadResponse() {
			n++
		}
	}
	return n
}

// TestStandstill: a process that stalls for longer than all retries together loses only one retry. The peer may have
// answered long ago.
func TestStandstill(t *testing.T) {
	for _, name := range append(extendedProfiles, "rc") {
		s := newSolo(t, name, nil)
		s.post1(qp.WRWrite, 8)
		s.poll()
		s.now = s.now.Add(time.Minute)
		s.q.OnTimeout(s.now)
		if s.q.State() != qp.RTS {
			t.Errorf("%s: the peer is given up: %+v", name, s.h.SendCQ)
			continue
		}
		if name == "rc" {
			continue
		}
		s.poll()
		s.xack(1, -1)
		if len(s.h.SendCQ) != 1 || s.h.SendCQ[0].Status != qp.StatusSuccess {
			t.Errorf("%s: %+v", name, s.h.SendCQ)
		}

		s = newSolo(t, name, nil)
		s.ask()
		if s.responses() == 0 {
			t.Fatalf("%s: no response", name)
		}
		s.now = s.now.Add(time.Minute)
		s.q.OnTimeout(s.now)
		if s.responses() == 0 {
			t.Errorf("%s: the response is given up", name)
		}
	}
}

// TestGivenUp: a silent peer is given up after retry_cnt + 1 timeouts, as with RC. This holds for requests and
// responses.
func TestGivenUp(t *testing.T) {
	timeout := 4096 * time.Nanosecond << benchAttr(21).Timeout
	total := time.Duration(benchAttr(21).RetryCnt+1) * timeout
	for _, name := range extendedProfiles {
		s := newSolo(t, name, nil)
		s.post1(qp.WRWrite, 8)
		began := s.now
		if s.untilQuiet(); len(s.h.SendCQ) != 1 || s.h.SendCQ[0].Status != qp.StatusRetryExcErr {
			t.Errorf("%s: %+v", name, s.h.SendCQ)
		}
		if d := s.now.Sub(began); d < total || d > total+timeout {
			t.Errorf("%s: given up after %v, want %v", name, d, total)
		}

		s = newSolo(t, name, nil)
		s.ask()
		began = s.now
		s.untilQuiet()
		if d := s.now.Sub(began); d < total || d > total+timeout || s.q.State() != qp.RTS {
			t.Errorf("%s: a response is given up after %v, want %v", name, d, total)
		}
	}
}

// TestUnlimitedRetries: with UnlimitedRetries a silent peer is not given up.
func TestUnlimitedRetries(t *testing.T) {
	for _, name := range append(extendedProfiles, "rc") {
		s := newSolo(t, name, func(c *qp.Config) { c.UnlimitedRetries = true })
		s.post1(qp.WRWrite, 8)
		for range 100 {
			s.poll()
			s.now = s.q.NextTimeout()
			s.q.OnTimeout(s.now)
		}
		if s.q.State() != qp.RTS || len(s.h.SendCQ) != 0 || s.ctr.RetryExceededErr != 0 {
			t.Errorf("%s: %v, completions %+v", name, s.q.State(), s.h.SendCQ)
		}
	}
}

// untilQuiet advances the clock until no timer is pending.
func (s *solo) untilQuiet() {
	s.t.Helper()
	for range 1_000_000 {
		s.poll()
		next := s.q.NextTimeout()
		if next == mono.Never {
			return
		}
		s.now = max(s.now, next)
		s.q.OnTimeout(s.now)
	}
	s.t.Fatal("it never ends")
}
