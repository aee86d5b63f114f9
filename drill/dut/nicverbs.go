package dut

import (
	"fmt"
	"net/netip"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/qp"
	"roced.io/roced/qp/mrc"
	"roced.io/roced/rocev2"
	"roced.io/roced/rocev2/queue"
)

// nicVerbs are the commands of the agent. The map is filled by init to break the cycle with run.
var nicVerbs map[string]func(*nicAgent, *request) (string, error)

func init() {
	nicVerbs = map[string]func(*nicAgent, *request) (string, error){
		"pd": (*nicAgent).makePD, "mr": (*nicAgent).makeMR, "mw": (*nicAgent).makeMW, "cq": (*nicAgent).makeCQ,
		"srq": (*nicAgent).makeSRQ, "ah": (*nicAgent).makeAH, "qp": (*nicAgent).makeQP, "modify": (*nicAgent).modify,
		"limit": (*nicAgent).limit, "mrc": (*nicAgent).modifyMRC, "resize": (*nicAgent).resize, "arm": (*nicAgent).arm, "recv": (*nicAgent).recv, "set": (*nicAgent).set, "check": (*nicAgent).read,
		"query": (*nicAgent).query, "counter": (*nicAgent).counter, "destroy": (*nicAgent).destroy,
		"bind": (*nicAgent).bind, "invalidate": (*nicAgent).invalidate,
		"attach": (*nicAgent).attach, "detach": (*nicAgent).detach, "listen": (*nicAgent).listen, "connect": (*nicAgent).connect, "accept": (*nicAgent).accept, "reject": (*nicAgent).reject,
		"establish": (*nicAgent).establish, "leave": (*nicAgent).leave,
	}
	for verb, op := range postOps {
		nicVerbs[verb] = func(a *nicAgent, r *request) (string, error) { return a.post(r, op) }
	}
}

// postOps are the verbs that post send work requests.
var postOps = map[string]qp.WROpcode{
	"send": qp.WRSend, "write": qp.WRWrite, "read": qp.WRRead, "cas": qp.WRCmpSwap, "fadd": qp.WRFetchAdd, "flush": qp.WRFlush,
	"awrite": qp.WRAtomicWrite,
}

func (a *nicAgent) makePD(r *request) (string, error) {
	pd, err := a.nic.AllocPD(nil)
	a.pds[r.args["name"]] = pd
	return "", err
}

func (a *nicAgent) makeMR(r *request) (string, error) {
	pd, err := a.pd(r.args["pd"])
	if err != nil {
		return "", err
	}
	m := &nicMR{va: a.nextVA, data: make([]byte, r.number("size", 4096))}
	if r.args["fill"] == "count" {
		for i := range m.data {
			m.data[i] = byte(i % 251)
		}
	}
	a.nextVA += uint64(len(m.data)+0x1fff) &^ 0xfff
	m.MR, err = a.nic.RegMR(pd, rocev2.MRAttr{VA: m.va, Length: uint64(len(m.data)), Access: r.access(allAccess), Mem: rocev2.NewBytes(m.data)})
	if err != nil {
		return "", err
	}
	if r.access(allAccess)&qp.AccessZeroBased != 0 {
		m.va = 0
	}
	a.mrs[r.args["name"]] = m
	return fmt.Sprintf("va=%d lkey=%d rkey=%d", m.va, m.LKey, m.RKey), nil
}

func (a *nicAgent) makeMW(r *request) (string, error) {
	pd, err := a.pd(r.args["pd"])
	if err != nil {
		return "", err
	}
	mw, err := a.nic.AllocMW(pd, rocev2.MWType(r.number("type", 2)), nil)
	if err != nil {
		return "", err
	}
	a.mws[r.args["name"]] = mw
	return fmt.Sprintf("rkey=%d", mw.RKey), nil
}

func (a *nicAgent) makeCQ(r *request) (string, error) {
	return "", a.newCQ(r.args["name"], int(r.number("size", 64)))
}

