package shard

import (
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/rocev2"
)

// Budgets of one turn, so that nothing starves the rest.
const (
	rxBudget   = 64
	txBudget   = 64
	callBudget = 16
	// callTime is how long closures may take in a turn. One that takes longer is the last.
	callTime = 100 * time.Microsecond
)

// Longest waits.
const (
	maxSleep  = time.Hour
	downRetry = 100 * time.Millisecond // between looks at a link that is gone
)

// In Linux 6.18 who yields forfeits his claim to the core (EEVDF: his virtual time becomes his deadline), and may be
// without it for a second where several want it. Who sleeps keeps his claim. So once a yield has taken long, the loop
// sleeps instead, and the longer it was, the longer before it dares to yield again.
const (
	longYield  = time.Millisecond
	crowdedFor = 50 // times what the yield has taken
	maxCrowded = 10 * time.Second
)

// loop turns until the shard ends. Commands that were there when a turn began come last in it:
// programs send datagrams and destroy the address handle, or the queue pair, at once, and what
// they have posted before leaves before. The clock is read for each frame, since programs are
// told when it came or went: a time that is a turn old would be before it was sent.
func (s *Shard) loop() {
	now := Now()
	for !s.ending {
		s.stats.Rounds++
		calls := min(len(s.calls), callBudget)
		busy := s.hear(now)
		received := s.receive()
		if received && s.small && !busy {
			// The client that this was for may want to answer at once, and our
			// acknowledgement leaves in the same super-frame. On a shared core it
			// can only do so if it runs.
			s.yield(Now(), kept)
			s.hear(Now())
		}
		busy = received || busy
		s.nic.Advance(Now())
		busy = s.transmit() || busy
		now = Now()
		s.obey(now)
		busy = s.runCalls(now, calls) || busy
		s.rescan(now)
		s.passQuestions()
		now = Now()
		if busy {
			s.lastWork = now
			continue
		}
		s.idle(now)
		now = Now()
	}
}

// runCalls runs n of the closures of Do that wait.
func (s *Shard) runCalls(now mono.Time, n int) bool {
	if n == 0 {
		return false
	}
	began := Now()
	for range n {
		c := <-s.calls
		if c.state.CompareAndSwap(callWaiting, callTaken) {
			s.stats.Calls++
			s.runCall(c, now)
			if Now().Sub(began) > callTime {
				return true
			}
		}
	}
	return true
}

// runCall answers its caller even if the closure faults.
func (s *Shard) runCall(c *call, now mono.Time) {
	defer close(c.done)
	c.f(now, s.nic)
}

// hear passes on doorbells of all clients, who take turns.
func (s *Shard) hear(now mono.Time) bool {
	heard := 0
	for range s.bells {
		if heard >= hearBudget {
			break
		}
		s.listen = (s.listen + 1) % len(s.bells)
		if b := s.bells[s.listen]; b.ringing() {
			heard += b.collect(now, s.nic)
		}
	}
	s.stats.Doorbells += uint64(heard)
	return heard > 0
}

// obey carries out the commands that hear has found.
func (s *Shard) obey(now mono.Time) {
	for _, b := range s.bells {
		if b.commanded {
			b.commanded = false
			b.commander.Command(now, s.nic)
		}
	}
}

// receive takes frames from the port.
func (s *Shard) receive() bool {
	n := 0
	for now := Now(); n < rxBudget; n++ {
		size, seg, err := s.port.Recv(now, s.buf)
		if err != nil {
			s.linkState(now, err)
			break
		}
		now = Now()
		s.nic.Receive(now, s.buf[:size], seg)
		s.small = n == 0 && size < 512
	}
	if n == 0 {
		return false
	}
	s.stats.RxFrames += uint64(n)
	s.stats.RxBatches++
	return true
}

// linkState follows the link; err is why Recv has no frame.
func (s *Shard) linkState(now mono.Time, err error) {
	if err != port.ErrAgain && err != port.ErrDown {
		s.stats.PortErrs++
		return
	}
	link := port.LinkState{Up: err != port.ErrDown}
	if s.monitored != nil {
		link = s.monitored.State()
	}
	if link.Up == s.up && (link.MTU == 0 || link.MTU == s.mtu) {
		return
	}
	if link.Up {
		s.nic.SetOffload(s.port.Offload())
	}
	s.up = link.Up
	if link.MTU != 0 {
		s.mtu = link.MTU
	}
	if err := s.nic.SetLink(now, link.Up, link.MTU); err != nil {
		s.stats.PortErrs++
	}
}

