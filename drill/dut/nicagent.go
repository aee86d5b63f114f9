package dut

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"roced.io/roced/drill/client"
	"roced.io/roced/drill/engine"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
	"roced.io/roced/rocev2/queue"
)

// nicAgent runs the commands of the engine on a NIC in this process, as the agent in C does by libibverbs.
type nicAgent struct {
	nic     *rocev2.NIC
	now     mono.Time
	pds     map[string]*rocev2.PD
	mrs     map[string]*nicMR
	mws     map[string]*rocev2.MW
	cqs     map[string]*nicCQ
	srqs    map[string]*nicSRQ
	ahs     map[string]*rocev2.AH
	qps     map[string]*nicQP
	names   []string // of queue pairs, in the order of creation
	nextVA  uint64
	events  []string
	counted map[string]uint64 // counters at the start
	cm      manager
}

// allAccess are the rights of memory and queue pairs without an argument "access".
const allAccess = qp.AccessLocalWrite | qp.AccessRemoteWrite | qp.AccessRemoteRead | qp.AccessRemoteAtomic | qp.AccessMWBind

type nicMR struct {
	*rocev2.MR
	va   uint64
	data []byte
}

type nicCQ struct {
	*rocev2.CQ
	ring *queue.Ring
}

type nicSRQ struct {
	*rocev2.SRQ
	queue *queue.Recv
}

type nicQP struct {
	*rocev2.QueuePair
	sq       *queue.Send
	rq       *queue.Recv // of the SRQ, if it has one
	scq, rcq *nicCQ
}

func newNICAgent(cfg rocev2.Config) (*nicAgent, error) {
	a := &nicAgent{pds: map[string]*rocev2.PD{}, mrs: map[string]*nicMR{}, mws: map[string]*rocev2.MW{}, cqs: map[string]*nicCQ{},
		srqs: map[string]*nicSRQ{}, ahs: map[string]*rocev2.AH{}, qps: map[string]*nicQP{}, nextVA: 1 << 32}
	cfg.Events = a
	var err error
	if a.nic, err = rocev2.New(cfg); err != nil {
		return nil, err
	}
	a.cm.start(a, cfg.Seed)
	a.counted = a.counters()
	_, err = a.pd("") // the default one
	return a, err
}

func (a *nicAgent) counters() map[string]uint64 {
	m := map[string]uint64{}
	for _, c := range a.nic.CounterSnapshot() {
		m[c.Name] = c.Value
	}
	return m
}

// run runs a command and returns the answer.
func (a *nicAgent) run(now mono.Time, line string) string {
	a.now = now
	verb, rest, _ := strings.Cut(line, " ")
	r := request{args: engine.Fields(rest)}
	f := nicVerbs[verb]
	if f == nil {
		return "error no such verb " + verb
	}
	answer, err := f(a, &r)
	if err = errors.Join(err, r.err); err != nil {
		return "error " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return strings.TrimSpace("ok " + answer)
}

// request are the arguments of a command. The first wrong one is kept in err.
type request struct {
	args map[string]string
	err  error
}

// number returns a numeric argument, or what it is by default.
func (r *request) number(key string, otherwise uint64) uint64 {
	s, ok := r.args[key]
	if !ok {
		return otherwise
	}
	v, err := strconv.ParseUint(s, 0, 64)
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("%s=%s: not a number", key, s)
	}
	return v
}

func (r *request) has(key string) bool { return r.args[key] != "" }

// rights are the letters of access rights.
var rights = map[rune]qp.Access{'l': qp.AccessLocalWrite, 'w': qp.AccessRemoteWrite, 'r': qp.AccessRemoteRead, 'a': qp.AccessRemoteAtomic,
	'b': qp.AccessMWBind, 'f': qp.AccessFlushGlobal, 'z': qp.AccessZeroBased}

// access parses letters of access rights.
func (r *request) access(otherwise qp.Access) (a qp.Access) {
	s, ok := r.args["access"]
	if !ok {
		return otherwise
	}
	if s == "none" {
		return 0
	}
	for _, c := range s {
		right := rights[c]
		if right == 0 {
			r.err = fmt.Errorf("access=%s: must consist of the letters l, w, r, a, b, f and z", s)
		}
		a |= right
	}
	return a
}

// find returns an object by its name.
func find[T any](m map[string]T, name string) (v T, err error) {
	v, ok := m[name]
	if !ok {
		err = fmt.Errorf("no object %q", name)
	}
	return v, err
}

// pd returns a protection domain. The empty name is the default one.
func (a *nicAgent) pd(name string) (*rocev2.PD, error) {
	if name == "" && a.pds[""] == nil {
		pd, err := a.nic.AllocPD(nil)
		a.pds[""] = pd
		return pd, err
	}
	return find(a.pds, name)
}

// reports returns the completions and events since the last call.
func (a *nicAgent) reports() (lines []string) {
	for _, name := range a.names {
		q := a.qps[name]
		if q == nil {
			continue
		}
		for c, ok := q.scq.ring.Poll(); ok; c, ok = q.scq.ring.Poll() {
			lines = append(lines, a.report("send", c))
		}
		for c, ok := q.rcq.ring.Poll(); ok; c, ok = q.rcq.ring.Poll() {
			lines = append(lines, a.report("recv", c))
		}
	}
	lines = append(lines, a.events...)
	a.events = nil
	return lines
}

