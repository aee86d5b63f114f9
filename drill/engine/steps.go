package engine

import (
	"fmt"
	"strings"
	"time"

	"roced.io/roced/drill/frame"
	"roced.io/roced/drill/script"
	"roced.io/roced/plugin/mono"
)

// running is the state of the current statement.
type running struct {
	until         mono.Time     // when the statement ends or fails without further input
	within, after time.Duration // bounds, 0 for none
	base          mono.Time     // from which its bounds count
	taken         []bool        // packets of the group that have come
	next          int           // packet of an ordered group that comes next
	many          bool          // a "+" packet has come at least once

	retry   mono.Time // until then a query whose answer differs is repeated
	pending *command  // query to repeat at until
}

// agentLimit bounds the time of one command.
const agentLimit = 20 * time.Second

// begin starts a statement.
func (e *Engine) begin(now mono.Time, s script.Stmt) {
	e.current.until = now
	switch s := s.(type) {
	case *script.Assign:
		if e.objects[s.Name] {
			e.fail(s.Pos, "%s is an object of the device", s.Name)
		}
		v := e.eval(s.Value)
		e.used -= uint64(len(e.env[s.Name].bytes))
		e.uses(s.Pos, s.Name, uint64(len(v.bytes)))
		e.env[s.Name] = v
	case *script.Ignore:
		e.uses(s.Pos, "the list of ignored packets", entryBytes)
		e.ignored = append(e.ignored, &s.Packet)
	case *script.Send:
		f := e.build(&s.Packet)
		if e.checkFrame(s.Pos, f.Bytes); e.result != nil {
			return
		}
		e.record(now, ToDUT, f, "")
		e.out = append(e.out, Output{Frame: f.Bytes})
		e.sends(f)
		e.requested(f)
		e.setLabel(s.Packet.Label, now, f)
	case *script.Call:
		e.beginCall(now, s)
	case *script.Expect:
		e.current.taken = make([]bool, len(s.Packets))
		if len(s.Packets) == 1 && s.Packets[0].Optional {
			e.uses(s.Pos, "the list of optional packets", entryBytes)
			e.permitted = append(e.permitted, &s.Packets[0])
			return
		}
		e.bound(s.Time)
	case *script.Either:
		e.bound(script.Time{})
		for _, branch := range s.Branches {
			until := e.current.until
			e.bound(branch[0].(*script.Expect).Time)
			e.current.until = max(until, e.current.until)
		}
	case *script.Pause:
		e.current.until = now.Add(e.duration(s.For))
	case *script.Print:
		v := e.eval(s.Value)
		e.measure(s.Pos, s.Text, v)
	case *script.For:
		first, last := e.number(s.First), e.number(s.Last)
		if first <= last {
			e.env[s.Var] = numberOf(first)
			e.levels = append(e.levels, level{body: s.Body, loop: s, i: first, last: last})
		}
	}
}

// beginCall sends a command to the agent, unless the engine answers the verb itself.
func (e *Engine) beginCall(now mono.Time, c *script.Call) {
	k := e.prepare(c)
	if k.verb.local {
		e.bound(c.Time)
		return
	}
	e.current.retry = now.Add(e.o.Slack)
	e.record(now, ToDUT, nil, k.line)
	e.ackTimeout(k)
	e.ask(now, k)
	e.setLabel(c.Label, now, nil)
}

// ackTimeout notes the shortest acknowledgement timeout of the device's queue pairs, 4.096 us * 2^timeout (IBTA 9.7.6.1.3).
func (e *Engine) ackTimeout(k *command) {
	if t := k.keys["timeout"].num; t > 0 && t < 32 && (e.shortest == 0 || 4096<<t < e.shortest) {
		e.shortest = 4096 << t
	}
}

// ask sends a command to the agent.
func (e *Engine) ask(now mono.Time, k *command) {
	e.command, e.current.pending = k, nil
	e.current.until = now.Add(agentLimit)
	e.out = append(e.out, Output{Command: e.addressed(k)})
}

