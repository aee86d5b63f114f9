package engine

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"roced.io/roced/drill/script"
)

// keyKind says how the value of a verb's key is written.
type keyKind uint8

const (
	keyNumber keyKind = iota
	keyWord           // a bare word, such as state=RTS, or a quoted one
	keyObject         // the name of an object
	keyBytes          // bytes, or the content of a part of memory
	keyMemory         // a part of a memory region
)

// verb describes a verb on the device under test.
type verb struct {
	creates bool
	object  bool   // the first argument is an object
	word    string // meaning of a bare word after it, empty for none
	parts   bool   // memory parts follow
	local   bool   // the engine answers it
	compare bool   // keys are compared with the answer, not sent
	manages bool   // it needs an address of the connection manager
	keys    map[string]keyKind
	doc     string
}

// numbers returns the keys with numeric values.
func numbers(names string) map[string]keyKind {
	m := map[string]keyKind{}
	for _, n := range strings.Fields(names) {
		m[n] = keyNumber
	}
	return m
}

// with adds keys of a kind.
func with(m map[string]keyKind, kind keyKind, names string) map[string]keyKind {
	for _, n := range strings.Fields(names) {
		m[n] = kind
	}
	return m
}

// Attributes of queue pairs, of address vectors, and of work requests.
const (
	qpAttrs = "mtu psn rqpsn peer timeout retry rnr_retry min_rnr rd_atomic dest_rd_atomic qkey pkey_index"
	avAttrs = "sl tclass ttl flow vlan"
	wrAttrs = "wr signaled solicited fence inline imm inv remote rkey compare swap add peer qkey"
)

func workRequest(doc string) verb {
	return verb{object: true, parts: true, keys: with(numbers(wrAttrs), keyObject, "ah"), doc: doc}
}

// failsKey is the key of every verb on the device that says whether the device refuses it.
const failsKey = "fails"