func (a *nicAgent) newCQ(name string, size int) error {
	c := &nicCQ{ring: queue.NewRing(size)}
	var err error
	notify := func() { a.events = append(a.events, fmt.Sprintf("event on=%s type=COMPLETION", name)) }
	c.CQ, err = a.nic.CreateCQ(rocev2.CQAttr{Entries: size, Ring: c.ring, Notify: notify})
	a.cqs[name] = c
	return err
}

func (a *nicAgent) makeSRQ(r *request) (string, error) {
	pd, err := a.pd(r.args["pd"])
	if err != nil {
		return "", err
	}
	n := r.number("size", 16)
	s := &nicSRQ{queue: queue.NewRecv(int(n))}
	s.SRQ, err = a.nic.CreateSRQ(rocev2.SRQAttr{PD: pd, RQ: s.queue, MaxWR: uint32(n), MaxSGE: 8, Limit: uint32(r.number("limit", 0))})
	a.srqs[r.args["name"]] = s
	return "", err
}

// arm asks for a notification of a completion queue.
func (a *nicAgent) arm(r *request) (string, error) {
	c, err := find(a.cqs, r.args["on"])
	if err != nil {
		return "", err
	}
	return "", a.nic.ArmCQ(c.CQ, r.number("solicited", 0) != 0)
}

func (a *nicAgent) limit(r *request) (string, error) {
	s, err := find(a.srqs, r.args["on"])
	if err != nil {
		return "", err
	}
	return "", a.nic.ModifySRQ(s.SRQ, uint32(r.number("limit", 0)))
}

func (a *nicAgent) resize(r *request) (string, error) {
	s, err := find(a.srqs, r.args["on"])
	if err != nil {
		return "", err
	}
	n := int(r.number("size", 16))
	if n < s.queue.Len() {
		return "", queue.ErrFull
	}
	fresh := queue.NewRecv(n)
	if err := a.nic.ResizeSRQ(s.SRQ, uint32(n), fresh); err != nil {
		return "", err
	}
	for w := (qp.RecvWQE{}); err == nil && s.queue.Next(&w); {
		err = fresh.Post(w)
	}
	s.queue = fresh
	return "", err
}

func (a *nicAgent) modifyMRC(r *request) (string, error) {
	q, err := find(a.qps, r.args["on"])
	if err != nil {
		return "", err
	}
	var named mrc.Mask
	number := func(key string, bit mrc.Mask) uint64 {
		if r.has(key) {
			named |= bit
		}
		return r.number(key, 0)
	}
	at := mrc.Attr{MPR: uint8(number("mpr", mrc.AttrMPR)), MPRDest: uint8(number("mpr_dest", mrc.AttrMPRDest)),
		MaxWIMM: uint16(number("max_wimm", mrc.AttrMaxWIMM)), MaxWIMMDest: uint16(number("max_wimm_dest", mrc.AttrMaxWIMMDest)),
		Timeout: uint8(number("timeout", mrc.AttrTimeout)), Linear: uint8(number("linear", mrc.AttrRetryCnt)),
		Exponential: uint8(number("exp", mrc.AttrRetryCnt)), Cap: mrc.Caps(number("dynamic", mrc.AttrCap)) * mrc.DynamicMPR}
	return "", a.nic.ModifyMRC(a.now, q.QueuePair, at, named)
}

// vector returns the address vector to the tester.
func (a *nicAgent) vector(r *request) rocev2.AddressVector {
	src, dst := r.addresses()
	if r.has("group") {
		dst = r.group()
	}
	v := rocev2.AddressVector{DGID: inet.GIDOf(dst), TrafficClass: uint8(r.number("tclass", 0)), HopLimit: uint8(r.number("ttl", 0)),
		FlowLabel: uint32(r.number("flow", 0)), SL: uint8(r.number("sl", 0))}
	for _, e := range a.nic.GIDs() {
		if e.GID == inet.GIDOf(src) && uint64(e.VLAN) == r.number("vlan", 0) {
			v.SGIDIndex = uint8(e.Index)
			return v
		}
	}
	r.err = fmt.Errorf("the device has no address %v in VLAN %d", src, r.number("vlan", 0))
	return v
}

