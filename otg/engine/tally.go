package engine

import (
	"encoding/binary"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/bth/mad"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
)

// fcsLen is the length of the frame check sequence, which links strip.
const fcsLen = 4

// roceInfo is the part of a RoCEv2 packet that counters need.
type roceInfo struct {
	op       bth.Opcode
	dest     bth.QPN
	psn      bth.PSN
	syndrome bth.Syndrome // of an acknowledgement
	attr     mad.Attr     // of a management datagram
	ecn      uint8
	size     int // bytes of the frame with its FCS
}

// layout holds the offsets of the headers in a frame.
type layout struct {
	l3, body int
	v6       bool
}

// roce returns the layout of a frame of RoCEv2, of which b holds at least the headers.
func roce(b []byte) (l layout, ok bool) {
	if len(b) < inet.EthernetLen {
		return l, false
	}
	typ, l3, _ := inet.EtherType(b)
	proto := byte(0)
	switch {
	case typ == inet.TypeIPv4 && len(b) >= l3+inet.IPv4Len:
		l = layout{l3: l3, body: l3 + int(b[l3]&15)*4 + inet.UDPLen}
		proto = b[l3+9]
	case typ == inet.TypeIPv6 && len(b) >= l3+inet.IPv6Len:
		l = layout{l3: l3, body: l3 + inet.IPv6Len + inet.UDPLen, v6: true}
		proto = b[l3+6]
	default:
		return l, false
	}
	return l, proto == inet.ProtoUDP && len(b) >= l.body && bth.IsUDPPort(binary.BigEndian.Uint16(b[l.body-inet.UDPLen+2:]))
}

// addresses returns the source and the destination of a frame.
func (l *layout) addresses(b []byte) (src, dst inet.GID) {
	if l.v6 {
		return inet.GID(b[l.l3+8:]), inet.GID(b[l.l3+24:])
	}
	return inet.GIDOf4(b[l.l3+12:]), inet.GIDOf4(b[l.l3+16:])
}

// ecn returns the ECN bits of a frame.
func (l *layout) ecn(b []byte) uint8 {
	if l.v6 {
		return b[l.l3+1] >> 4 & inet.ECNMask
	}
	return b[l.l3+1] & inet.ECNMask
}

// Offsets of the management attribute and of the syndrome behind the BTH.
const (
	madAttrAt  = bth.BTHLen + bth.DETHLen + 16
	syndromeAt = bth.BTHLen
	peekLen    = madAttrAt + 2
)

// decode reads the packet whose transport headers begin at b, which may be cut after peekLen bytes.
func (p *roceInfo) decode(b []byte) bool {
	if len(b) < bth.BTHLen+bth.ICRCLen {
		return false
	}
	p.op, p.dest = bth.Opcode(b[0]), bth.QPN(binary.BigEndian.Uint32(b[4:]))&bth.MaxQPN
	p.psn = bth.MakePSN(binary.BigEndian.Uint32(b[8:]) & 0xffffff)
	p.syndrome, p.attr = bth.Syndrome(b[syndromeAt]), 0
	if p.dest == 1 && len(b) >= peekLen {
		p.attr = mad.Attr(binary.BigEndian.Uint16(b[madAttrAt:]))
	}
	return true
}

// eachSent calls f for each packet of a sent frame.
func eachSent(fr *link.Frame, f func(l layout, head []byte, p roceInfo)) {
	l, ok := roce(fr.Bufs[0])
	if !ok {
		return
	}
	var peek [peekLen]byte
	p := roceInfo{ecn: l.ecn(fr.Bufs[0])}
	seg := fr.SegSize
	if seg == 0 {
		seg = fr.Len - l.body
	}
	for at := l.body; at < fr.Len; at += seg {
		p.size = l.body + min(seg, fr.Len-at) + fcsLen
		if p.decode(peek[:peekAt(fr, at, peek[:])]) {
			f(l, fr.Bufs[0], p)
		}
	}
}

// peekAt copies bytes at an offset of a frame, and returns their number.
func peekAt(fr *link.Frame, at int, to []byte) (n int) {
	for _, b := range fr.Bufs {
		if at >= len(b) {
			at -= len(b)
			continue
		}
		n += copy(to[n:], b[at:])
		if at = 0; n == len(to) {
			break
		}
	}
	return n
}

// eachReceived calls f for each packet of a received frame.
func eachReceived(frame []byte, segSize int, f func(l layout, head []byte, p roceInfo)) {
	l, ok := roce(frame)
	if !ok {
		return
	}
	p := roceInfo{ecn: l.ecn(frame)}
	if segSize <= 0 {
		segSize = len(frame) - l.body
	}
	for at := l.body; at < len(frame); at += segSize {
		end := min(at+segSize, len(frame))
		p.size = l.body + end - at + fcsLen
		if p.decode(frame[at:end]) {
			f(l, frame, p)
		}
	}
}

// tally counts the data packets of a queue pair in one direction: requests with payload, or READ responses.
type tally struct {
	frames, bytes uint64
	again         uint64 // sent: packets sent before
	ahead         uint64 // received: packets beyond the expected PSN
	marked        uint64 // with CE
	messages      uint64 // last packets of messages, each once
	first, last   mono.Time
	next          bth.PSN
	since         bth.PSN // received: the first packet to count
	waits         bool    // for since
	rate          meter
}

// restart resets the counters. PSNs continue. Packets that sender has sent before, if it is in this process, do not count.
func (t *tally) restart(sender *tally) {
	*t = tally{next: t.next}
	if sender != nil {
		t.since, t.waits = sender.next, true
	}
}

// half is half of the PSN space.
const half = 1 << 23

// add counts a packet. It reports whether the packet is in order: sent for the first time, or expected.
func (t *tally) add(now mono.Time, p roceInfo, sent bool) (inOrder bool) {
	if t.waits && p.psn.Since(t.since) >= half {
		if p.psn == t.next {
			t.next = p.psn.Next()
		}
		return false
	}
	t.waits = false
	t.frames++
	t.bytes += uint64(p.size)
	if t.first == 0 {
		t.first = now
	}
	t.last = now
	if p.ecn == inet.CE {
		t.marked++
	}
	switch d := p.psn.Since(t.next); {
	case d >= half: // before
		if sent {
			t.again++
		}
		return false
	case d > 0 && !sent:
		t.ahead++
		return false
	}
	t.next = p.psn.Next()
	if p.op.Ends() {
		t.messages++
	}
	return true
}

// meter computes an average rate of the last second or two.
type meter struct {
	value     uint64
	at        mono.Time
	perSecond float64
}

// sample updates the rate of a counter, at most once per second.
func (m *meter) sample(now mono.Time, value uint64) float64 {
	if value < m.value {
		*m = meter{}
	}
	switch d := now.Sub(m.at); {
	case m.at == 0:
		m.at, m.value = now, value
	case d >= time.Second:
		m.perSecond = float64(value-m.value) / d.Seconds()
		m.at, m.value = now, value
	}
	return m.perSecond
}
