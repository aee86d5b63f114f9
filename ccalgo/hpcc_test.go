package ccalgo

import (
	"testing"

	"roced.io/roced/plugin/mono"
)

// hpccTest feeds an HPCC with the telemetry of two links, of 100 and 400 Gb/s.
type hpccTest struct {
	*HPCC
	at   mono.Time
	sent [2]uint64
}

func newHPCCTest(t *testing.T, p Params) *hpccTest {
	h := &hpccTest{HPCC: made[*HPCC](t, "hpcc", p), at: 1000 * us}
	h.ack(0, 0, [2]float64{}, [2]uint32{}) // the first one is only recorded
	return h
}

// ack acknowledges bytes after some time, in which the links had these loads. inflight bytes remain.
func (h *hpccTest) ack(after mono.Time, bytes uint32, load [2]float64, queued [2]uint32) {
	h.at += after
	var t Telemetry
	for i, rate := range []uint64{100e9, 400e9} {
		h.sent[i] += uint64(load[i] * float64(rate) / 8e9 * float64(after))
		t.Add(uint32(i), Hop{At: h.at, Sent: h.sent[i], Rate: rate, Queued: queued[i]})
	}
	h.OnTelemetry(h.at, &t)
	h.OnAck(h.at, Sample{Bytes: bytes, InFlight: 100_000})
}

// TestHPCCLoad follows MeasureInflight of algorithm 1: the most loaded link counts, with the smaller of two queues, and the
// average has the weight of the elapsed part of T.
func TestHPCCLoad(t *testing.T) {
	h := newHPCCTest(t, nil)
	near(t, "U at the start", h.load, 1)
	h.ack(2*us, 1000, [2]float64{0.5, 0.2}, [2]uint32{65000, 0}) // the queue was empty before
	near(t, "U", h.load, 11.0/13+2.0/13*0.5)
	u := h.load
	h.ack(4*us, 1000, [2]float64{0.5, 0.2}, [2]uint32{32500, 0}) // of 162500
	near(t, "U with a queue", h.load, 9.0/13*u+4.0/13*(0.5+0.2))
	h.ack(26*us, 1000, [2]float64{0.5, 0.9}, [2]uint32{32500, 0}) // the other link; longer than T
	near(t, "U of the other link", h.load, 0.9)
	h.ack(13*us, 1000, [2]float64{0, 0}, [2]uint32{0, 130000})
	h.ack(13*us, 1000, [2]float64{0, 0}, [2]uint32{0, 130000}) // of 650000
	near(t, "U of its queue", h.load, 0.2)
}

// TestHPCCWindow follows ComputeWind: multiplicative adjustment at eta and above, additive steps below, at most maxStage of
// them, then multiplicative increase. The window spreads over T.
func TestHPCCWindow(t *testing.T) {
	h := newHPCCTest(t, nil)
	const full = 100_001 // more than all bytes in flight: a round trip has passed
	h.ack(13*us, full, [2]float64{1, 0}, [2]uint32{})
	w := 162500*0.95 + 80
	near(t, "W at load 1", h.window, w)
	for i := range 5 {
		h.ack(13*us, full, [2]float64{0.5, 0}, [2]uint32{})
		near(t, "W after a step", h.window, w+80*float64(i+1))
	}
	h.ack(13*us, full, [2]float64{0.9, 0}, [2]uint32{})
	w = (w+400)/(0.9/0.95) + 80
	near(t, "W after five steps", h.window, min(w, 162500))
	window, rate := h.Limits()
	near(t, "window", float64(window), float64(uint64(h.window)))
	near(t, "R", float64(rate), h.window*8/13e-6)
}

// TestHPCCReference: acknowledgements of one round trip all scale the window from its beginning (section 3.2), so that a
// queue is not answered twice.
func TestHPCCReference(t *testing.T) {
	h := newHPCCTest(t, nil)
	h.ack(13*us, 100_001, [2]float64{1, 0}, [2]uint32{})
	base := h.window
	for range 10 { // together as many bytes as were in flight, but no more
		h.ack(13*us, 10_000, [2]float64{1, 0}, [2]uint32{})
		near(t, "W within a round trip", h.window, base*0.95+80)
	}
	h.ack(13*us, 1, [2]float64{1, 0}, [2]uint32{})
	h.ack(13*us, 1, [2]float64{1, 0}, [2]uint32{})
	near(t, "W in the next one", h.window, (base*0.95+80)*0.95+80)
}

// TestHPCCRecords: telemetry of another path, older telemetry, and acknowledgements without any change no window.
func TestHPCCRecords(t *testing.T) {
	h := newHPCCTest(t, nil)
	h.ack(13*us, 100_001, [2]float64{1, 0}, [2]uint32{})
	w, last := h.window, h.last
	var other Telemetry
	other.Add(9, Hop{At: h.at + us, Sent: 1 << 40, Rate: 100e9, Queued: 1 << 20})
	other.Add(1, Hop{At: h.at + us, Sent: 1 << 40, Rate: 100e9, Queued: 1 << 20})
	h.OnTelemetry(h.at+us, &other)
	h.OnAck(h.at+us, Sample{Bytes: 1000, InFlight: 100_000})
	near(t, "W after another path", h.window, w)
	near(t, "its records", float64(h.last.Hops[0].Sent), 1<<40)
	h.OnTelemetry(h.at, &last)
	h.OnAck(h.at, Sample{Bytes: 1000})
	old := last
	old.Hops[0].At -= 5 * us
	h.OnTelemetry(h.at, &old)
	h.OnAck(h.at, Sample{Bytes: 1 << 20})
	h.OnAck(h.at+us, Sample{Bytes: 1 << 20})
	near(t, "W after older telemetry", h.window, w)
	near(t, "U", h.load, 1)
}

// TestTelemetryRoom: a path with more switches than the header has room for keeps the records of the first.
func TestTelemetryRoom(t *testing.T) {
	var a, b Telemetry
	for i := range uint32(MaxHops + 2) {
		a.Add(i, Hop{Sent: uint64(i)})
		b.Add(MaxHops+2-i, Hop{Sent: uint64(i)})
	}
	if a.N != MaxHops || a.Hops[MaxHops-1].Sent != MaxHops-1 || a.Path == b.Path {
		t.Errorf("%+v", a)
	}
	if TelemetryBytes != 42 {
		t.Errorf("%d bytes, the paper has 42", TelemetryBytes)
	}
	if !NeedsTelemetry("hpcc") || NeedsTelemetry("dcqcn") {
		t.Error("only hpcc needs telemetry")
	}
}
