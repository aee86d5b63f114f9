package check

import (
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/internal/observe/flow"
)

// BenchmarkChecks checks a connection of 400,000 packets without a loss: its time per packet must not grow with the capture.
func BenchmarkChecks(b *testing.B) {
	c := &capture{streams: map[uint64]*stream{1: {}, 2: {}}}
	for i := range 200_000 {
		psn := bth.MakePSN(uint32(i))
		for number, p := range map[uint64]packet{
			1: {opcode: bth.OpReadRequest, psn: psn, reth: bth.RETH{Length: 8}, fresh: true},
			2: {opcode: bth.OpAcknowledge, psn: psn, aeth: bth.AETH{Syndrome: bth.SyndromePSNSeqErr}},
		} {
			p.stream, p.frame = c.streams[number], len(c.packets)+1
			p.stream.packets = append(p.stream.packets, int32(len(c.packets)))
			c.packets = append(c.packets, p)
		}
	}
	f := &flow.Flow{MTU: 1024}
	f.Requests.Stream, f.Responses.Stream = 1, 2
	for b.Loop() {
		newConnection(c, f).checks()
	}
}