// addressed returns the line of a command, with the path of the run where the command needs one.
func (e *Engine) addressed(k *command) string {
	line := k.line
	path := k.call.Verb == "qp" || k.call.Verb == "ah" || k.call.Verb == "modify" && k.keys["state"].text == "RTR" && e.service(k.object) != "ud"
	if e.v6() && (path || k.verb.manages) {
		line += " ip=6"
	}
	if _, named := k.keys["vlan"]; path && !named && e.o.VLAN != 0 {
		line += fmt.Sprintf(" vlan=%d", e.o.VLAN)
	}
	if _, named := k.keys["sl"]; path && !named && e.o.SL != 0 {
		line += fmt.Sprintf(" sl=%d", e.o.SL)
	}
	return line
}

// progress continues a statement and reports whether it has ended.
func (e *Engine) progress(now mono.Time, s script.Stmt) bool {
	switch s := s.(type) {
	case *script.Call:
		if !verbs[s.Verb].local {
			if e.command != nil && now >= e.current.until {
				e.finish(Broken, s.Pos, fmt.Sprintf("the agent does not answer %q within %v", e.command.line, agentLimit))
			}
			if k := e.current.pending; k != nil && now >= e.current.until {
				e.ask(now, k)
			}
			return e.command == nil && e.current.pending == nil
		}
		return e.progressLocal(now, s)
	case *script.Expect:
		return e.progressExpect(now, s)
	case *script.Either:
		return e.progressEither(now, s)
	case *script.Pause:
		if s.Quiet {
			e.permitAll()
		}
		if s.Quiet && len(e.frames) > 0 {
			e.finish(Failed, s.Pos, fmt.Sprintf("the device is not quiet; it sent %v", e.frames[0].frame))
			return false
		}
		if now < e.current.until {
			return false
		}
		e.previous, e.quiet = now, e.quiet || s.Quiet
		return true
	}
	return true
}

// permitAll takes the oldest frames that an optional packet or an ignore statement allows.
func (e *Engine) permitAll() {
	for len(e.frames) > 0 && e.permit(e.frames[0].frame) {
	}
}

// permit reports whether an optional packet or an ignore statement allows the oldest frame, and takes it with the optional packet.
func (e *Engine) permit(f *frame.Frame) bool {
	for i, k := range e.permitted {
		if _, ok := e.matches(f, k, k.Fields); ok {
			e.permitted = append(e.permitted[:i:i], e.permitted[i+1:]...)
			if k.Label != "" {
				e.labels[k.Label] = label{e.frames[0].at, f}
			}
			e.frames = e.frames[1:]
			return true
		}
	}
	if !e.isIgnored(f) {
		return false
	}
	e.frames = e.frames[1:]
	return true
}

// isIgnored reports whether an ignore statement names the frame.
func (e *Engine) isIgnored(f *frame.Frame) (yes bool) {
	e.guard(func() {
		for _, k := range e.ignored {
			if _, ok := e.matches(f, k, k.Fields); ok {
				yes = true
			}
		}
	})
	return yes
}

// progressExpect matches frames with the packets of a group.
func (e *Engine) progressExpect(now mono.Time, s *script.Expect) bool {
	if len(s.Packets) == 1 && s.Packets[0].Optional {
		return true
	}
	for len(e.frames) > 0 && !e.complete(s) {
		r := e.frames[0]
		i, why := e.choose(s, r.frame)
		if i < 0 && e.permit(r.frame) {
			continue
		}
		if i < 0 {
			e.wanted = e.expected(s)
			e.finish(Failed, s.Pos, fmt.Sprintf("expected %s; the device sent %v: %s", e.wanted, r.frame, why))
			return false
		}
		if !e.inTime(r, s) {
			return false
		}
		e.frames = e.frames[1:]
		e.take(s, i, r)
	}
	if e.complete(s) {
		return true
	}
	if now >= e.current.until {
		if e.over(s) {
			return true
		}
		e.wanted = e.expected(s)
		e.untimely(s.Pos, "expected %s; the device sent nothing within %v%s", e.wanted, e.waited(), e.besides())
	}
	return false
}