// verbs lists all verbs.
var verbs = map[string]verb{
	"pd": {creates: true, keys: numbers(""), doc: "allocate a protection domain"},
	"mr": {creates: true, keys: with(with(numbers("size"), keyWord, "fill access"), keyObject, "pd"),
		doc: "register size= bytes, zero or with fill=count. access= has letters: l local write, w remote write, r remote read, a atomic, b bind, f flush, " +
			"z addresses count from 0"},
	"mw":  {creates: true, keys: with(numbers("type"), keyObject, "pd"), doc: "allocate a memory window of type 1 or 2"},
	"cq":  {creates: true, keys: numbers("size"), doc: "create a completion queue"},
	"srq": {creates: true, keys: with(numbers("size limit"), keyObject, "pd"), doc: "create a shared receive queue"},
	"ah": {creates: true, keys: with(with(numbers(avAttrs), keyObject, "pd"), keyBytes, "group"),
		doc: "create an address handle for the tester, or for a multicast group"},
	"attach": {object: true, keys: with(numbers(""), keyBytes, "group"), doc: "attach a queue pair of UD to a multicast group"},
	"detach": {object: true, keys: with(numbers(""), keyBytes, "group"), doc: "detach a queue pair of UD from a multicast group"},
	"qp": {creates: true, word: "type", keys: with(with(numbers(qpAttrs+" "+avAttrs+" size rsize sges sigall inline"), keyObject, "pd scq rcq srq"),
		keyWord, "state profile access"),
		doc: "create a queue pair of type rc, uc or ud, and bring it to state= (RTS). psn= is its first PSN. It expects rqpsn= first"},
	"modify": {object: true, keys: with(numbers(qpAttrs+" "+avAttrs+" notify"), keyWord, "state access without"),
		doc: "modify the attributes that the script names, and with state= those that the transition needs. without= leaves one out. " +
			"notify=1 with SQD asks for its event"},
	"resize": {object: true, keys: numbers("size"), doc: "change the size of a shared receive queue, which keeps its receives"},
	"mrc": {object: true, keys: numbers("mpr mpr_dest max_wimm max_wimm_dest timeout linear exp dynamic"),
		doc: "modify attributes of a queue pair of MRC, as mrc_modify_qp. mpr= and max_wimm= bound the requester, those with _dest the responder. " +
			"Ranges are in 128 PSNs, the timeout is 1.024 us * 2^n. linear= and exp= are retries. dynamic=1 reports the range"},
	"limit": {object: true, keys: numbers("limit"), doc: "arm the limit event of a shared receive queue"},
	"arm": {object: true, keys: numbers("solicited"),
		doc: "ask for one event COMPLETION of a completion queue: of the next completion, with solicited=1 of the next solicited or failed one"},

	"send":       workRequest("post a SEND; with imm= a SEND with immediate data, with inv= a SEND with invalidate"),
	"write":      workRequest("post an RDMA WRITE to remote= with rkey=; with imm= with immediate data"),
	"read":       workRequest("post an RDMA READ from remote= with rkey="),
	"cas":        workRequest("post a COMPARE AND SWAP"),
	"fadd":       workRequest("post a FETCH AND ADD"),
	"flush":      {object: true, keys: numbers("wr remote rkey len type level signaled"), doc: "post a FLUSH"},
	"awrite":     {object: true, keys: with(numbers("wr remote rkey signaled"), keyBytes, "data"), doc: "post an ATOMIC WRITE of eight bytes"},
	"recv":       {object: true, parts: true, keys: numbers("wr"), doc: "post a receive to a queue pair or a shared receive queue"},
	"bind":       {object: true, keys: with(with(with(numbers("wr rkey signaled"), keyObject, "mw"), keyMemory, "to"), keyWord, "access"), doc: "post a bind of a memory window of type 2"},
	"invalidate": {object: true, keys: numbers("wr rkey signaled"), doc: "post a local invalidate"},

	"listen":    {creates: true, manages: true, keys: numbers("port backlog udp"), doc: "listen for requests of rdma_cm to port=, with udp=1 for those of datagrams"},
	"connect":   {creates: true, manages: true, keys: with(numbers("port qpn psn resources depth cm_timeout cm_retries udp"), keyBytes, "private"), doc: "send a REQ for port= of the tester, with udp=1 a SIDR_REQ"},
	"accept":    {object: true, keys: with(numbers("qpn psn resources depth"), keyBytes, "private"), doc: "accept the newest request of a listener by a REP or a SIDR_REP"},
	"reject":    {object: true, keys: with(numbers("reason"), keyBytes, "private"), doc: "reject the newest request of a listener, or the reply to a connection"},
	"establish": {object: true, keys: numbers(""), doc: "answer the REP of a connection by an RTU"},
	"leave":     {object: true, keys: numbers(""), doc: "end a connection by a DREQ, or by a DREP if the peer has ended it"},

	"set":     {parts: true, keys: with(numbers(""), keyBytes, "data"), doc: "write data= into memory"},
	"check":   {parts: true, compare: true, keys: with(numbers(""), keyBytes, "data"), doc: "compare memory with data="},
	"query":   {object: true, compare: true, keys: with(numbers(qpAttrs), keyWord, "state"), doc: "compare attributes of a queue pair, or those that rdma_cm gives to the queue pair of a connection"},
	"counter": {word: "name", keys: numbers("min max"), doc: "compare how much a hardware counter has grown since the script began"},
	"destroy": {object: true, keys: numbers(""), doc: "destroy an object"},
	"cqe": {object: true, word: "status", local: true, keys: with(numbers("wr len imm inv peer"), keyWord, "op"),
		doc: "expect a completion of a queue pair, the oldest of its send or its receive queue. ERROR is every status but SUCCESS. With len= it has immediate data or a key only if imm= or inv= names them"},
	"event": {object: true, word: "type", local: true, keys: with(numbers("resources depth retry rnr_retry peer qkey reason"), keyBytes, "private"),
		doc: "expect an event of a queue pair, completion queue, shared receive queue, listener or connection. CONNECT_REQUEST and CONNECT_RESPONSE " +
			"have resources=, depth=, rnr_retry= and peer= as rdma_cm reports them, CONNECT_REQUEST also retry=. ESTABLISHED of datagrams has peer= " +
			"and qkey=, REJECTED the reason="},
}

// command is a verb with evaluated arguments.
type command struct {
	call   *script.Call
	verb   verb
	object string
	word   string
	parts  []memoryPart
	keys   map[string]value
	line   string // for the agent
}