// transmit gives the NIC's frames to the port.
func (s *Shard) transmit() bool {
	now := Now()
	s.unsent = true
	if s.held != nil && !s.send(now, s.held) {
		return false
	}
	n := 0
	for ; n < txBudget; now = Now() {
		f := s.nic.PollTransmit(now)
		if f == nil {
			s.unsent = false
			break
		}
		n++
		if !s.send(now, f) {
			break
		}
	}
	if n == 0 {
		return false
	}
	s.nic.SetOffload(s.port.Offload()) // the port may have learnt that it takes less
	s.stats.TxFrames += uint64(n)
	s.stats.TxBatches++
	return true
}

// passQuestions passes on what the NIC wants to know of the kernel's tables.
func (s *Shard) passQuestions() {
	for q, ok := s.nic.PollQuery(); ok; q, ok = s.nic.PollQuery() {
		if s.ask != nil {
			s.ask(q)
		}
	}
}

// send passes f to the port and reports whether the next one may follow. A frame
// that the port has no room for is copied, because control calls may come before
// there is room and take the memory away that it is made of.
func (s *Shard) send(now mono.Time, f *rocev2.Frame) bool {
	err := s.port.Send(now, f)
	if err == port.ErrAgain {
		if s.held == nil {
			s.stats.TxBlocked++
			s.hold(f)
		}
		return false
	}
	s.held = nil
	switch err {
	case nil:
	case port.ErrDown:
		s.stats.TxDropped++
	default:
		s.stats.PortErrs++
	}
	return true
}

func (s *Shard) hold(f *rocev2.Frame) {
	s.heldBuf = f.AppendTo(s.heldBuf[:0])
	s.heldBufs[0] = s.heldBuf
	s.heldFrm = *f
	s.heldFrm.Bufs = s.heldBufs[:]
	s.held = &s.heldFrm
}

// idle ends a turn that found nothing: it yields while work is fresh or due at
// once, else it sleeps. On a core that others want it only polls if it is never to sleep.
func (s *Shard) idle(now mono.Time) {
	due := s.due()
	fresh := s.poll > 0 && now.Sub(s.lastWork) < s.poll && now >= s.crowded
	if due <= now || s.poll < 0 || fresh {
		s.until = now
		s.yield(now, s.lend)
		return
	}
	wait := maxSleep
	if d := due.Sub(now); d < wait {
		wait = d
	}
	if s.port.FD() < 0 && wait > downRetry {
		wait = downRetry
	}
	s.until = now.Add(wait)
	s.sleep(wait)
}

// yield gives the core to whoever else wants it, by lend or kept, unless that has taken long of late.
func (s *Shard) yield(now mono.Time, by func(func())) {
	if now < s.crowded {
		return
	}
	s.stats.Yields++
	by(s.giveUp)
	end := Now()
	if took := end.Sub(now); took > longYield {
		s.crowded = end.Add(min(crowdedFor*took, maxCrowded))
	}
}

// kept is lend of a NIC that the loop keeps.
func kept(wait func()) { wait() }

// due is when there is something to do at the latest, if nothing comes in before.
func (s *Shard) due() mono.Time {
	return s.nextScan().Min(s.nic.NextTimeout()).Min(s.port.NextTimeout())
}

// sleep waits for the port, a doorbell or a closure, or until wait has passed.
// Whoever has something for the shard looks at the sleeping words after saying
// so; the shard looks for it after setting them. Neither can be missed.
func (s *Shard) sleep(wait time.Duration) {
	s.ep.watch(s.port.FD(), s.held != nil)
	s.sleeping.Store(1)
	pending := len(s.calls) > 0
	for _, b := range s.bells {
		b.setSleeping(1)
		pending = b.ringing() || pending
	}
	if !pending {
		s.stats.Sleeps++
		s.lend(func() { s.ep.wait(wait) })
	}
	s.sleeping.Store(0)
	s.rouse = false
	for _, b := range s.bells {
		b.setSleeping(0)
	}
}