// group returns the address of a multicast group.
func (r *request) group() netip.Addr {
	var b []byte
	_, err := fmt.Sscanf(r.args["group"], "%x", &b)
	a, ok := netip.AddrFromSlice(b)
	if err != nil || !ok {
		r.err = fmt.Errorf("group=%s: must be an IP address of 4 or 16 bytes", r.args["group"])
		return netip.IPv6Unspecified()
	}
	return a
}

func (a *nicAgent) attach(r *request) (string, error) {
	q, err := find(a.qps, r.args["on"])
	if err != nil {
		return "", err
	}
	return "", a.nic.AttachGroup(a.now, q.QueuePair, inet.GIDOf(r.group()))
}

func (a *nicAgent) detach(r *request) (string, error) {
	q, err := find(a.qps, r.args["on"])
	if err != nil {
		return "", err
	}
	return "", a.nic.DetachGroup(q.QueuePair, inet.GIDOf(r.group()))
}

// addresses returns those of the device and of the tester.
func (r *request) addresses() (dut, tester netip.Addr) {
	if r.args["ip"] == "6" {
		return dutIP6, testerIP6
	}
	return dutIP, testerIP
}

func (a *nicAgent) makeAH(r *request) (string, error) {
	pd, err := a.pd(r.args["pd"])
	if err != nil {
		return "", err
	}
	ah, err := a.nic.CreateAH(a.now, pd, a.vector(r), nil)
	a.ahs[r.args["name"]] = ah
	return "", err
}

var qpTypes = map[string]qp.Type{"rc": qp.RC, "uc": qp.UC, "ud": qp.UD}

func (a *nicAgent) makeQP(r *request) (string, error) {
	name := r.args["name"]
	q := &nicQP{}
	attr := rocev2.QPAttr{Type: qpTypes[r.args["type"]], SigAll: r.number("sigall", 0) != 0, Profile: r.args["profile"]}
	if attr.Type == 0 {
		return "", fmt.Errorf("type %q: must be rc, uc or ud", r.args["type"])
	}
	var err error
	if attr.PD, err = a.pd(r.args["pd"]); err != nil {
		return "", err
	}
	if q.scq, err = a.cqOf(r, name, "scq"); err != nil {
		return "", err
	}
	if q.rcq, err = a.cqOf(r, name, "rcq"); err != nil {
		return "", err
	}
	size, rsize, sges := r.number("size", 64), r.number("rsize", 64), uint32(r.number("sges", 8))
	q.sq = queue.NewSend(int(size))
	attr.SendCQ, attr.RecvCQ, attr.SQ = q.scq.CQ, q.rcq.CQ, q.sq
	attr.Caps = rocev2.QPCaps{MaxSendWR: uint32(size), MaxRecvWR: uint32(rsize), MaxSendSGE: sges, MaxRecvSGE: sges, MaxInline: uint32(r.number("inline", 64))}
	if r.has("srq") {
		s, err := find(a.srqs, r.args["srq"])
		if err != nil {
			return "", err
		}
		attr.SRQ, q.rq = s.SRQ, s.queue
	} else {
		q.rq = queue.NewRecv(int(rsize))
		attr.RQ = q.rq
	}
	if q.QueuePair, err = a.nic.CreateQP(attr); err != nil {
		return "", err
	}
	a.qps[name] = q
	a.names = append(a.names, name)
	return fmt.Sprintf("num=%d", q.Num()), a.toState(q, r)
}

// cqOf returns the completion queue that the argument names, or a new one.
func (a *nicAgent) cqOf(r *request, qp, key string) (*nicCQ, error) {
	name := r.args[key]
	if name == "" {
		name = qp + "." + key
		if err := a.newCQ(name, 256); err != nil {
			return nil, err
		}
	}
	return find(a.cqs, name)
}

