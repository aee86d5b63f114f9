package main

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"roced.io/roced/verbs"
)

// trial is one error case. run executes it over a fresh connection on the wire link.
type trial struct {
	name     string
	settings func(*settings) // changes the tolerant settings; may be nil
	want     string          // for the document
	run      func(*trialState) error
}

// trialState is the state of a trial.
type trialState struct {
	connection
	wire *wire
	// weRespond: the responder is our NIC.
	weRespond bool
}

// trials are the cases of error behaviour. The cases of a failing network are in network.go.
var trials = []trial{
	{"RNR, then a receive", nil, "success after RNR NAKs", (*trialState).receiverLate},
	{"RNR, no receive", func(s *settings) { s.RNRRetry = 2 }, "RNR retry exceeded", (*trialState).receiverNever},
	{"WRITE, bad rkey", nil, "remote access error", badKey(verbs.OpWrite)},
	{"READ, bad rkey", nil, "remote access error", badKey(verbs.OpRead)},
	{"FETCH_ADD, bad rkey", nil, "remote access error", badKey(verbs.OpFetchAdd)},
	{"WRITE, bad range", nil, "remote access error, nothing written", (*trialState).badRange},
	{"key of an invalidated window", nil, "remote access error", (*trialState).staleWindow},
	{"receive beyond its region, message fits", nil, "success", (*trialState).longReceive},
	{"receive beyond its region, message too long", nil, "remote operation error", (*trialState).longMessage},
	{"receive buffer too small", nil, "remote invalid request (0x61), or remote operation error from rxe (0x63)", (*trialState).smallBuffer},
}

// runTrials runs all trials in both directions.
func runTrials(l *lab, r *report) {
	r.begin(table{Title: "Errors", Intro: "Each on a connection of its own; another one works afterwards.",
		Head: []string{"trial", "expected of the requester", "we request", "we respond"}})
	for _, k := range append(trials, networkTrials...) {
		row := []string{k.name, k.want}
		for _, weRespond := range []bool{false, true} {
			result := "as expected"
			if err := k.try(l, weRespond); err != nil {
				result = "**differs**"
				r.failed(fmt.Sprintf("%s, we respond %t", k.name, weRespond), err)
			}
			row = append(row, result)
		}
		r.row(row...)
	}
}

// try runs a trial, and then a transfer over another connection. The transfer shows that the error affected only its
// own connection.
func (k *trial) try(l *lab, weRespond bool) error {
	var req, resp end = l.ours[linkWire], l.rxe[linkWire]
	if weRespond {
		req, resp = resp, req
	}
	s := tolerantSettings(verbs.RC, verbs.MTU1024, false)
	if k.settings != nil {
		k.settings(&s)
	}
	c, err := connect(req, resp, s)
	if err == nil {
		err = k.run(&trialState{connection: c, wire: l.wire, weRespond: weRespond})
	}
	l.wire.Set(nil)
	err = errors.Join(err, c.Close())
	after, err2 := connect(req, resp, tolerantSettings(verbs.RC, verbs.MTU1024, false))
	if err2 == nil {
		err2 = transfer{op: verbs.OpWrite, size: 5000, seed: 1}.run(after, 20*time.Second)
	}
	return errors.Join(err, wrap("afterwards", err2), after.Close())
}

// quick is the time limit of short operations.
const quick = 20 * time.Second

// ends waits for one completion of e and checks its status.
func ends(e end, want ...verbs.Status) error {
	wcs, err := e.Poll(1, quick)
	if err != nil {
		return err
	}
	if len(wcs) == 0 {
		return fmt.Errorf("no completion, want %v", want)
	}
	for _, w := range want {
		if wcs[0].Status == w {
			return nil
		}
	}
	return fmt.Errorf("completion with %v, want %v", wcs[0].Status, want)
}

func inState(e end, want verbs.QPState) error {
	s, err := e.State()
	if err == nil && s != want {
		err = fmt.Errorf("queue pair is in %v, want %v", s, want)
	}
	return err
}

// refused expects the first request to end with one of the statuses, the second to be flushed, and both queue pairs in
// the error state.
func (s *trialState) refused(want ...verbs.Status) error {
	return errors.Join(wrap("first request", ends(s.req, want...)), wrap("second request", ends(s.req, verbs.StatusWRFlushErr)),
		wrap("requester", inState(s.req, verbs.QPErr)), wrap("responder", inState(s.resp, verbs.QPErr)))
}

// sendBoth posts a request and a harmless one behind it.
func (s *trialState) sendBoth(w work) error {
	return errors.Join(s.req.Send(w), s.req.Send(work{ID: w.ID + 1, Op: verbs.OpWrite, Off: sendArea, Len: 8, Remote: recvArea}))
}

func badKey(op verbs.Opcode) func(*trialState) error {
	return func(s *trialState) error {
		n := 3000
		if isAtomic(op) {
			n = 8
		}
		if err := s.sendBoth(work{Op: op, Off: sendArea, Len: n, Remote: recvArea, RKey: 0xdead00}); err != nil {
			return err
		}
		return s.refused(verbs.StatusRemAccessErr)
	}
}

