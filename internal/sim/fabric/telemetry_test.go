package fabric

import (
	"testing"

	"roced.io/roced/ccalgo"
)

// TestTelemetry: each switch records its egress port as a packet leaves. Two senders share the link between the switches,
// so that its queue grows by a packet for each that leaves until all have arrived. The last link has no queue.
func TestTelemetry(t *testing.T) {
	f := newField(t, Dumbbell(w100, 2, 1), SwitchConfig{})
	records := map[uint32]*ccalgo.Telemetry{}
	f.net.parts[0].Telemetry = func(p *Packet) *ccalgo.Telemetry {
		if p.Src == 1 {
			return nil
		}
		if records[p.Ref] == nil {
			records[p.Ref] = new(ccalgo.Telemetry)
		}
		return records[p.Ref]
	}
	for h := range 2 {
		f.guns[h].load(20, Packet{Dst: 2, Bytes: size})
	}
	f.run(t)
	if len(records) != 20 {
		t.Fatalf("%d packets have telemetry", len(records))
	}
	for i := range uint32(20) {
		r := records[i]
		if r.N != 2 || r.Path != records[0].Path {
			t.Fatalf("packet %d: %+v", i, r)
		}
		first, last := r.Hops[0], r.Hops[1]
		if first.Rate != 100*gig || first.Sent != uint64(2*i*size) || first.Sent != last.Sent || last.Queued != 0 || first.At >= last.At {
			t.Errorf("packet %d: %+v", i, r)
		}
		if want := min(2*i+1, 39-2*i) * size; i > 0 && first.Queued != want {
			t.Errorf("packet %d: %d bytes are queued behind it, want %d", i, first.Queued, want)
		}
	}
}