// prepare evaluates the arguments of a call.
func (e *Engine) prepare(c *script.Call) *command {
	v := verbs[c.Verb]
	k := &command{call: c, verb: v, keys: map[string]value{}}
	args := c.Args
	if v.object {
		k.object, args = e.object(c, args), args[1:]
	}
	if v.word != "" {
		k.word, args = e.word(c, v.word, args), args[1:]
	}
	for _, a := range args {
		p := e.eval(a)
		if !v.parts || p.kind != isMemory {
			e.fail(a.At(), "dut.%s takes no argument %v here", c.Verb, p)
		}
		k.parts = append(k.parts, p.ref)
	}
	for _, key := range c.Keys {
		e.prepareKey(k, key)
	}
	if v.creates {
		n := k.memory()
		e.uses(c.Pos, "dut."+c.Verb, n)
		e.sizes[c.Name] += n // an earlier object of this name exists, too
	}
	k.line = k.encode()
	return k
}

// entrySize is the memory of an entry of a queue, without its data.
const entrySize = 128

// memory returns about as many bytes as the created object needs.
func (k *command) memory() uint64 {
	size := k.keys["size"].num
	if k.call.Verb == "mr" {
		return min(size, math.MaxInt64) + min(size, maxBytes)
	}
	entry := entrySize + 16*min(k.keys["sges"].num, 1<<20) + min(k.keys["inline"].num, 1<<20)
	return (min(size, 1<<32) + min(k.keys["rsize"].num, 1<<32)) * entry
}

// object returns the first argument, which names an object of the device.
func (e *Engine) object(c *script.Call, args []script.Expr) string {
	if len(args) == 0 {
		e.fail(c.Pos, "dut.%s needs an object", c.Verb)
	}
	n, ok := args[0].(*script.Name)
	if !ok || !e.objects[n.Name] {
		e.fail(args[0].At(), "this is not an object of the device")
	}
	return n.Name
}

// word returns the first argument, a bare word.
func (e *Engine) word(c *script.Call, meaning string, args []script.Expr) string {
	if len(args) > 0 {
		if n, ok := args[0].(*script.Name); ok {
			return n.Name
		}
	}
	e.fail(c.Pos, "dut.%s: the %s is missing", c.Verb, meaning)
	return ""
}

func (e *Engine) prepareKey(k *command, key script.Key) {
	kind := k.verb.keys[key.Name]
	if key.Value == nil || key.Last != nil || key.Not {
		e.fail(key.Pos, "%s needs one value", key.Name)
	}
	n, bare := key.Value.(*script.Name)
	quoted, text := key.Value.(*script.Text)
	var v value
	switch {
	case kind == keyWord && text:
		v = value{kind: isText, text: quoted.Value}
	case kind == keyWord && bare:
		v = value{kind: isText, text: n.Name}
	case kind == keyObject && bare && e.objects[n.Name]:
		v = value{kind: isText, text: n.Name}
	case kind == keyWord || kind == keyObject:
		e.fail(key.Pos, "%s: the value is a name", key.Name)
	default:
		v = e.eval(key.Value)
		if kind == keyBytes {
			v = bytesOf(e.content(v))
		}
		if want := map[keyKind]valueKind{keyNumber: isNumber, keyBytes: isBytes, keyMemory: isMemory}[kind]; v.kind != want || kind == keyBytes && v.bytes == nil {
			e.fail(key.Pos, "%s: %v is not a valid value", key.Name, v)
		}
		e.fit(key.Pos, "key", key.Name, v, width(key.Name))
	}
	k.keys[key.Name] = v
}

// encode returns the line for the agent: the verb and key=value, with numbers in decimal, bytes in hexadecimal, and parts of
// memory as region:offset:length.
func (k *command) encode() string {
	var b strings.Builder
	b.WriteString(k.call.Verb)
	write := func(key, v string) { fmt.Fprintf(&b, " %s=%s", key, v) }
	if k.call.Name != "" {
		write("name", k.call.Name)
	}
	if k.object != "" {
		write("on", k.object)
	}
	if k.word != "" {
		write(k.verb.word, k.word)
	}
	if len(k.parts) > 0 {
		parts := make([]string, len(k.parts))
		for i, p := range k.parts {
			parts[i] = p.encode()
		}
		write("sge", strings.Join(parts, ","))
	}
	names := make([]string, 0, len(k.keys))
	for n := range k.keys {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		if !k.verb.compare && n != failsKey {
			write(n, k.keys[n].encode())
		}
	}
	return b.String()
}

func (p memoryPart) encode() string { return fmt.Sprintf("%s:%d:%d", p.region, p.from, p.to-p.from) }

func (v value) encode() string {
	switch v.kind {
	case isBytes:
		return fmt.Sprintf("%x", v.bytes)
	case isText:
		return v.text
	case isMemory:
		return v.ref.encode()
	}
	return fmt.Sprint(v.num)
}