func (s *trialState) badRange() error {
	const n = 3000
	err := errors.Join(s.req.Fill(sendArea, n, 1, 0), s.resp.Fill(bufferSize-lastBytes, lastBytes, 2, 0))
	if err != nil {
		return err
	}
	if err := s.sendBoth(work{Op: verbs.OpWrite, Off: sendArea, Len: n, Remote: bufferSize - lastBytes}); err != nil {
		return err
	}
	return errors.Join(s.refused(verbs.StatusRemAccessErr), wrap("memory", s.resp.Check(bufferSize-lastBytes, lastBytes, 2, 0)))
}

func (s *trialState) staleWindow() error {
	key, err := s.resp.Window(wordArea, 64)
	if err != nil {
		return err
	}
	within := work{Op: verbs.OpWrite, Off: sendArea, Len: 64, Remote: wordArea, RKey: key}
	if err := s.req.Send(within); err != nil {
		return err
	}
	if err := wrap("open", ends(s.req, verbs.StatusSuccess)); err != nil {
		return err
	}
	err = errors.Join(s.resp.Recv(1, recvArea, 64), s.req.Send(work{Op: verbs.OpSendWithInv, Off: sendArea, Len: 64, Imm: key}),
		wrap("invalidate", ends(s.req, verbs.StatusSuccess)), wrap("receive", ends(s.resp, verbs.StatusSuccess)))
	if err != nil {
		return err
	}
	if err := s.sendBoth(within); err != nil {
		return err
	}
	return s.refused(verbs.StatusRemAccessErr)
}

// lastBytes is the length of the end of the region in the trials with requests beyond it.
const lastBytes = 1500

// longReceive posts a receive that ends behind the region. Only the bytes that arrive count.
func (s *trialState) longReceive() error {
	const at = bufferSize - lastBytes
	return errors.Join(s.req.Fill(sendArea, lastBytes, 1, 0), s.resp.Recv(1, at, 2*lastBytes),
		s.req.Send(work{Op: verbs.OpSend, Off: sendArea, Len: lastBytes}), wrap("request", ends(s.req, verbs.StatusSuccess)),
		wrap("receive", ends(s.resp, verbs.StatusSuccess)), s.resp.Check(at, lastBytes, 1, 0))
}

func (s *trialState) longMessage() error {
	err := errors.Join(s.resp.Recv(1, bufferSize-lastBytes, 2*lastBytes), s.sendBoth(work{Op: verbs.OpSend, Off: sendArea, Len: lastBytes + 1}))
	if err != nil {
		return err
	}
	local := verbs.StatusLocProtErr
	if !s.weRespond { // rxe departs from IBTA 9.9.3
		local = verbs.StatusLocQPOpErr
	}
	return errors.Join(s.refused(verbs.StatusRemOpErr), wrap("receive", ends(s.resp, local)))
}

func (s *trialState) smallBuffer() error {
	if err := errors.Join(s.resp.Recv(1, recvArea, 1500), s.sendBoth(work{Op: verbs.OpSend, Off: sendArea, Len: 3000})); err != nil {
		return err
	}
	remote, local := verbs.StatusRemInvReqErr, verbs.StatusLocLenErr
	if !s.weRespond { // rxe departs from IBTA 9.9.3
		remote, local = verbs.StatusRemOpErr, verbs.StatusLocQPOpErr
	}
	return errors.Join(s.refused(remote), wrap("receive", ends(s.resp, local)))
}

// receiverLate posts a receive only after some RNR NAKs.
func (s *trialState) receiverLate() error {
	var naks atomic.Int32
	seen := make(chan struct{})
	s.wire.Set(func(f []byte, _ bool) []byte {
		if p, ok := parse(f); ok && p.Opcode.IsAck() && !p.Opcode.IsAtomicAck() && p.AETH.Syndrome.IsRNR() && naks.Add(1) == 2 {
			close(seen)
		}
		return f
	})
	t := transfer{op: verbs.OpSend, size: 3000, seed: 5}
	err := errors.Join(s.req.Fill(sendArea, t.size, t.seed, 0), s.req.Send(work{Op: t.op, Off: sendArea, Len: t.size}))
	if err != nil {
		return err
	}
	select {
	case <-seen:
	case <-time.After(quick):
		return errors.New("no RNR NAKs")
	}
	return errors.Join(s.resp.Recv(1, recvArea, t.size), wrap("request", ends(s.req, verbs.StatusSuccess)),
		wrap("receive", ends(s.resp, verbs.StatusSuccess)), s.resp.Check(recvArea, t.size, t.seed, 0))
}

func (s *trialState) receiverNever() error {
	if err := s.sendBoth(work{Op: verbs.OpSend, Off: sendArea, Len: 100}); err != nil {
		return err
	}
	return errors.Join(ends(s.req, verbs.StatusRNRRetryExcErr), ends(s.req, verbs.StatusWRFlushErr), inState(s.req, verbs.QPErr),
		wrap("responder", inState(s.resp, verbs.QPRTS)))
}
