package decode

import (
	"fmt"

	"roced.io/roced/bth"
)

// MRC holds the headers of a packet of MRC. bth.METH, bth.SETH and the other headers have the meaning of the fields.
type MRC struct {
	ReTx       bool    `json:"retx,omitempty"`
	Trimmed    bool    `json:"trimmed,omitempty"` // a switch removed everything behind METH and TSETH
	RQMSN      *uint16 `json:"rqmsn,omitempty"`
	MSN        *uint16 `json:"msn,omitempty"`
	Timestamp  *uint16 `json:"timestamp,omitempty"`
	Coarse     bool    `json:"coarse,omitempty"`
	Format     *uint8  `json:"format,omitempty"` // of the timestamp
	Op         *uint8  `json:"op,omitempty"`     // of an endpoint request or response
	PortMask   *uint32 `json:"port_mask,omitempty"`
	Reason     string  `json:"reason,omitempty"`
	Mark       *uint8  `json:"mark,omitempty"`
	ProbeID    *uint16 `json:"probe_id,omitempty"`
	AckPSN     *uint32 `json:"ack_psn,omitempty"`
	Cack       *uint32 `json:"cack,omitempty"`
	NACK       *uint32 `json:"nack,omitempty"` // the PSN that a NACK names
	Base       *uint32 `json:"base,omitempty"` // PSN of bit 0 of Bitmap
	Bitmap     *uint64 `json:"bitmap,omitempty"`
	Range      *uint32 `json:"range,omitempty"` // maximum PSN range
	Entropy    *uint32 `json:"entropy,omitempty"`
	EVPort     *uint16 `json:"entropy_sport,omitempty"`
	EVLabel    *uint32 `json:"entropy_label,omitempty"`
	Src        *uint16 `json:"src_context,omitempty"`
	Dest       *uint16 `json:"dest_context,omitempty"`
	Vendor     *uint8  `json:"vendor,omitempty"`
	CCType     *uint8  `json:"cc_type,omitempty"`
	CCFlags    *uint8  `json:"cc_flags,omitempty"`
	OutOfOrder *uint16 `json:"ooo_count,omitempty"`
	Restore    bool    `json:"restore,omitempty"`
	Penalty    *uint8  `json:"penalty,omitempty"`
	Received   *uint64 `json:"received,omitempty"` // bytes
}

// mrc records the headers h of a packet of MRC.
func mrc(p *bth.Packet, h bth.Headers) *MRC {
	m := &MRC{ReTx: p.ReTx}
	if h&bth.HdrMETH != 0 {
		m.RQMSN, m.MSN = new(p.METH.RQMSN), new(p.METH.MSN)
	}
	switch {
	case h&bth.HdrTSETH != 0:
		m.stamp(&p.TSETH)
	case h&bth.HdrSETH != 0:
		m.sack(&p.SETH, &p.CCState)
	case h&bth.HdrNETH != 0:
		n := &p.NETH
		m.Reason, m.Vendor, m.NACK = n.Reason.String(), new(n.Vendor), new(n.PSN.Uint32())
		m.path(n.Entropy, n.SrcContext, n.DestContext)
		m.CCType, m.CCFlags = new(n.CCType), new(n.CCFlags)
		if n.CCType == bth.MRCStateNACK {
			m.Timestamp = new(n.Timestamp)
		}
	case h&bth.HdrPETH != 0:
		q := &p.PETH
		m.ProbeID, m.Vendor, m.Src, m.Dest = new(q.ProbeID), new(q.Vendor), new(q.SrcContext), new(q.DestContext)
		m.stamp(&q.TSETH)
	case h&bth.HdrERTH != 0:
		q := &p.ERTH
		m.Op, m.Vendor, m.PortMask = new(uint8(q.Op)), new(q.Vendor), new(q.PortMask)
		m.stamp(&q.TSETH)
	case h&bth.HdrEETH != 0:
		m.Op, m.Timestamp = new(uint8(p.EETH.Op)), new(p.EETH.Timestamp)
	}
	return m
}

func (m *MRC) stamp(h *bth.TSETH) {
	m.Timestamp, m.Coarse, m.Format = new(h.Timestamp), h.Coarse, new(h.Format)
}

func (m *MRC) path(ev uint32, src, dest uint16) {
	port, label := bth.SplitEntropy(ev)
	m.Entropy, m.EVPort, m.EVLabel, m.Src, m.Dest = new(ev), new(port), new(label), new(src), new(dest)
}

func (m *MRC) sack(h *bth.SETH, s *bth.CCState) {
	m.Mark, m.Cack = new(uint8(h.Mark)), new(h.Cack.Uint32())
	if h.ProbeReply {
		m.ProbeID = new(h.ProbeID())
	} else {
		m.AckPSN = new(h.AckPSN().Uint32())
	}
	m.Base, m.Bitmap, m.Range = new(h.Base().Uint32()), new(h.Bitmap), new(uint32(h.MPR)*bth.MRCRangeUnit)
	m.path(h.Entropy, h.SrcContext, h.DestContext)
	m.CCType, m.CCFlags = new(h.CCType), new(h.CCFlags)
	if h.CCType == bth.MRCStateNSCC {
		m.Timestamp, m.OutOfOrder, m.Restore, m.Penalty = new(s.Timestamp), new(s.OutOfOrder), s.Restore, new(s.Penalty)
		m.Received = new(uint64(s.Received) * bth.MRCReceivedUnit)
	}
}

// appendTo appends the headers as text.
func (m *MRC) appendTo(b []byte) []byte {
	b = word(b, m.ReTx, "retx")
	b = word(b, m.Trimmed, "trimmed")
	b = number(b, "rqmsn %d", m.RQMSN)
	b = number(b, "msn %d", m.MSN)
	b = number(b, "op %d", m.Op)
	b = number(b, "ports 0x%x", m.PortMask)
	b = word(b, m.Reason != "", m.Reason)
	b = number(b, "mark %d", m.Mark)
	b = number(b, "probe %d", m.ProbeID)
	b = number(b, "ack %d", m.AckPSN)
	b = number(b, "cack %d", m.Cack)
	b = number(b, "nack %d", m.NACK)
	b = number(b, "base %d", m.Base)
	b = number(b, "bitmap 0x%016x", m.Bitmap)
	b = number(b, "range %d", m.Range)
	b = number(b, "entropy 0x%08x", m.Entropy)
	b = number(b, "evsport %d", m.EVPort)
	b = number(b, "evlabel 0x%x", m.EVLabel)
	b = number(b, "src 0x%04x", m.Src)
	b = number(b, "dest 0x%04x", m.Dest)
	b = number(b, "vendor %d", m.Vendor)
	b = number(b, "cctype %d", m.CCType)
	b = number(b, "ccflags %d", m.CCFlags)
	b = number(b, "ooo %d", m.OutOfOrder)
	b = word(b, m.Restore, "restore")
	b = number(b, "penalty %d", m.Penalty)
	b = number(b, "received %d", m.Received)
	b = number(b, "time %d", m.Timestamp)
	b = word(b, m.Coarse, "coarse")
	return number(b, "format %d", m.Format)
}

// word appends a word if it is set.
func word(b []byte, set bool, name string) []byte {
	if !set {
		return b
	}
	return append(append(b, ' '), name...)
}

// number appends a number if the packet has it.
func number[T uint8 | uint16 | uint32 | uint64](b []byte, format string, v *T) []byte {
	if v == nil {
		return b
	}
	return fmt.Appendf(b, " "+format, *v)
}
