package flow

import (
	"fmt"
	"net/netip"

	"roced.io/roced/bth"
	"roced.io/roced/bth/mad"
)

// gsiQPN is the queue pair of the connection manager (IBTA vol.1 3.9.5).
const gsiQPN bth.QPN = 1

// CM counts messages of the connection manager by kind.
type CM struct {
	REQ     uint64 `json:"req"`
	MRA     uint64 `json:"mra"`
	REJ     uint64 `json:"rej"`
	REP     uint64 `json:"rep"`
	RTU     uint64 `json:"rtu"`
	DREQ    uint64 `json:"dreq"`
	DREP    uint64 `json:"drep"`
	SIDRREQ uint64 `json:"sidr_req"`
	SIDRREP uint64 `json:"sidr_rep"`
	Other   uint64 `json:"other"`
}

func (c *CM) counter(a mad.Attr) *uint64 {
	switch a {
	case mad.AttrREQ:
		return &c.REQ
	case mad.AttrMRA:
		return &c.MRA
	case mad.AttrREJ:
		return &c.REJ
	case mad.AttrREP:
		return &c.REP
	case mad.AttrRTU:
		return &c.RTU
	case mad.AttrDREQ:
		return &c.DREQ
	case mad.AttrDREP:
		return &c.DREP
	case mad.AttrSIDRREQ:
		return &c.SIDRREQ
	case mad.AttrSIDRREP:
		return &c.SIDRREP
	}
	return &c.Other
}

// maxRequests is the maximum number of unanswered connection requests that the Analyzer keeps.
const maxRequests = 1024

// callKey identifies a connection request.
type callKey struct {
	from, to netip.Addr
	comm     uint32 // communication ID of the sender
}

// call holds the fields of a REQ.
type call struct {
	qpn     bth.QPN
	service string
}

// connections holds the REQs without a REP, at most the latest maxRequests.
type connections struct {
	calls map[callKey]call
	ring  []callKey
	next  int
}

func newConnections() connections { return connections{calls: map[callKey]call{}} }

func (c *connections) add(k callKey, v call) {
	if _, ok := c.calls[k]; !ok {
		if len(c.ring) < maxRequests {
			c.ring = append(c.ring, k)
		} else {
			delete(c.calls, c.ring[c.next])
			c.ring[c.next] = k
			c.next = (c.next + 1) % maxRequests
		}
	}
	c.calls[k] = v
}

// manage processes a message of the connection manager.
func (a *Analyzer) manage(p *arrival) {
	m := p.body
	if len(m) < mad.Len {
		a.totals.CM.Other++
		return
	}
	m = m[:mad.Len]
	var h mad.Header
	if h.Decode(m) != nil || h.Class != mad.ClassCM {
		a.totals.CM.Other++
		return
	}
	*a.totals.CM.counter(h.Attr)++
	switch h.Attr {
	case mad.AttrREQ:
		var r mad.REQ
		r.Decode(m)
		a.cm.add(callKey{p.ip.Src, p.ip.Dst, r.LocalCommID}, call{bth.QPN(r.LocalQPN), serviceName(r.ServiceID)})
	case mad.AttrREP:
		var r mad.REP
		r.Decode(m)
		k := callKey{p.ip.Dst, p.ip.Src, r.RemoteCommID}
		if c, ok := a.cm.calls[k]; ok && c.qpn != 0 {
			a.connect(p, c, bth.QPN(r.LocalQPN))
			c.qpn = 0 // keep the entry: the REP may be retransmitted
			a.cm.calls[k] = c
		}
	}
}

// connect joins the two streams of a connection that the sender of p accepts.
func (a *Analyzer) connect(p *arrival, c call, acceptor bth.QPN) {
	there := a.stream(key{src: p.ip.Dst, dst: p.ip.Src, qpn: acceptor}, p.now)
	back := a.stream(key{src: p.ip.Src, dst: p.ip.Dst, qpn: c.qpn}, p.now)
	if there == back {
		return
	}
	a.marry(there, back, ByCM)
	for _, s := range []*stream{there, back} {
		s.service = c.service
		s.requests.seq.started, s.responses.seq.started, s.requests.begun = false, false, false
	}
}

// portSpaces are the port spaces of rdma_cm in service IDs (IBTA annex A11).
var portSpaces = map[uint64]string{0x0106: "tcp", 0x0111: "udp", 0x0002: "ipoib", 0x013f: "ib"}

// serviceName formats a service ID like rdma_cm, "tcp:7471", or as a number.
func serviceName(id uint64) string {
	if space, ok := portSpaces[id>>16]; ok {
		return fmt.Sprintf("%s:%d", space, id&0xffff)
	}
	return fmt.Sprintf("%#x", id)
}
