package shard

import (
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/rocev2"
)

// Budgets of one turn, which prevent starvation.
const (
	rxBudget = 64
	txBudget = 64
	// byteBudget limits the bytes of a direction. The last frame of a turn may exceed it. A new doorbell waits for a turn
	// of each direction, and so does the acknowledgement of a received packet.
	byteBudget = 256 << 10
	callBudget = 16
	// callTime limits the time for closures in a turn. A closure that exceeds it is the last of the turn.
	callTime = 100 * time.Microsecond
)

// Longest waits.
const (
	maxSleep  = time.Hour
	downRetry = 100 * time.Millisecond // between checks of a link that is gone
)

// In Linux 6.18 a yielding thread loses its scheduling credit (EEVDF moves its virtual time to its deadline). On a
// busy core it may then wait up to a second. A sleeping thread keeps its credit. After a long yield the loop
// therefore sleeps instead. The longer the yield took, the longer the loop avoids yields.
const (
	longYield  = time.Millisecond
	crowdedFor = 50 // times the duration of the yield
	maxCrowded = 10 * time.Second
)

// loop runs turns until the shard ends. A turn handles commands last, and only those that were pending when it
// began. Programs send datagrams and destroy the address handle or the queue pair at once; this order sends posted
// work first.
//
// The loop reads the clock for each frame because programs receive time stamps. A time stamp one turn old would
// precede the transmission.
func (s *Shard) loop() {
	now := Now()
	for !s.ending {
		s.stats.Rounds++
		calls := min(len(s.calls), callBudget)
		busy := s.hear(now)
		received := s.receive()
		if received && s.small && !busy {
			// The receiving client may want to answer at once, and the acknowledgement leaves in the same
			// super-frame. On a shared core the client can only answer if it runs.
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

// runCalls runs n pending closures of Do.
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

// runCall runs a closure and unblocks its caller even if the closure faults.
func (s *Shard) runCall(c *call, now mono.Time) {
	defer close(c.done)
	c.f(now, s.nic)
}

// hear handles the doorbells of all clients in round-robin order.
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

// obey runs the commands that hear has found.
func (s *Shard) obey(now mono.Time) {
	for _, b := range s.bells {
		if b.commanded {
			b.commanded = false
			b.commander.Command(now, s.nic)
		}
	}
}

// receive passes frames from the port to the NIC. It reports whether there were any.
func (s *Shard) receive() bool {
	n, bytes := 0, 0
	for now := Now(); n < rxBudget && bytes < byteBudget; n++ {
		size, seg, err := s.port.Recv(now, s.buf)
		if err != nil {
			s.linkState(now, err)
			break
		}
		bytes += size
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

// linkState updates the link state; err is the error of Recv.
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

// transmit sends the NIC's frames through the port. It reports whether it has sent any.
func (s *Shard) transmit() bool {
	now := Now()
	s.unsent = true
	if s.held != nil && !s.send(now, s.held) {
		return false
	}
	n, bytes := 0, 0
	for ; n < txBudget && bytes < byteBudget; now = Now() {
		f := s.nic.PollTransmit(now)
		if f == nil {
			s.unsent = false
			break
		}
		n++
		bytes += f.Len
		if !s.send(now, f) {
			break
		}
	}
	if n == 0 {
		return false
	}
	s.nic.SetOffload(s.port.Offload()) // the port may have reduced its offloads
	s.stats.TxFrames += uint64(n)
	s.stats.TxBatches++
	return true
}

// passQuestions forwards the NIC's queries about the kernel's tables.
func (s *Shard) passQuestions() {
	for q, ok := s.nic.PollQuery(); ok; q, ok = s.nic.PollQuery() {
		if s.ask != nil {
			s.ask(q)
		}
	}
}

// send sends f and reports whether the next frame may follow. If the port has no room, send copies the frame,
// because a control call may unmap the frame's memory before there is room.
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

// idle ends a turn without work. It yields while work is recent or due at once; otherwise it sleeps. On a contended
// core it polls only if polling is unlimited.
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

// yield offers the core to other threads, through lend or kept, unless a recent yield took long.
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

// kept is the counterpart of lend that keeps the NIC locked.
func kept(wait func()) { wait() }

// due returns the time of the next timer.
func (s *Shard) due() mono.Time {
	return s.nextScan().Min(s.nic.NextTimeout()).Min(s.port.NextTimeout())
}

// sleep waits for the port, a doorbell or a closure, for at most wait. A producer publishes its work first and reads
// the sleeping word second. The shard sets the word first and checks for work second. No wakeup is lost.
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
