package mrc

import (
	"roced.io/roced/bth"
	"roced.io/roced/internal/base/ring"
	"roced.io/roced/reorder"
)

// SACKs are the SACKs and NACKs that a responder has to send.
type SACKs struct {
	ring.Ring[reorder.Feedback]
	trk   *reorder.MRC
	depth int // limit on those that wait

	received   uint64 // bytes of all packets, with their headers
	unreported uint32 // likewise, since the last SACK

	// Path is that of the packet reported last. Acknowledgements leave on paths that work.
	Path uint32
}

// Marks are the marks of a packet that its acknowledgement echoes.
type Marks struct {
	CE   bool
	Path uint32
}

// MakeSACKs returns the SACKs of a responder. At most depth of them wait.
func MakeSACKs(trk *reorder.MRC, depth int) SACKs { return SACKs{trk: trk, depth: depth} }

// Reset drops all SACKs and the count of bytes.
func (s *SACKs) Reset() {
	s.Clear()
	*s = SACKs{Ring: s.Ring, trk: s.trk, depth: s.depth}
}

// Count records that p has been taken, and makes a SACK due if p requests one or enough bytes are unreported.
func (s *SACKs) Count(p *bth.Packet, m Marks) {
	n := length(p)
	s.received += uint64(n)
	s.unreported += n
	if p.AckReq || p.ReTx || m.CE || s.unreported >= s.trk.Threshold() {
		s.Report(p, m)
	}
}

// length returns the bytes that p counts as received: the length in its UDP header and 40.
func length(p *bth.Packet) uint32 {
	const udp, crc, lower = 8, 4, 40
	n := len(p.Payload)
	return uint32(udp + p.HeaderLen() + n + -n&3 + crc + lower)
}

// Report makes a SACK of p due.
func (s *SACKs) Report(p *bth.Packet, m Marks) {
	f := s.push()
	s.trk.Feedback(f)
	f.HasSACK, f.SACK, f.Timestamp = true, p.PSN, p.TSETH.Timestamp
	s.complete(f, m)
	s.unreported = 0
}

// Refuse makes a NACK of p due.
func (s *SACKs) Refuse(p *bth.Packet, m Marks, reason bth.MRCReason) {
	f := s.push()
	f.HasSACK, f.Refused, f.SACK, f.Timestamp = true, true, p.PSN, p.TSETH.Timestamp
	f.Receiver.Reason = uint8(reason)
	s.complete(f, m)
}

// AnswerProbe makes the SACK that answers a probe due.
func (s *SACKs) AnswerProbe(p *bth.Packet, m Marks) {
	f := s.push()
	s.trk.Feedback(f)
	f.ProbeReply, f.ProbeID, f.HasSACK = true, p.PETH.ProbeID, false
	f.Timestamp = p.PETH.TSETH.Timestamp
	s.complete(f, m)
}

// AnswerTrimmed answers p, of which only BTH, METH and perhaps TSETH have arrived. If the whole packet has arrived too, it
// makes a SACK due, otherwise a NACK.
func (s *SACKs) AnswerTrimmed(p *bth.Packet, m Marks, where Trim) {
	switch s.trk.Classify(p.PSN) {
	case reorder.Duplicate:
		s.Report(p, m)
	case reorder.Beyond:
		s.Refuse(p, m, bth.MRCOutOfWindow)
	default:
		reason := bth.MRCTrimmed
		if where == TrimmedLastHop {
			reason = bth.MRCTrimmedLastHop
		}
		s.Refuse(p, m, reason)
	}
}

func (s *SACKs) push() *reorder.Feedback {
	f := s.Push()
	*f = reorder.Feedback{}
	return f
}

// complete adds the marks of the packet that triggered f, and the bytes received. Beyond the limit it drops the oldest SACK.
func (s *SACKs) complete(f *reorder.Feedback, m Marks) {
	f.ECE, f.VP, s.Path = m.CE, m.Path, m.Path
	f.Receiver.Received = uint32((s.received+bth.MRCReceivedUnit-1)/bth.MRCReceivedUnit) & (1<<24 - 1)
	if s.Len() > s.depth {
		s.Head++
	}
}
