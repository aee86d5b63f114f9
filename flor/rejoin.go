package flor

import (
	"crypto/rand"
	"encoding/binary"
	"time"

	"roced.io/roced/flor/engine"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/verbs"
)

// A failed queue pair is reconnected in the background (Flor 6). Each end takes its queue pair to INIT. It announces
// that in datagrams until it knows that the other end is connected, too. An epoch numbers these rounds: an end that
// receives a later epoch resets its queue pair and adopts that epoch.
type joinState struct {
	epoch     uint32 // epoch of the current connection
	target    uint32 // epoch of the connection in setup
	psn       uint32 // our first PSN
	peerEpoch uint32 // the peer's last announced epoch
	peerPSN   uint32 // the peer's first PSN in that epoch
	peerUp    bool   // the peer is connected in that epoch
	flushed   bool   // the queue pair is in ERR
	again     mono.Time
	wait      time.Duration
}

// Intervals between announcements; each is twice the previous one.
const (
	firstAnnounce = time.Millisecond
	lastAnnounce  = 100 * time.Millisecond
)

// control is the datagram that reconnects queue pairs. Its layout in network byte order:
//
//	 0 0xf1 | version | slot | state: 0 in INIT, 1 connected, 2 connected, and knows that the peer is
//	 4 number of the receiver's first queue pair, 4 B
//	 8 token of the receiver, 8 B
//	16 epoch, 4 B
//	20 first PSN of the sender, 4 B
type control struct {
	slot, state uint8
	to          uint32
	token       uint64
	epoch, psn  uint32
}

const (
	controlMagic = 0xf1
	controlLen   = 24
	// maxEpochs is the maximum lead of a peer's epoch.
	maxEpochs = 1 << 10
)

// States of control.
const (
	controlInit uint8 = iota
	controlUp
	controlBoth
)

func (c *control) append(b []byte) []byte {
	be := binary.BigEndian
	b = append(b, controlMagic, helloVersion, c.slot, c.state)
	b = be.AppendUint32(b, c.to)
	b = be.AppendUint64(b, c.token)
	return be.AppendUint32(be.AppendUint32(b, c.epoch), c.psn)
}

func (c *control) parse(b []byte) bool {
	if len(b) != controlLen || b[0] != controlMagic || b[1] != helloVersion {
		return false
	}
	be := binary.BigEndian
	*c = control{slot: b[2], state: b[3], to: be.Uint32(b[4:]), token: be.Uint64(b[8:]), epoch: be.Uint32(b[16:]), psn: be.Uint32(b[20:])}
	return c.slot < maxPairs && c.state <= controlBoth && c.psn>>24 == 0 && c.to>>24 == 0
}

// announce sends our state to the peer.
func (p *pair) announce(now mono.Time) {
	p.wait = min(max(2*p.wait, firstAnnounce), lastAnnounce)
	p.again = now.Add(p.wait)
	m := control{slot: uint8(p.slot), to: p.c.peerQPN, token: p.c.peerToken, epoch: p.target, psn: p.psn}
	if p.state == pairUp {
		m.state = controlUp
		if p.peerUp {
			m.state = controlBoth
		}
	}
	p.d.control = m.append(p.d.control[:0])
	p.d.datagram(p.c.peer, p.d.control)
}

// takeControl processes a datagram and reports whether it is a valid control message of a peer.
func (d *Device) takeControl(now mono.Time, from *peer, b []byte) bool {
	var m control
	if !m.parse(b) {
		return false
	}
	first := d.pairs[m.to]
	if first == nil || first.slot != 0 || first.c == nil {
		return true // of a closed connection
	}
	c := first.c
	if c.peer != from || m.token != c.token || int(m.slot) >= len(c.pairs) {
		return false
	}
	p := c.pairs[m.slot]
	if p.state == pairGone || p.going {
		return true
	}
	if m.epoch > p.target+maxEpochs {
		return false
	}
	p.follow(now, &m)
	return true
}

// follow applies the announced state of the peer.
func (p *pair) follow(now mono.Time, m *control) {
	if m.epoch < p.target {
		if p.state == pairUp || p.state == pairReady {
			p.announce(now)
		}
		return
	}
	p.peerEpoch, p.peerPSN, p.peerUp = m.epoch, m.psn, m.state != controlInit
	if m.epoch > p.target {
		p.target = m.epoch
		if p.state == pairUp {
			p.d.takeReceived()
			p.d.eng.Disconnected(now, engine.QPN(p.num))
		}
	}
	if p.state == pairUp && p.epoch == p.target {
		if m.state != controlBoth {
			p.announce(now)
		}
		if p.peerUp {
			delete(p.d.joining, p)
		}
		return
	}
	p.join()
}

