package engine

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"roced.io/roced/drill/script"
	"roced.io/roced/plugin/mono"
)

// completion is a completion of the device, as the agent reports it.
type completion struct {
	fields map[string]string
	at     mono.Time
}

// String returns the completion in the notation of dut.cqe.
func (c completion) String() string {
	text := fmt.Sprintf("wr=%s %s", c.fields["wr"], c.fields["status"])
	for _, k := range []string{"op", "len", "imm", "inv", "peer"} {
		if c.fields[k] != "" {
			text += fmt.Sprintf(" %s=%s", k, c.fields[k])
		}
	}
	return text
}

// has reports whether the completion has this status. ERROR stands for every status but SUCCESS.
func (c completion) has(status string) bool {
	return c.fields["status"] == status || status == "ERROR" && c.fields["status"] != "SUCCESS"
}

// event is an event of the device.
type event struct {
	on, kind string
	fields   map[string]string
	private  []byte // of a message of the connection manager
	at       mono.Time
	follows  bool // from the statements before it
}

// completed takes the report of a completion.
func (e *Engine) completed(now mono.Time, fields map[string]string) {
	c := completion{fields, now}
	e.record(now, FromDUT, nil, "cqe "+c.String())
	on, i := fields["on"], 0
	queues := e.completions[on]
	if fields["queue"] == "recv" {
		i = 1
	}
	queues[i] = append(queues[i], c)
	e.completions[on] = queues
	e.broken[on] = e.broken[on] || !c.has("SUCCESS")
	if why := e.completionRules(c, i == 1); why != "" {
		e.finish(Failed, e.pos(), fmt.Sprintf("the completion is %v: %s", c, why))
	}
}

// answered takes the answer to the command.
func (e *Engine) answered(now mono.Time, a map[string]string) {
	k := e.command
	e.command = nil
	if k.fails() {
		e.finish(Failed, k.call.Pos, fmt.Sprintf("dut.%s: the device does what it has to refuse", k.call.Verb))
		return
	}
	if k.verb.creates {
		e.create(k, a)
	}
	if why := e.compare(k, a); why != "" && now < e.current.retry {
		e.current.pending, e.current.until = k, now.Add(retryPause)
		return
	} else if why != "" {
		e.untimely(k.call.Pos, "%s", why)
	}
	if k.call.Verb == "destroy" {
		delete(e.objects, k.object)
		delete(e.completions, k.object)
		e.used -= e.sizes[k.object]
		delete(e.sizes, k.object)
	}
	if k.call.Verb == "modify" && k.keys["state"].text == "RESET" {
		delete(e.completions, k.object)
	}
	e.follow(k)
	e.record(now, FromDUT, nil, "ok")
}

// create makes the attributes of a new object known: numbers under "name.key".
func (e *Engine) create(k *command, a map[string]string) {
	name := k.call.Name
	e.objects[name] = true
	for key, text := range a {
		v, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			e.finish(Broken, k.call.Pos, fmt.Sprintf("the agent answers %s=%s to dut.%s, which is not a number of 64 bits", key, text, k.call.Verb))
			return
		}
		e.env[name+"."+key] = numberOf(v)
	}
	if k.call.Verb == "mr" {
		b := make([]byte, min(k.keys["size"].num, maxBytes))
		if k.keys["fill"].text == "count" {
			count(b)
		}
		e.regions[name] = b
	}
}

// retryPause is the time between two queries of a device that is still busy.
const retryPause = time.Millisecond

// compare checks the answer of query, check and counter. It returns how the answer differs.
func (e *Engine) compare(k *command, a map[string]string) string {
	switch {
	case k.call.Verb == "counter":
		return counterDiffers(k, a)
	case k.call.Verb == "check":
		got, err := hex.DecodeString(a["data"])
		want := k.keys["data"].bytes
		if err != nil || !bytes.Equal(got, want) {
			return fmt.Sprintf("%s holds %x, expected %x%s", memoryName(k), clip(got), clip(want), firstDifference(got, want))
		}
		return ""
	case !k.verb.compare:
		return ""
	}
	for _, name := range sortedKeys(k.keys) {
		want := k.keys[name]
		if got := a[name]; got != want.encode() {
			return fmt.Sprintf("%s of %s is %s, expected %s", name, k.object, got, want.encode())
		}
	}
	return ""
}

func memoryName(k *command) string {
	if len(k.parts) == 0 {
		return "memory"
	}
	p := k.parts[0]
	return fmt.Sprintf("%s[%d:%d]", p.region, p.from, p.to)
}

// clip shortens bytes for messages.
func clip(b []byte) []byte { return b[:min(len(b), 16)] }

// firstDifference says where two byte strings differ.
func firstDifference(a, b []byte) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("; the first difference is at byte %d", i)
		}
	}
	return fmt.Sprintf("; they have %d and %d bytes", len(a), len(b))
}

// counterDiffers compares how much a counter has grown.
func counterDiffers(k *command, a map[string]string) string {
	n, err := strconv.ParseUint(a["value"], 0, 64)
	low, atLeast := k.keys["min"]
	high, atMost := k.keys["max"]
	if err != nil || atLeast && n < low.num || atMost && n > high.num {
		return fmt.Sprintf("counter %s has grown by %s", k.word, a["value"])
	}
	return ""
}

// fails reports whether the device has to refuse the command.
func (k *command) fails() bool { return k.keys[failsKey].num != 0 }

