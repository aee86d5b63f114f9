package mrc

import (
	"math"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/reorder"
)

// Decode sets f to the content of p, a SACK or NACK. A NACK acknowledges no packet: then f.Expected is una, the lowest
// unacknowledged PSN.
func Decode(p *bth.Packet, una bth.PSN, f *reorder.Feedback) {
	*f = reorder.Feedback{}
	if p.Opcode.IsNACK() {
		h := &p.NETH
		f.Expected, f.HasSACK, f.SACK, f.Refused, f.VP = una, true, h.PSN, true, h.Entropy
		f.Receiver.Reason = uint8(h.Reason)
		if h.CCType == bth.MRCStateNACK {
			f.Timestamp = h.Timestamp
		}
		return
	}
	h := &p.SETH
	f.Expected, f.VP, f.MPR = h.Cack.Next(), h.Entropy, h.MPR
	f.ECE, f.Remove = h.Mark == bth.MRCMarkSkip, h.Mark == bth.MRCMarkRemove
	if h.ProbeReply {
		f.ProbeReply, f.ProbeID = true, h.ProbeID()
	} else if h.AckOffset > 0 {
		f.HasSACK, f.SACK = true, h.AckPSN()
	}
	if f.Bitmap, f.Base = h.Bitmap, h.Base(); f.Bitmap != 0 {
		f.Gap = f.Last().After(f.Expected)
	}
	if h.CCType == bth.MRCStateNSCC {
		c := &p.CCState
		f.Timestamp = c.Timestamp
		f.Receiver = ccalgo.Receiver{Reported: true, Restore: c.Restore, Penalty: c.Penalty, OutOfOrder: c.OutOfOrder, Received: c.Received}
	}
}

// Encode makes p a SACK or NACK with the content of f, the reverse of Decode. It returns the opcode and the PSN of its BTH.
// src and dest are the contexts of the sender of p and of its receiver.
func Encode(f *reorder.Feedback, p *bth.Packet, src, dest uint16) (bth.Opcode, bth.PSN) {
	if f.Refused {
		p.NETH = bth.NETH{Reason: bth.MRCReason(f.Receiver.Reason), Entropy: f.VP, SrcContext: src, DestContext: dest, PSN: f.SACK,
			CCType: bth.MRCStateNACK, Timestamp: f.Timestamp}
		return bth.OpcodeMRCNACK, f.SACK
	}
	cack := f.Expected.Add(-1)
	p.SETH = bth.SETH{ProbeReply: f.ProbeReply, AckOffset: int16(f.ProbeID), Entropy: f.VP, SrcContext: src, DestContext: dest, Cack: cack,
		MPR: f.MPR, SACKOffset: int16(f.Base.Diff(cack)), Bitmap: f.Bitmap}
	if f.ECE {
		p.SETH.Mark = bth.MRCMarkSkip
	}
	if !f.ProbeReply {
		p.SETH.AckOffset = int16(max(f.SACK.Diff(cack), math.MinInt16))
	}
	p.CCState = bth.CCState{Timestamp: f.Timestamp, OutOfOrder: f.Receiver.OutOfOrder, Received: f.Receiver.Received}
	return bth.OpcodeMRCSACK, cack
}