var states = map[string]qp.State{"RESET": qp.Reset, "INIT": qp.Init, "RTR": qp.RTR, "RTS": qp.RTS, "SQD": qp.SQD, "SQE": qp.SQE, "ERR": qp.Err}

// signaled returns the flag of the argument.
func (r *request) signaled() qp.SendFlags {
	if r.number("signaled", 1) != 0 {
		return qp.SendSignaled
	}
	return 0
}

// post posts a send work request.
func (a *nicAgent) post(r *request, op qp.WROpcode) (string, error) {
	q, err := find(a.qps, r.args["on"])
	if err != nil {
		return "", err
	}
	w := qp.SendWQE{WRID: r.number("wr", 0), Opcode: op, SGEs: a.sges(r), RemoteVA: r.number("remote", 0), RKey: uint32(r.number("rkey", 0)),
		CompareAdd: r.number("compare", r.number("add", 0)), Swap: r.number("swap", 0)}
	for key, flag := range map[string]qp.SendFlags{"solicited": qp.SendSolicited, "fence": qp.SendFence, "inline": qp.SendInline} {
		if r.number(key, 0) != 0 {
			w.Flags |= flag
		}
	}
	w.Flags |= r.signaled()
	switch {
	case r.has("inv"):
		w.Opcode, w.Imm = qp.WRSendWithInv, uint32(r.number("inv", 0))
	case r.has("imm"):
		w.Opcode, w.Imm = map[qp.WROpcode]qp.WROpcode{qp.WRSend: qp.WRSendImm, qp.WRWrite: qp.WRWriteImm}[op], uint32(r.number("imm", 0))
	case op == qp.WRFlush:
		w.Flush = qp.FlushWR{Length: uint32(r.number("len", 0)), FETH: bth.FETH{Type: uint8(r.number("type", 1)), Level: uint8(r.number("level", 0))}}
	case op == qp.WRAtomicWrite:
		w.Flags |= qp.SendInline
		_, err = fmt.Sscanf(r.args["data"], "%x", &w.Inline)
	}
	if w.Flags&qp.SendInline != 0 && op != qp.WRAtomicWrite {
		w.Inline = append(w.Inline, a.bytes(r)...)
	}
	if q.Info().Type == qp.UD {
		var ah *rocev2.AH
		if ah, err = find(a.ahs, r.args["ah"]); err == nil {
			w.AH, w.RemoteQPN, w.RemoteQKey = ah.Handle(), uint32(r.number("peer", 0x11)), uint32(r.number("qkey", testQKey))
		}
	}
	return a.postSend(q, w, r, err)
}

func (a *nicAgent) postSend(q *nicQP, w qp.SendWQE, r *request, err error) (string, error) {
	if err == nil && r.err == nil {
		err = q.sq.Post(w)
		a.nic.Doorbell(a.now, q.QueuePair)
	}
	return "", err
}

func (a *nicAgent) bind(r *request) (string, error) {
	q, err := find(a.qps, r.args["on"])
	if err != nil {
		return "", err
	}
	mw, err := find(a.mws, r.args["mw"])
	if err != nil {
		return "", err
	}
	m, off, n := a.part(r, r.args["to"])
	if m == nil {
		return "", nil // r.err says why
	}
	key := uint32(r.number("rkey", uint64(mw.RKey+1)))
	w := qp.SendWQE{WRID: r.number("wr", 0), Opcode: qp.WRBindMW, Flags: r.signaled()}
	w.Bind = qp.BindWR{Addr: m.va + off, Length: n, MRLKey: m.LKey, MWRKey: mw.RKey, RKey: key,
		Access: r.access(allAccess) &^ qp.AccessMWBind &^ qp.AccessLocalWrite}
	return a.postSend(q, w, r, nil)
}

