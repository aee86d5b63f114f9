package mrc

import (
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/reorder"
)

// TestDecodeMRC: each field of a SACK and of a NACK has its place in the feedback.
func TestDecodeMRC(t *testing.T) {
	psn, una := bth.MakePSN, bth.MakePSN(50)
	sack := func(h bth.SETH, c bth.CCState) bth.Packet {
		h.Cack = psn(99)
		return bth.Packet{Opcode: bth.OpcodeMRCSACK, SETH: h, CCState: c}
	}
	nack := func(h bth.NETH) bth.Packet { return bth.Packet{Opcode: bth.OpcodeMRCNACK, NETH: h} }
	nothing := ccalgo.Receiver{Reported: true}
	for _, c := range []struct {
		name string
		p    bth.Packet
		want reorder.Feedback
	}{
		{"in order", sack(bth.SETH{}, bth.CCState{}), reorder.Feedback{Expected: psn(100), Base: psn(99), Receiver: nothing}},
		{"ahead of a gap", sack(bth.SETH{AckOffset: 3, SACKOffset: 1, Bitmap: 6}, bth.CCState{}),
			reorder.Feedback{Expected: psn(100), Gap: true, HasSACK: true, SACK: psn(102), Bitmap: 6, Base: psn(100), Receiver: nothing}},
		{"bits of packets before the expected one", sack(bth.SETH{SACKOffset: -3, Bitmap: 0xf}, bth.CCState{}),
			reorder.Feedback{Expected: psn(100), Bitmap: 0xf, Base: psn(96), Receiver: nothing}},
		{"highest bit", sack(bth.SETH{SACKOffset: 1, Bitmap: 1 << 63}, bth.CCState{}),
			reorder.Feedback{Expected: psn(100), Gap: true, Bitmap: 1 << 63, Base: psn(100), Receiver: nothing}},
		{"answer to a probe", sack(bth.SETH{ProbeReply: true, AckOffset: 7}, bth.CCState{}),
			reorder.Feedback{Expected: psn(100), Base: psn(99), ProbeReply: true, ProbeID: 7, Receiver: nothing}},
		{"entropy, range and mark", sack(bth.SETH{Entropy: 0x12345678, MPR: 8, Mark: bth.MRCMarkSkip}, bth.CCState{}),
			reorder.Feedback{Expected: psn(100), Base: psn(99), VP: 0x12345678, MPR: 8, ECE: true, Receiver: nothing}},
		{"request to remove the path", sack(bth.SETH{Mark: bth.MRCMarkRemove}, bth.CCState{}),
			reorder.Feedback{Expected: psn(100), Base: psn(99), Remove: true, Receiver: nothing}},
		{"congestion control state", sack(bth.SETH{}, bth.CCState{Timestamp: 1, OutOfOrder: 2, Restore: true, Penalty: 3, Received: 4}),
			reorder.Feedback{Expected: psn(100), Base: psn(99), Timestamp: 1,
				Receiver: ccalgo.Receiver{Reported: true, OutOfOrder: 2, Restore: true, Penalty: 3, Received: 4}}},
		{"unknown congestion control state", sack(bth.SETH{CCType: 1}, bth.CCState{Timestamp: 1, Received: 4}),
			reorder.Feedback{Expected: psn(100), Base: psn(99)}},
		{"NACK", nack(bth.NETH{PSN: psn(60), Reason: bth.MRCOutOfWindow, Entropy: 9, CCType: bth.MRCStateNACK, Timestamp: 5}),
			reorder.Feedback{Expected: una, HasSACK: true, SACK: psn(60), Refused: true, VP: 9, Timestamp: 5,
				Receiver: ccalgo.Receiver{Reason: uint8(bth.MRCOutOfWindow)}}},
		{"NACK without timestamp", nack(bth.NETH{PSN: psn(60), Reason: bth.MRCTrimmed, Timestamp: 5}),
			reorder.Feedback{Expected: una, HasSACK: true, SACK: psn(60), Refused: true, Receiver: ccalgo.Receiver{Reason: uint8(bth.MRCTrimmed)}}},
	} {
		f := reorder.Feedback{NumHoles: 2} // of an earlier acknowledgement
		if Decode(&c.p, una, &f); f != c.want {
			t.Errorf("%s:\n%+v, want\n%+v", c.name, f, c.want)
		}
	}
}