// report describes a completion.
func (a *nicAgent) report(queue string, c qp.CQE) string {
	on := ""
	for name, q := range a.qps {
		if uint32(q.Num()) == c.QPN {
			on = name
		}
	}
	line := fmt.Sprintf("cqe on=%s queue=%s wr=%d status=%s", on, queue, c.WRID, client.StatusNames[c.Status])
	if c.Status != qp.StatusSuccess {
		return line
	}
	line += " op=" + opNames[c.Opcode]
	if c.Opcode >= qp.WCRecv || c.Opcode == qp.WCRead || c.Opcode == qp.WCCmpSwap || c.Opcode == qp.WCFetchAdd {
		line += fmt.Sprintf(" len=%d", c.ByteLen)
	}
	if c.Flags&qp.WCWithImm != 0 {
		line += fmt.Sprintf(" imm=%d", c.Imm)
	}
	if c.Flags&qp.WCWithInv != 0 {
		line += fmt.Sprintf(" inv=%d", c.Imm)
	}
	if c.Flags&qp.WCGRH != 0 {
		line += fmt.Sprintf(" peer=%d", c.SrcQP)
	}
	return line
}

// opNames are the operations of ibv_wc_opcode without IBV_WC_.
var opNames = map[qp.WCOpcode]string{
	qp.WCSend: "SEND", qp.WCWrite: "RDMA_WRITE", qp.WCRead: "RDMA_READ", qp.WCCmpSwap: "COMP_SWAP", qp.WCFetchAdd: "FETCH_ADD",
	qp.WCBindMW: "BIND_MW", qp.WCLocalInv: "LOCAL_INV", qp.WCFlush: "FLUSH", qp.WCAtomicWrite: "ATOMIC_WRITE",
	qp.WCRecv: "RECV", qp.WCRecvWithImm: "RECV_RDMA_WITH_IMM",
}

// QPEvent, CQEvent, SRQEvent and PortEvent implement rocev2.EventSink.
func (a *nicAgent) QPEvent(q *rocev2.QueuePair, e qp.Event) {
	for name, x := range a.qps {
		if x.QueuePair == q {
			a.events = append(a.events, fmt.Sprintf("event on=%s type=%s", name, eventNames[e]))
		}
	}
}

func (a *nicAgent) SRQEvent(s *rocev2.SRQ, e qp.Event) {
	for name, x := range a.srqs {
		if x.SRQ == s {
			a.events = append(a.events, fmt.Sprintf("event on=%s type=%s", name, eventNames[e]))
		}
	}
}

func (a *nicAgent) CQEvent(c *rocev2.CQ, e qp.Event) {
	for name, x := range a.cqs {
		if x.CQ == c {
			a.events = append(a.events, fmt.Sprintf("event on=%s type=%s", name, eventNames[e]))
		}
	}
}

func (a *nicAgent) PortEvent(qp.Event) {}

// eventNames are the events of ibv_event_type without IBV_EVENT_.
var eventNames = map[qp.Event]string{
	qp.EventQPFatal: "QP_FATAL", qp.EventQPReqErr: "QP_REQ_ERR", qp.EventQPAccessErr: "QP_ACCESS_ERR", qp.EventCommEst: "COMM_EST",
	qp.EventSQDrained: "SQ_DRAINED", qp.EventSRQLimitReached: "SRQ_LIMIT_REACHED", qp.EventQPLastWQE: "QP_LAST_WQE_REACHED",
	qp.EventCQErr: "CQ_ERR",
}

// sges parses "region:offset:length,...".
func (a *nicAgent) sges(r *request) (list []qp.SGE) {
	for _, part := range strings.Split(r.args["sge"], ",") {
		if part == "" {
			continue
		}
		m, off, n := a.part(r, part)
		if m != nil {
			list = append(list, qp.SGE{Addr: m.va + off, Length: uint32(n), LKey: m.LKey})
		}
	}
	return list
}

// part parses "region:offset:length".
func (a *nicAgent) part(r *request, s string) (m *nicMR, off, n uint64) {
	f := strings.Split(s, ":")
	if len(f) == 3 {
		x := request{args: map[string]string{"off": f[1], "len": f[2]}}
		off, n = x.number("off", 0), x.number("len", 0)
		var err error
		if m, err = find(a.mrs, f[0]); err == nil && x.err == nil {
			return m, off, n
		}
	}
	r.err = fmt.Errorf("%q is not part of a region", s)
	return nil, 0, 0
}

// bytes returns the bytes of a part, which has to lie inside its region.
func (a *nicAgent) bytes(r *request) []byte {
	m, off, n := a.part(r, r.args["sge"])
	if m == nil || off > uint64(len(m.data)) || n > uint64(len(m.data))-off {
		r.err = fmt.Errorf("%s lies outside the region", r.args["sge"])
		return nil
	}
	return m.data[off : off+n]
}

// mtu returns the code of a path MTU in bytes.
func (r *request) mtu() qp.MTU {
	bytes := r.number("mtu", 1024)
	if i := slices.Index([]uint64{256, 512, 1024, 2048, 4096}, bytes); i >= 0 {
		return qp.MTU(i + 1)
	}
	r.err = fmt.Errorf("mtu=%d: must be 256, 512, 1024, 2048 or 4096", bytes)
	return 0
}