func (a *nicAgent) invalidate(r *request) (string, error) {
	q, err := find(a.qps, r.args["on"])
	w := qp.SendWQE{WRID: r.number("wr", 0), Opcode: qp.WRLocalInv, Flags: r.signaled(), Imm: uint32(r.number("rkey", 0))}
	if err != nil {
		return "", err
	}
	return a.postSend(q, w, r, nil)
}

func (a *nicAgent) recv(r *request) (string, error) {
	w := qp.RecvWQE{WRID: r.number("wr", 0), SGEs: a.sges(r)}
	if r.err != nil {
		return "", nil
	}
	if s := a.srqs[r.args["on"]]; s != nil {
		return "", s.queue.Post(w)
	}
	q, err := find(a.qps, r.args["on"])
	if err == nil {
		err = q.rq.Post(w)
		a.nic.RecvPosted(a.now, q.QueuePair)
	}
	return "", err
}

// set writes memory.
func (a *nicAgent) set(r *request) (string, error) {
	var data []byte
	_, err := fmt.Sscanf(r.args["data"], "%x", &data)
	if to := a.bytes(r); err == nil && len(to) != len(data) {
		return "", fmt.Errorf("%d bytes for %s", len(data), r.args["sge"])
	} else if err == nil {
		copy(to, data)
	}
	return "", err
}

// read returns the content of memory, for check.
func (a *nicAgent) read(r *request) (string, error) { return fmt.Sprintf("data=%x", a.bytes(r)), nil }

func (a *nicAgent) query(r *request) (string, error) {
	if c := a.cm.conns[r.args["on"]]; c != nil {
		return attributes(c), nil
	}
	q, err := find(a.qps, r.args["on"])
	if err != nil {
		return "", err
	}
	i, err := a.nic.QueryQP(q.QueuePair)
	name := ""
	for n, s := range states {
		if s == i.Attr.State {
			name = n
		}
	}
	at := i.Attr
	return fmt.Sprintf("state=%s psn=%d rqpsn=%d peer=%d timeout=%d retry=%d rnr_retry=%d min_rnr=%d rd_atomic=%d dest_rd_atomic=%d qkey=%d pkey_index=%d mtu=%d",
		name, at.SQPSN, at.RQPSN, at.DestQPN, at.Timeout, at.RetryCnt, at.RNRRetry, at.MinRNRTimer, at.MaxRdAtomic, at.MaxDestRdAtomic, at.QKey,
		at.PKeyIndex, 128<<at.PathMTU), err
}

func (a *nicAgent) counter(r *request) (string, error) {
	name := r.args["name"]
	now, ok := a.counters()[name]
	if !ok {
		return "", fmt.Errorf("no counter %q", name)
	}
	return fmt.Sprintf("value=%d", now-a.counted[name]), nil
}

func (a *nicAgent) destroy(r *request) (string, error) {
	name := r.args["on"]
	if q := a.qps[name]; q != nil {
		delete(a.qps, name)
		return "", a.nic.DestroyQP(q.QueuePair)
	}
	if m := a.mrs[name]; m != nil {
		return "", forget(a.mrs, name, a.nic.DeregMR(m.MR))
	}
	if w := a.mws[name]; w != nil {
		return "", forget(a.mws, name, a.nic.DeallocMW(w))
	}
	if s := a.srqs[name]; s != nil {
		return "", forget(a.srqs, name, a.nic.DestroySRQ(s.SRQ))
	}
	if c := a.cqs[name]; c != nil {
		return "", forget(a.cqs, name, a.nic.DestroyCQ(c.CQ))
	}
	if pd := a.pds[name]; pd != nil {
		return "", forget(a.pds, name, a.nic.DeallocPD(pd))
	}
	if a.cm.end(a.now, name) {
		return "", nil
	}
	return "", fmt.Errorf("no object %q", name)
}

// forget removes an object that the NIC has destroyed.
func forget[T any](m map[string]T, name string, err error) error {
	if err == nil {
		delete(m, name)
	}
	return err
}
