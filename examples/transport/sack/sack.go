// Package sack is an example of a transport: selective repeat over sprayed paths, with
// a field of its own in acknowledgements that tells which of the 64 packets before the
// acknowledged one have arrived.
package sack

import (
	"encoding/binary"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/param"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// Name is the name of the transport, its tracker and its recovery. Kind marks its
// packets on the wire.
const (
	Name             = "sack"
	Kind bth.Profile = 200
)

// Register adds the transport to roced, rocesim and rocectl.
func Register() {
	reorder.Register(Name, func(*param.Reader) reorder.Tracker { return new(receiver) })
	retrans.Register(Name, newSender)
	profile.Register(profile.Transport{Name: Name, Kind: Kind,
		Parts: profile.Spec{
			Reorder:  profile.Part{Name: Name},
			Recovery: profile.Part{Name: Name},
			Paths:    profile.Part{Name: "spray", Params: map[string]float64{"paths": 8}},
		},
		Fields: &qp.Fields{
			Ack:    []qp.Field{{Name: "arrived", Bytes: 8}},
			PutAck: func(own []byte, f *reorder.Feedback) { binary.BigEndian.PutUint64(own, f.Bitmap) },
			TakeAck: func(own []byte, f *reorder.Feedback) bool {
				f.Bitmap = binary.BigEndian.Uint64(own)
				return f.HasSACK || f.Bitmap == 0
			},
		},
		Rules: []profile.Rule{{Wrong: func(t *profile.Transport, s profile.Spec) bool {
			return (t.Name == Name) != (s.Recovery.Name == Name) || (t.Name == Name) != (s.Reorder.Name == Name)
		}, Why: "the tracker and the recovery sack need each other and the profile sack"}},
	})
}

// window is the number of packets that may be outstanding.
const window = 256

// marks has a bit for each of window consecutive PSNs.
type marks [window / 64]uint64

func (b *marks) has(psn bth.PSN) bool { return b[psn.Uint32()%window/64]>>(psn.Uint32()%64)&1 != 0 }

func (b *marks) set(psn bth.PSN) { b[psn.Uint32()%window/64] |= 1 << (psn.Uint32() % 64) }

// clear returns whether the bit was set.
func (b *marks) clear(psn bth.PSN) bool {
	was := b.has(psn)
	b[psn.Uint32()%window/64] &^= 1 << (psn.Uint32() % 64)
	return was
}

// before returns the bits of the 64 PSNs before psn; the lowest bit is that of psn-64.
func (b *marks) before(psn bth.PSN) uint64 {
	n := psn.Add(-64).Uint32() % window
	return b[n/64]>>(n%64) | b[(n/64+1)%(window/64)]<<(64-n%64)
}

// receiver is the tracker.
type receiver struct {
	expected bth.PSN
	arrived  marks // ahead of expected
	last     bth.PSN
	verdict  reorder.Verdict // of last
}

// Reset implements reorder.Tracker.
func (r *receiver) Reset(psn bth.PSN) { *r = receiver{expected: psn} }

// Classify implements reorder.Tracker.
func (r *receiver) Classify(psn bth.PSN) reorder.Verdict {
	switch d := psn.Diff(r.expected); {
	case d == 0:
		return reorder.InOrder
	case d < 0:
		return reorder.Duplicate
	case d >= window:
		return reorder.Beyond
	case r.arrived.has(psn):
		return reorder.Duplicate
	}
	return reorder.Held
}

// Commit implements reorder.Tracker.
func (r *receiver) Commit(psn bth.PSN, v reorder.Verdict) {
	switch v {
	case reorder.InOrder:
		for r.expected = psn.Next(); r.arrived.clear(r.expected); {
			r.expected = r.expected.Next()
		}
	case reorder.Held:
		r.arrived.set(psn)
	}
	r.last, r.verdict = psn, v
}

// Expected implements reorder.Tracker.
func (r *receiver) Expected() bth.PSN { return r.expected }

// Feedback acknowledges the last packet, if it is ahead of a gap, and those before it.
func (r *receiver) Feedback(f *reorder.Feedback) {
	f.Expected = r.expected
	if r.verdict != reorder.InOrder && !r.last.Before(r.expected) {
		f.HasSACK, f.SACK, f.Refused = true, r.last, r.verdict >= reorder.Beyond
		f.Bitmap = r.arrived.before(r.last)
	}
}

// Footprint implements reorder.Tracker.
func (r *receiver) Footprint() int { return 3 + window/8 }