// refused takes the agent's error. A device that refuses a verb fails the test. An agent that lacks the verb or a key ends the run.
func (e *Engine) refused(now mono.Time, text string) {
	e.record(now, FromDUT, nil, "error "+text)
	if strings.HasPrefix(text, "no verb ") || strings.HasPrefix(text, "the agent has no key ") {
		e.finish(Broken, e.command.call.Pos, "the agent answers: "+text)
		return
	}
	if e.command.fails() {
		e.command = nil
		return
	}
	e.finish(Failed, e.command.call.Pos, fmt.Sprintf("dut.%s: the device answers: %s", e.command.call.Verb, text))
	e.command = nil
}

// progressLocal waits for a completion or an event.
func (e *Engine) progressLocal(now mono.Time, c *script.Call) bool {
	k := e.prepare(c)
	if c.Verb == "event" {
		for i, v := range e.events {
			if v.on == k.object && v.kind == k.word {
				if want := k.keys["private"].bytes; !bytes.HasPrefix(v.private, want) {
					e.finish(Failed, c.Pos, fmt.Sprintf("%s has the private data %x, expected %x%s", v.kind, clip(v.private), clip(want), firstDifference(v.private, want)))
					return false
				}
				for _, name := range sortedKeys(k.keys) {
					if want := k.keys[name]; name != "private" && v.fields[name] != want.encode() {
						e.finish(Failed, c.Pos, fmt.Sprintf("%s of %s is %s, expected %s", name, v.kind, v.fields[name], want.encode()))
						return false
					}
				}
				e.events = append(e.events[:i:i], e.events[i+1:]...)
				e.told[v.on+" "+v.kind] = true
				return e.reportedInTime(now, v.at, k, "the event "+v.kind)
			}
		}
	} else if e.completes(now, k) {
		return true
	}
	if e.result == nil && now >= e.current.until {
		e.untimely(c.Pos, "expected dut.%s within %v; the device reports %s", k.line, e.waited(), e.reported(k.object))
	}
	return false
}

// reportedInTime checks that a report has not come too early.
func (e *Engine) reportedInTime(now, at mono.Time, k *command, what string) bool {
	after := e.current.after
	if d := at.Sub(e.current.base); after > 0 && d < after {
		e.early(k.call.Pos, what, d, after)
		return false
	} else if after > 0 {
		e.measure(k.call.Pos, what+" after", durationOf(d))
	}
	e.setLabel(k.call.Label, now, nil)
	return true
}

// completes takes the oldest completion of the queue whose work request the command names.
func (e *Engine) completes(now mono.Time, k *command) bool {
	queues := e.completions[k.object]
	for i, queue := range queues {
		wr, named := k.keys["wr"]
		if len(queue) == 0 || named && queue[0].fields["wr"] != wr.encode() {
			continue
		}
		c := queue[0]
		if !c.has(k.word) {
			e.finish(Failed, k.call.Pos, fmt.Sprintf("the completion is %v, expected %s", c, k.word))
			return false
		}
		for _, name := range sortedKeys(k.keys) {
			if got, want := c.fields[name], k.keys[name].encode(); got != want {
				e.finish(Failed, k.call.Pos, fmt.Sprintf("the completion is %v, expected %s=%s", c, name, want))
				return false
			}
		}
		queues[i] = queue[1:]
		_, whole := k.keys["len"]
		for _, name := range []string{"imm", "inv"} {
			if _, named := k.keys[name]; whole && !named && c.fields[name] != "" {
				e.finish(Failed, k.call.Pos, fmt.Sprintf("the completion is %v, which has %s= that the script does not name", c, name))
				return false
			}
		}
		e.completions[k.object] = queues
		return e.reportedInTime(now, c.at, k, fmt.Sprintf("the completion %v", c))
	}
	return false
}

// reported lists the completions and events of an object that no statement has taken.
func (e *Engine) reported(qp string) string {
	text := ""
	for _, queue := range e.completions[qp] {
		for _, c := range queue {
			text += fmt.Sprintf(" [%v]", c)
		}
	}
	for _, v := range e.events {
		if v.on == qp {
			text += " [event " + v.kind + "]"
		}
	}
	if text == "" {
		return "nothing"
	}
	return text[1:]
}

// permitsEvent reports whether an event that no statement expects may come. It may follow from what the script does: an error
// event from an error that the device has reported otherwise, others once from a verb on the same object that asks for them.
func (e *Engine) permitsEvent(v event) (yes bool) {
	key := v.on + " " + v.kind
	defer func() { e.told[key] = e.told[key] || yes }()
	switch v.kind {
	case "QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR":
		return e.broken[v.on] || !e.objects[v.on]
	case "COMM_EST":
		return e.asked[v.on+" RTR"] && !e.told[key]
	case "SQ_DRAINED":
		return e.asked[v.on+" SQD"] && !e.told[key]
	case "QP_LAST_WQE_REACHED":
		return e.asked[v.on+" srq"] && e.fell(v.on) && !e.told[key]
	case "SRQ_LIMIT_REACHED":
		return e.asked[v.on+" limit"] && !e.told[key]
	}
	return false
}

// fell reports whether a queue pair has been in error, by what the script did or the device reported.
func (e *Engine) fell(qp string) bool {
	fatal := func(kind string) bool { return e.told[qp+" "+kind] }
	return e.broken[qp] || e.asked[qp+" ERR"] || !e.objects[qp] || slices.ContainsFunc([]string{"QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR"}, fatal) ||
		slices.ContainsFunc(e.events, func(v event) bool { return v.on == qp && strings.HasSuffix(v.kind, "_ERR") })
}
