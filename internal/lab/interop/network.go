package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/verbs"
)

// hasty are settings with which a requester exhausts its retries within a second.
func hasty(s *settings) { s.Timeout, s.RetryCnt = 12, 2 } // 17 ms, three transmissions

// networkTrials are the trials where the network or the peer fails.
var networkTrials = []trial{
	{"wrong P_Key in some packets", nil, "success after retransmission", func(s *trialState) error { return s.repaired(wrongPKey) }},
	{"wrong P_Key in all packets", hasty, "retry exceeded", func(s *trialState) error { return s.givesUp(wrongPKey) }},
	{"bad ICRC in some packets", nil, "success after retransmission", func(s *trialState) error { return s.repaired(badICRC) }},
	{"bad ICRC in all packets", hasty, "retry exceeded", func(s *trialState) error { return s.givesUp(badICRC) }},
	{"dead network", hasty, "retry exceeded", func(s *trialState) error { return s.givesUp(lost) }},
	{"unknown queue pair", hasty, "retry exceeded", (*trialState).unknownQP},
	{"peer destroyed in mid-message", hasty, "retry exceeded", func(s *trialState) error {
		return s.interrupted(s.resp.Close, verbs.StatusRetryExcErr)
	}},
	{"peer's queue pair fails in mid-message", hasty, "retry exceeded", func(s *trialState) error {
		return s.interrupted(s.resp.Fail, verbs.StatusRetryExcErr)
	}},
	{"own queue pair fails in mid-message", nil, "flushed; the peer stays ready", (*trialState).ownFailure},
}

// parse decodes the transport packet of an IPv4 frame; ok is false if it has none.
func parse(frame []byte) (p bth.Packet, ok bool) {
	if !isRoCE(frame) {
		return p, false
	}
	total := int(binary.BigEndian.Uint16(frame[ethLen+2:]))
	if total < ipUDPLen || ethLen+total > len(frame) {
		return p, false
	}
	err := p.Decode(frame[ethLen+ipUDPLen : ethLen+total])
	return p, err == nil
}

const (
	ethLen   = 14
	ipUDPLen = 28
	rocePort = 4791
)

// isRoCE recognizes IPv4 frames without options, the only ones that both sides send.
func isRoCE(f []byte) bool {
	return len(f) > ethLen+ipUDPLen && f[12] == 8 && f[13] == 0 && f[ethLen] == 0x45 && f[ethLen+9] == 17 &&
		binary.BigEndian.Uint16(f[ethLen+22:]) == rocePort
}

// wrongPKey puts a packet into a partition without members.
func wrongPKey(f []byte) []byte {
	binary.BigEndian.PutUint16(f[ethLen+ipUDPLen+2:], 0x9234)
	if bth.SealICRC(f[ethLen:]) != nil {
		return nil
	}
	return f
}

// badICRC damages the last byte of a packet, which belongs to the ICRC.
func badICRC(f []byte) []byte {
	end := ethLen + int(binary.BigEndian.Uint16(f[ethLen+2:]))
	if end <= len(f) {
		f[end-1] ^= 0x40
	}
	return f
}

func lost([]byte) []byte { return nil }

// towards selects the packets of the requester.
func (s *trialState) towards(toVM bool) bool { return toVM != s.weRespond }

// repaired damages some of the requester's packets.
func (s *trialState) repaired(damage func([]byte) []byte) error {
	var n atomic.Int32
	s.wire.Set(func(f []byte, toVM bool) []byte {
		if isRoCE(f) && s.towards(toVM) && n.Add(1)%3 == 1 && n.Load() < 20 {
			return damage(f)
		}
		return f
	})
	err := transfer{op: verbs.OpWrite, size: 8000, seed: 77}.run(s.connection, caseLimit(verbs.RC))
	if err == nil && n.Load() < 8 {
		err = fmt.Errorf("the wire saw %d packets only", n.Load())
	}
	return err
}

// givesUp damages all of the requester's packets, so that its retries are exhausted.
func (s *trialState) givesUp(damage func([]byte) []byte) error {
	var n atomic.Int32
	s.wire.Set(func(f []byte, toVM bool) []byte {
		if !isRoCE(f) || !s.towards(toVM) {
			return f
		}
		n.Add(1)
		return damage(f)
	})
	err := s.abandoned()
	if sent := n.Load(); err == nil && sent < 3 {
		err = fmt.Errorf("%d transmissions, want 3", sent)
	}
	return err
}

// abandoned posts requests that get no answer.
func (s *trialState) abandoned() error {
	begin := time.Now()
	if err := s.sendBoth(work{Op: verbs.OpWrite, Off: sendArea, Len: 100, Remote: recvArea}); err != nil {
		return err
	}
	err := errors.Join(ends(s.req, verbs.StatusRetryExcErr), ends(s.req, verbs.StatusWRFlushErr), inState(s.req, verbs.QPErr))
	const least = 3 * 16 * time.Millisecond // of 3 x 4.096 us x 2^12
	if d := time.Since(begin); err == nil && d < least {
		err = fmt.Errorf("gave up after %v, before %v", d, least)
	}
	return err
}

// unknownQP sends to a destroyed queue pair.
func (s *trialState) unknownQP() error {
	if err := s.resp.Close(); err != nil {
		return err
	}
	return s.abandoned()
}

// interrupted sends a long message and calls cut in the middle of it.
func (s *trialState) interrupted(cut func() error, want verbs.Status) error {
	if err := s.inMiddle(); err != nil {
		return err
	}
	return errors.Join(wrap("cut", cut()), ends(s.req, want), inState(s.req, verbs.QPErr))
}

// inMiddle starts a WRITE of 8 MiB and returns when some of its packets have passed. The rest pass slowly until the
// wire's mangler changes.
func (s *trialState) inMiddle() error {
	var n atomic.Int32
	begun := make(chan struct{})
	s.wire.Set(func(f []byte, toVM bool) []byte {
		if isRoCE(f) && s.towards(toVM) {
			if n.Add(1) == 100 {
				close(begun)
			}
			if n.Load() > 100 {
				time.Sleep(100 * time.Microsecond)
			}
		}
		return f
	})
	if err := s.req.Send(work{Op: verbs.OpWrite, Off: sendArea, Len: maxMessage, Remote: recvArea}); err != nil {
		return err
	}
	select {
	case <-begun:
		return nil
	case <-time.After(quick):
		return errors.New("the message does not begin")
	}
}

// ownFailure puts the requester into the error state in the middle of a message.
func (s *trialState) ownFailure() error {
	if err := s.inMiddle(); err != nil {
		return err
	}
	return errors.Join(wrap("fail", s.req.Fail()), ends(s.req, verbs.StatusWRFlushErr), wrap("responder", inState(s.resp, verbs.QPRTS)))
}