// progressEither takes the branch whose first packet the device sends.
func (e *Engine) progressEither(now mono.Time, s *script.Either) bool {
	var list, reasons []string
	for len(e.frames) > 0 {
		f := e.frames[0].frame
		for _, branch := range s.Branches {
			first := branch[0].(*script.Expect)
			e.current.taken = make([]bool, len(first.Packets))
			i, why := e.choose(first, f)
			if i >= 0 {
				e.levels = append(e.levels, level{body: branch})
				return true
			}
			list, reasons = append(list, e.expected(first)), append(reasons, why)
		}
		if !e.permit(f) {
			e.wanted = strings.Join(list, " or ")
			e.finish(Failed, s.Pos, fmt.Sprintf("expected %s; the device sent %v: %s", e.wanted, f, strings.Join(reasons, "; ")))
			return false
		}
		list, reasons = nil, nil
	}
	if now >= e.current.until {
		e.untimely(s.Pos, "expected the first packet of a branch; the device sent nothing within %v%s", e.current.until.Sub(e.began)-e.o.Slack, e.besides())
	}
	return false
}

// waited returns how long a statement has waited, without the slack.
func (e *Engine) waited() time.Duration {
	if c := e.current; c.within > 0 {
		return c.within
	}
	return e.o.Limit + e.current.after
}

// choose returns the packet of the group that the frame matches, -1 for none, with the reason.
func (e *Engine) choose(s *script.Expect, f *frame.Frame) (int, string) {
	why := ""
	for i := e.current.next; i < len(s.Packets); i++ {
		if e.current.taken[i] && !s.Packets[i].Many {
			continue
		}
		reason, ok := e.matches(f, &s.Packets[i], s.Packets[i].Fields)
		if ok {
			return i, ""
		}
		if why == "" {
			why = reason
		}
		passable := s.Packets[i].Optional || s.Packets[i].Many && e.current.many && s.Packets[i].Until == nil
		if !s.Any && !passable {
			break
		}
	}
	return -1, why
}

// take records that packet i has come.
func (e *Engine) take(s *script.Expect, i int, r received) {
	k := &s.Packets[i]
	e.setLabel(k.Label, r.at, r.frame)
	e.current.taken[i] = true
	if s.Any {
		return
	}
	if e.current.next != i {
		e.current.next, e.current.many = i, false
	}
	if !k.Many {
		e.current.next++
		return
	}
	e.current.many = true
	if k.Until != nil {
		if _, ok := e.matches(r.frame, k, k.Until); ok {
			e.current.next, e.current.many = i+1, false
		}
	}
}

// complete reports whether no further packet of the group may come.
func (e *Engine) complete(s *script.Expect) bool {
	if !s.Any {
		return e.current.next == len(s.Packets)
	}
	for i := range s.Packets {
		if !e.current.taken[i] {
			return false
		}
	}
	return true
}

// over reports whether all packets of the group that have to come have come.
func (e *Engine) over(s *script.Expect) bool {
	for i := e.current.next; i < len(s.Packets); i++ {
		k := &s.Packets[i]
		came := e.current.taken[i] && (k.Until == nil || s.Any)
		if !k.Optional && !came {
			return false
		}
	}
	return true
}

// inTime checks the bounds of a packet that matches.
func (e *Engine) inTime(r received, s *script.Expect) bool {
	c := e.current
	d := r.at.Sub(c.base)
	switch {
	case c.after > 0 && d < c.after:
		e.early(s.Pos, r.frame, d, c.after)
	case c.within > 0 && d > c.within+e.o.Slack:
		e.untimely(s.Pos, "%v came after %v, too late: at most %v are permitted", r.frame, d, c.within)
	default:
		if c.after > 0 {
			e.measure(s.Pos, frame.OpcodeName(r.frame.Opcode)+" after", durationOf(d))
		}
		return true
	}
	return false
}