// drained continues with a failed queue pair when the NIC holds none of its work requests.
func (p *pair) drained() {
	if p.state != pairLeft || !p.flushed || p.outstanding() > 0 {
		return
	}
	d := p.d
	if p.going || d.lost {
		p.remove()
		return
	}
	p.state, p.flushed = pairReset, false
	d.worker.do(func() {
		err := p.q.Modify(verbs.QPAttr{State: verbs.QPReset}, verbs.AttrState)
		if err == nil {
			err = p.initialize()
		}
		broken := err != nil && p.inError()
		d.enter()
		defer d.leave()
		p.state, p.psn, p.wait = pairReady, randomPSN(), 0
		if p.stopped(err, broken) {
			return
		}
		d.joining[p] = struct{}{}
		p.announce(d.now())
		p.join()
	})
}

// stopped handles an error of the setup and the end of the connection. It reports whether there is either. A broken
// queue pair, which failed during its setup, is set up again in a later epoch.
func (p *pair) stopped(err error, broken bool) bool {
	if broken && !p.going {
		delete(p.d.joining, p)
		p.state, p.flushed = pairLeft, true
		p.target++
		p.drained()
		return true
	}
	if err != nil {
		p.c.e.Fail(p.d.now(), err)
	}
	if p.going || err != nil {
		p.remove()
	}
	return p.state == pairGone
}

// join connects the queue pair if both ends are ready.
func (p *pair) join() {
	if p.state != pairReady || p.peerEpoch != p.target || p.d.lost {
		return
	}
	p.state = pairJoining
	d, epoch, peerPSN := p.d, p.target, p.peerPSN
	d.worker.do(func() {
		err := p.connect(p.peerQPN, peerPSN)
		broken := err != nil && p.inError()
		d.enter()
		defer d.leave()
		if p.state == pairGone || p.stopped(err, broken) {
			return
		}
		now := d.now()
		p.state, p.epoch, p.wait = pairUp, epoch, 0
		d.ctr.Reconnects++
		d.eng.Connected(now, engine.QPN(p.num))
		for i := range p.held {
			d.eng.Complete(now, &p.held[i])
		}
		p.held = p.held[:0]
		if p.target != p.epoch && p.state == pairUp { // the peer connected first
			d.eng.Disconnected(now, engine.QPN(p.num))
			return
		}
		p.announce(now)
	})
}

// inError reports whether the queue pair is in ERR. It waits for the daemon.
func (p *pair) inError() bool {
	attr, err := p.q.Query()
	return err == nil && attr.State == verbs.QPErr
}

// initialize takes the queue pair from RESET to INIT.
func (p *pair) initialize() error {
	return p.q.Modify(verbs.QPAttr{State: verbs.QPInit, Port: 1, Access: verbs.AccessLocalWrite | verbs.AccessRemoteWrite},
		verbs.AttrState|verbs.AttrPKeyIndex|verbs.AttrPort|verbs.AttrAccessFlags)
}

// connect takes the queue pair from INIT to RTS.
func (p *pair) connect(peerQPN, peerPSN uint32) error {
	rtr := verbs.AttrState | verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN
	rts := verbs.AttrState | verbs.AttrSQPSN
	if p.d.cfg.Engine.Hardware {
		rtr |= verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer
		rts |= verbs.AttrTimeout | verbs.AttrRetryCnt | verbs.AttrRNRRetry | verbs.AttrMaxRdAtomic
	}
	to := &p.c.path
	if err := p.q.Modify(verbs.QPAttr{State: verbs.QPRTR, PathMTU: to.mtu, DestQPN: peerQPN, RQPSN: peerPSN, MinRNRTimer: 12,
		AV: verbs.AHAttr{DGID: to.gid, SGIDIndex: to.sgid, HopLimit: 64}}, rtr); err != nil {
		return err
	}
	return p.q.Modify(verbs.QPAttr{State: verbs.QPRTS, SQPSN: p.psn, Timeout: p.d.cfg.Timeout, RetryCnt: retryCount, RNRRetry: 7}, rts)
}

// retryCount is the RC retry count of the NIC before the engine uses a backup queue pair (Flor 6).
const retryCount = 2

// randomPSN returns a random initial PSN.
func randomPSN() uint32 { return uint32(randomUint64()) & 0xffffff }

func randomUint64() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}
