package shard

import (
	"slices"
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

// Budgets of a NIC in one turn, which prevent starvation.
const (
	rxBudget = 64
	// packetBudget limits the received packets. A super-frame, which costs its sender one call, has up to 128 of them.
	packetBudget = 256
	txBudget     = 64
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
	longYield    = time.Millisecond
	inARow       = 64 // yields within which two long ones count as in a row
	contendedFor = 50 // times the duration of the yield
	maxContended = 10 * time.Second
)

// loop runs turns until the shard ends. A turn serves each NIC within its budgets, so that no NIC starves
// another. It handles commands last, and only those that were pending when it began. Programs send datagrams and
// destroy the address handle or the queue pair at once; this order sends posted work first.
//
// The loop reads the clock for each frame because programs receive time stamps. A time stamp one turn old would
// precede the transmission.
func (s *Shard) loop() {
	now := Now()
	for !s.ending {
		busy, answer := s.input(now)
		if answer {
			// On a shared core the client can only answer if it runs.
			s.yield(Now(), keepLocked)
			s.pollDoorbells(Now())
		}
		if busy, now = s.rest(busy); busy {
			s.play(now)
		} else {
			s.idle(now)
			now = Now()
		}
	}
}

// play takes a turn with work into the account of a ping-pong.
func (s *Shard) play(now mono.Time) {
	s.pong.note(now, &s.turn, s.poll)
	if s.pong.exchanges == 0 {
		s.together.unbind()
	} else if s.turn.rung > 0 {
		s.join(now, s.turn.bell)
	}
	s.turn = turn{}
}

// rest does the rest of a turn after its input. It reports whether the turn had work, and the time.
func (s *Shard) rest(busy bool) (bool, mono.Time) {
	s.rounds++
	busy = s.output() || busy
	busy = s.control(Now()) || busy
	now := Now()
	if busy {
		s.lastWork = now
	}
	return busy, now
}

// input takes doorbells and frames. It reports whether there were any, and whether the receiving client may want to
// answer at once: the acknowledgement then leaves in the same super-frame.
func (s *Shard) input(now mono.Time) (busy, answer bool) {
	for _, n := range s.nics {
		n.waiting = min(len(n.calls), callBudget)
	}
	busy = s.pollDoorbells(now)
	received, small := false, true
	for _, n := range s.nics {
		s.current = n
		if n.receive() {
			received, small = true, small && n.small
		}
	}
	return received || busy, received && small && !busy
}

// pollDoorbells handles the doorbells of all NICs.
func (s *Shard) pollDoorbells(now mono.Time) (rung bool) {
	for _, n := range s.nics {
		s.current = n
		rung = n.pollDoorbells(now) || rung
	}
	return rung
}

// output sends and runs timers. It reports whether it has done anything. Packets between NICs go first: if the
// thread had no core for a while, an acknowledgement that is due in one NIC stops the timer of another. Likewise no
// timer fires that has become due since the first packet.
func (s *Shard) output() (busy bool) {
	now := Now()
	if len(s.nics) > 1 {
		busy = s.transmit()
	}
	for _, n := range s.nics {
		s.current = n
		busy = n.nic.NextTimeout() <= now || busy
		n.nic.Advance(now)
	}
	if len(s.nics) == 1 {
		busy = s.transmit()
	}
	return busy
}

// transmit sends for all NICs. It reports whether it has sent anything.
func (s *Shard) transmit() (sent bool) {
	for _, n := range s.nics {
		s.current = n
		sent = n.transmit() || sent
	}
	return sent
}

// control runs commands and closures. It reports whether there were closures.
func (s *Shard) control(now mono.Time) (busy bool) {
	for _, n := range s.nics {
		s.current = n
		n.runCommands(now)
		busy = n.runCalls(now, n.waiting) || busy
		n.rescan(now)
		n.forwardQueries()
	}
	return busy
}

// runCalls runs pending closures of Do.
func (n *NIC) runCalls(now mono.Time, calls int) bool {
	if calls == 0 {
		return false
	}
	began := Now()
	for range calls {
		c := <-n.calls
		if c.state.CompareAndSwap(callWaiting, callTaken) {
			n.stats.Calls++
			n.runCall(c, now)
			if Now().Sub(began) > callTime {
				return true
			}
		}
	}
	return true
}

// runCall runs a closure and unblocks its caller even if the closure faults.
func (n *NIC) runCall(c *call, now mono.Time) {
	defer close(c.done)
	c.f(now, n.nic)
}

// pollDoorbells handles the doorbells of all clients in round-robin order.
func (n *NIC) pollDoorbells(now mono.Time) bool {
	rung := 0
	for range n.bells {
		if rung >= doorbellBudget {
			break
		}
		n.bellTurn = (n.bellTurn + 1) % len(n.bells)
		if b := n.bells[n.bellTurn]; b.ringing() {
			rung += b.collect(now, n.nic)
			n.shard.turn.bell = b
		}
	}
	n.shard.turn.rung += rung
	n.stats.Doorbells += uint64(rung)
	return rung > 0
}

// runCommands runs the commands that pollDoorbells has found.
func (n *NIC) runCommands(now mono.Time) {
	for _, b := range n.bells {
		if b.commanded {
			b.commanded = false
			b.commander.Command(now, n.nic)
		}
	}
}

// receive passes frames from the port to the NIC. It reports whether there were any.
func (n *NIC) receive() bool {
	frames, packets, bytes := 0, 0, 0
	for now := Now(); frames < rxBudget && packets < packetBudget && bytes < byteBudget; frames++ {
		frame, seg, err := n.port.Recv(now, n.shard.buf)
		if err != nil {
			n.nic.Received(now)
			n.linkState(now, err)
			break
		}
		bytes += len(frame)
		now = Now()
		if n.unsealing != nil && n.unsealing.Unsealed() {
			packets += n.nic.ReceiveUnsealed(now, frame, seg)
		} else {
			packets += n.nic.Receive(now, frame, seg)
		}
		if n.small = frames == 0 && len(frame) < smallFrame; n.small && n.shard.pong.on() {
			frames++ // the answer goes first; the next turn looks for more
			break
		}
	}
	if frames == 0 {
		return false
	}
	n.shard.turn.received += frames
	n.stats.RxFrames += uint64(frames)
	n.stats.RxBatches++
	return true
}

// linkState updates the link state; err is the error of Recv.
func (n *NIC) linkState(now mono.Time, err error) {
	if err != port.ErrAgain && err != port.ErrDown {
		n.stats.PortErrs++
		return
	}
	link := link.State{Up: err != port.ErrDown}
	if n.monitored != nil {
		link = n.monitored.State()
	}
	if link.Up == n.up && (link.MTU == 0 || link.MTU == n.mtu) && link.Ports == n.ports {
		return
	}
	if link.Up {
		n.nic.SetOffload(n.port.Offload())
		n.nic.SetPorts(now, link.Ports)
	}
	n.ports = link.Ports
	n.up = link.Up
	if link.MTU != 0 {
		n.mtu = link.MTU
	}
	if err := n.nic.SetLink(now, link.Up, link.MTU); err != nil {
		n.stats.PortErrs++
	}
}

// transmit sends the NIC's frames through the port. It reports whether it has sent any.
func (n *NIC) transmit() bool {
	now := Now()
	n.unsent = true
	if n.held != nil {
		if !n.send(now, n.held) {
			return false
		}
		n.lap(n.heldAt)
	}
	frames, bytes := 0, 0
	for ; frames < txBudget && bytes < byteBudget; now = n.lap(now) {
		f := n.nic.PollTransmit(now)
		if f == nil {
			n.unsent = false
			break
		}
		frames++
		bytes += f.Len
		if !n.send(now, f) {
			break
		}
	}
	if frames == 0 {
		return false
	}
	n.shard.turn.sent += frames
	n.shard.turn.bytes += bytes
	n.nic.SetOffload(n.port.Offload()) // the port may have reduced its offloads
	n.stats.TxFrames += uint64(frames)
	n.stats.TxBatches++
	return true
}

// lap returns the time, after the transmission of packets whose timers run since an instant. Packets that left late do not
// count as lost for as long.
func (n *NIC) lap(since mono.Time) mono.Time {
	now := Now()
	if d := now.Sub(since); d > longYield {
		n.nic.Delayed(now, d)
	}
	return now
}

// forwardQueries forwards the NIC's queries about the kernel's tables.
func (n *NIC) forwardQueries() {
	for q, ok := n.nic.PollQuery(); ok; q, ok = n.nic.PollQuery() {
		if n.ask != nil {
			n.ask(q)
		}
	}
}

// send sends f and reports whether the next frame may follow. If the port has no room, send copies the frame,
// because a control call may unmap the frame's memory before there is room.
func (n *NIC) send(now mono.Time, f *link.Frame) bool {
	if f.Forwarded {
		n.shard.wakeup = true // another NIC has something to do
		return true
	}
	err := n.port.Send(now, f)
	if err == port.ErrAgain || err == port.ErrLater {
		n.timed = err == port.ErrLater
		if n.held == nil {
			n.stats.TxBlocked++
			n.heldAt = now
			n.hold(f)
		}
		return false
	}
	n.held = nil
	switch err {
	case nil:
	case port.ErrDown:
		n.stats.TxDropped++
	default:
		n.stats.PortErrs++
	}
	return true
}

func (n *NIC) hold(f *link.Frame) {
	n.heldBuf = f.AppendTo(n.heldBuf[:0])
	n.heldBufs[0] = n.heldBuf
	n.heldFrm = *f
	n.heldFrm.Bufs = n.heldBufs[:]
	n.held = &n.heldFrm
}

// idle ends a turn without work. It yields while work is recent or due at once; otherwise it sleeps. On a contended
// core it polls only if polling is unlimited. In a ping-pong it polls without yields.
func (s *Shard) idle(now mono.Time) {
	if s.visited() {
		return
	}
	if s.pong.polls(now) && now >= s.contended {
		return
	}
	due := s.due()
	fresh := s.poll > 0 && now.Sub(s.lastWork) < s.poll && now >= s.contended
	if due <= now || s.poll < 0 || fresh {
		s.until = now
		s.yield(now, s.lend)
		return
	}
	wait := maxSleep
	if d := due.Sub(now); d < wait {
		wait = d
	}
	if wait > downRetry && slices.ContainsFunc(s.nics, (*NIC).down) {
		wait = downRetry
	}
	s.until = now.Add(wait)
	s.sleep(wait)
}

// yield offers the core to other threads, through lend or keepLocked, unless recent yields took long.
func (s *Shard) yield(now mono.Time, by func(func())) {
	if now < s.contended {
		return
	}
	s.yields++
	by(s.giveUp)
	end := Now()
	if took := end.Sub(now); took > longYield {
		if s.long > 0 && s.yields-s.long < inARow {
			s.contended = end.Add(min(contendedFor*took, maxContended))
		}
		s.long = s.yields
	}
}

// keepLocked is the counterpart of lend that keeps the NIC locked.
func keepLocked(wait func()) { wait() }

// due returns the time of the next timer.
func (s *Shard) due() mono.Time {
	due := mono.Never
	for _, n := range s.nics {
		due = due.Min(n.nextScan()).Min(n.nic.NextTimeout()).Min(n.port.NextTimeout())
	}
	return due
}

// sleep waits for a port, a doorbell or a closure, for at most wait. A producer publishes its work first and reads
// the sleeping word second. The shard sets the word first and checks for work second. No wakeup is lost.
func (s *Shard) sleep(wait time.Duration) {
	s.together.unbind()
	s.sleeping.Store(1)
	pending := false
	for _, n := range s.nics {
		s.ep.watch(&n.watch, n.port.FD(), n.held != nil && !n.timed)
		pending = n.setSleeping(1) || len(n.calls) > 0 || pending
	}
	if !pending && s.due() > s.until.Add(-wait) { // a port may have got a frame from another shard
		s.sleeps++
		s.lend(func() { s.ep.wait(wait) })
	}
	s.sleeping.Store(0)
	s.wakeup = false
	for _, n := range s.nics {
		n.setSleeping(0)
	}
}

// setSleeping sets the word that makes clients wake the shard. It reports whether a doorbell is pending.
func (n *NIC) setSleeping(v uint32) (pending bool) {
	for _, b := range n.bells {
		b.setSleeping(v)
		pending = b.ringing() || pending
	}
	return pending
}
