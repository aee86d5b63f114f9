package shard

import (
	"slices"
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

// Budgets of a station in one turn, which prevent starvation.
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
// busy core it may then wait up to a second. A sleeping thread keeps its credit. After two long yields in a row the
// loop therefore sleeps instead. The longer the yield took, the longer the loop avoids yields. A single long yield is an
// accident, such as a processor that a hypervisor took.
const (
	longYield  = time.Millisecond
	inARow     = 64 // yields within which two long ones count as in a row
	crowdedFor = 50 // times the duration of the yield
	maxCrowded = 10 * time.Second
)

// loop runs turns until the shard ends. A turn serves each station within its budgets, so that no station starves
// another. It handles commands last, and only those that were pending when it began. Programs send datagrams and
// destroy the address handle or the queue pair at once; this order sends posted work first.
//
// The loop reads the clock for each frame because programs receive time stamps. A time stamp one turn old would
// precede the transmission.
func (s *Shard) loop() {
	now := Now()
	for !s.ending {
		s.rounds++
		busy := s.input(now)
		busy = s.output() || busy
		now = Now()
		busy = s.control(now) || busy
		now = Now()
		if busy {
			s.lastWork = now
			continue
		}
		s.idle(now)
		now = Now()
	}
}

// input takes doorbells and frames. It reports whether there were any.
func (s *Shard) input(now mono.Time) bool {
	for _, st := range s.stations {
		st.waiting = min(len(st.calls), callBudget)
	}
	busy := s.hear(now)
	received, small := false, true
	for _, st := range s.stations {
		s.current = st
		if st.receive() {
			received, small = true, small && st.small
		}
	}
	if received && small && !busy {
		// The receiving client may want to answer at once, and the acknowledgement leaves in the same
		// super-frame. On a shared core the client can only answer if it runs.
		s.yield(Now(), kept)
		s.hear(Now())
	}
	return received || busy
}

// hear handles the doorbells of all stations.
func (s *Shard) hear(now mono.Time) (heard bool) {
	for _, st := range s.stations {
		s.current = st
		heard = st.hear(now) || heard
	}
	return heard
}

// output sends and runs timers. It reports whether it has done anything. Packets between stations go first: if the
// thread had no core for a while, an acknowledgement that is due in one station stops the timer of another. Likewise no
// timer fires that has become due since the first packet.
func (s *Shard) output() (busy bool) {
	now := Now()
	if len(s.stations) > 1 {
		busy = s.transmit()
	}
	for _, st := range s.stations {
		s.current = st
		busy = st.nic.NextTimeout() <= now || busy
		st.nic.Advance(now)
	}
	if len(s.stations) == 1 {
		busy = s.transmit()
	}
	return busy
}

// transmit sends for all stations. It reports whether it has sent anything.
func (s *Shard) transmit() (sent bool) {
	for _, st := range s.stations {
		s.current = st
		sent = st.transmit() || sent
	}
	return sent
}

// control runs commands and closures. It reports whether there were closures.
func (s *Shard) control(now mono.Time) (busy bool) {
	for _, st := range s.stations {
		s.current = st
		st.obey(now)
		busy = st.runCalls(now, st.waiting) || busy
		st.rescan(now)
		st.passQuestions()
	}
	return busy
}

// runCalls runs n pending closures of Do.
func (st *NIC) runCalls(now mono.Time, n int) bool {
	if n == 0 {
		return false
	}
	began := Now()
	for range n {
		c := <-st.calls
		if c.state.CompareAndSwap(callWaiting, callTaken) {
			st.stats.Calls++
			st.runCall(c, now)
			if Now().Sub(began) > callTime {
				return true
			}
		}
	}
	return true
}

// runCall runs a closure and unblocks its caller even if the closure faults.
func (st *NIC) runCall(c *call, now mono.Time) {
	defer close(c.done)
	c.f(now, st.nic)
}

// hear handles the doorbells of all clients in round-robin order.
func (st *NIC) hear(now mono.Time) bool {
	heard := 0
	for range st.bells {
		if heard >= hearBudget {
			break
		}
		st.listen = (st.listen + 1) % len(st.bells)
		if b := st.bells[st.listen]; b.ringing() {
			heard += b.collect(now, st.nic)
		}
	}
	st.stats.Doorbells += uint64(heard)
	return heard > 0
}

// obey runs the commands that hear has found.
func (st *NIC) obey(now mono.Time) {
	for _, b := range st.bells {
		if b.commanded {
			b.commanded = false
			b.commander.Command(now, st.nic)
		}
	}
}

// receive passes frames from the port to the NIC. It reports whether there were any.
func (st *NIC) receive() bool {
	n, bytes := 0, 0
	for now := Now(); n < rxBudget && bytes < byteBudget; n++ {
		frame, seg, err := st.port.Recv(now, st.shard.buf)
		if err != nil {
			st.linkState(now, err)
			break
		}
		bytes += len(frame)
		now = Now()
		st.nic.Receive(now, frame, seg)
		st.small = n == 0 && len(frame) < 512
	}
	if n == 0 {
		return false
	}
	st.stats.RxFrames += uint64(n)
	st.stats.RxBatches++
	return true
}

// linkState updates the link state; err is the error of Recv.
func (st *NIC) linkState(now mono.Time, err error) {
	if err != port.ErrAgain && err != port.ErrDown {
		st.stats.PortErrs++
		return
	}
	link := link.State{Up: err != port.ErrDown}
	if st.monitored != nil {
		link = st.monitored.State()
	}
	if link.Up == st.up && (link.MTU == 0 || link.MTU == st.mtu) && link.Ports == st.ports {
		return
	}
	if link.Up {
		st.nic.SetOffload(st.port.Offload())
		st.nic.SetPorts(now, link.Ports)
	}
	st.ports = link.Ports
	st.up = link.Up
	if link.MTU != 0 {
		st.mtu = link.MTU
	}
	if err := st.nic.SetLink(now, link.Up, link.MTU); err != nil {
		st.stats.PortErrs++
	}
}

// transmit sends the NIC's frames through the port. It reports whether it has sent any.
func (st *NIC) transmit() bool {
	now := Now()
	st.unsent = true
	if st.held != nil && !st.send(now, st.held) {
		return false
	}
	n, bytes := 0, 0
	for ; n < txBudget && bytes < byteBudget; now = Now() {
		f := st.nic.PollTransmit(now)
		if f == nil {
			st.unsent = false
			break
		}
		n++
		bytes += f.Len
		if !st.send(now, f) {
			break
		}
	}
	if n == 0 {
		return false
	}
	st.nic.SetOffload(st.port.Offload()) // the port may have reduced its offloads
	st.stats.TxFrames += uint64(n)
	st.stats.TxBatches++
	return true
}

// passQuestions forwards the NIC's queries about the kernel's tables.
func (st *NIC) passQuestions() {
	for q, ok := st.nic.PollQuery(); ok; q, ok = st.nic.PollQuery() {
		if st.ask != nil {
			st.ask(q)
		}
	}
}

// send sends f and reports whether the next frame may follow. If the port has no room, send copies the frame,
// because a control call may unmap the frame's memory before there is room.
func (st *NIC) send(now mono.Time, f *link.Frame) bool {
	if f.Forwarded {
		st.shard.rouse = true // another station has something to do
		return true
	}
	err := st.port.Send(now, f)
	if err == port.ErrAgain {
		if st.held == nil {
			st.stats.TxBlocked++
			st.hold(f)
		}
		return false
	}
	st.held = nil
	switch err {
	case nil:
	case port.ErrDown:
		st.stats.TxDropped++
	default:
		st.stats.PortErrs++
	}
	return true
}

func (st *NIC) hold(f *link.Frame) {
	st.heldBuf = f.AppendTo(st.heldBuf[:0])
	st.heldBufs[0] = st.heldBuf
	st.heldFrm = *f
	st.heldFrm.Bufs = st.heldBufs[:]
	st.held = &st.heldFrm
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
	if wait > downRetry && slices.ContainsFunc(s.stations, (*NIC).down) {
		wait = downRetry
	}
	s.until = now.Add(wait)
	s.sleep(wait)
}

// yield offers the core to other threads, through lend or kept, unless recent yields took long.
func (s *Shard) yield(now mono.Time, by func(func())) {
	if now < s.crowded {
		return
	}
	s.yields++
	by(s.giveUp)
	end := Now()
	if took := end.Sub(now); took > longYield {
		if s.long > 0 && s.yields-s.long < inARow {
			s.crowded = end.Add(min(crowdedFor*took, maxCrowded))
		}
		s.long = s.yields
	}
}

// kept is the counterpart of lend that keeps the NIC locked.
func kept(wait func()) { wait() }

// due returns the time of the next timer.
func (s *Shard) due() mono.Time {
	due := mono.Never
	for _, st := range s.stations {
		due = due.Min(st.nextScan()).Min(st.nic.NextTimeout()).Min(st.port.NextTimeout())
	}
	return due
}

// sleep waits for a port, a doorbell or a closure, for at most wait. A producer publishes its work first and reads
// the sleeping word second. The shard sets the word first and checks for work second. No wakeup is lost.
func (s *Shard) sleep(wait time.Duration) {
	s.sleeping.Store(1)
	pending := false
	for _, st := range s.stations {
		s.ep.watch(&st.watch, st.port.FD(), st.held != nil)
		pending = st.setSleeping(1) || len(st.calls) > 0 || pending
	}
	if !pending && s.due() > s.until.Add(-wait) { // a port may have got a frame from another shard
		s.sleeps++
		s.lend(func() { s.ep.wait(wait) })
	}
	s.sleeping.Store(0)
	s.rouse = false
	for _, st := range s.stations {
		st.setSleeping(0)
	}
}

// setSleeping sets the word that makes clients wake the shard. It reports whether a doorbell is pending.
func (st *NIC) setSleeping(v uint32) (pending bool) {
	for _, b := range st.bells {
		b.setSleeping(v)
		pending = b.ringing() || pending
	}
	return pending
}
