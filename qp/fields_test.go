package qp

import (
	"strings"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// ownFields carry what the receiver can verify: data the number of its PSN, acknowledgements the expected PSN.
var ownFields = &Fields{
	Data: []Field{{"psn", 3}},
	Ack:  []Field{{"constant", 1}, {"expected", 4}},
	PutData: func(own []byte, _ mono.Time, psn bth.PSN, rec retrans.Recovery) {
		if rec == nil {
			panic("no recovery")
		}
		v := psn.Uint32()
		own[0], own[1], own[2] = byte(v>>16), byte(v>>8), byte(v)
	},
	TakeData: func(own []byte, psn bth.PSN, trk reorder.Tracker) bool {
		return trk != nil && bth.MakePSN(uint32(own[0])<<16|uint32(own[1])<<8|uint32(own[2])) == psn
	},
	PutAck: func(own []byte, f *reorder.Feedback) {
		v := f.Expected.Uint32()
		own[0], own[1], own[2], own[3], own[4] = 7, 0, byte(v>>16), byte(v>>8), byte(v)
	},
	TakeAck: func(own []byte, f *reorder.Feedback) bool {
		expected := bth.MakePSN(uint32(own[2])<<16 | uint32(own[3])<<8 | uint32(own[4]))
		f.Bitmap = uint64(own[0])
		return own[0] == 7 && own[1] == 0 && expected.Diff(f.Expected) >= 0
	},
}

// owned is IRN with fields of its own.
func owned() Profile {
	p := irn(nil)
	p.Kind, p.Fields = 200, ownFields
	return p
}

// TestFieldsInEachPacket: data and acknowledgements carry the fields, errors and RNR NAKs do not. Merged acknowledgements
// carry those of the last one.
func TestFieldsInEachPacket(t *testing.T) {
	c := lossless
	c.profile = owned
	p := newPair(t, c)
	mixed(p, 0)
	p.ends[1].h.recvs = nil
	seen := map[bth.Opcode]int{}
	p.faults = func(_ int, k *bth.Packet) fault {
		var b [bth.MaxOwn]byte
		own, want := len(k.Ext.Own(&b)), 4
		switch {
		case k.Opcode.IsReadAck() || k.Opcode.IsAck() && numbered(k.AETH.Syndrome):
			want = 8
		case k.Opcode.IsAck():
			want = 0
		}
		if own != want {
			t.Errorf("%v %v: %d bytes of its own, want %d", k.Opcode, k.AETH.Syndrome, own, want)
		}
		if k.Opcode.IsAck() && !numbered(k.AETH.Syndrome) {
			seen[0]++
		} else {
			seen[k.Opcode]++
		}
		return fault{}
	}
	for range 40 {
		p.step()
	}
	if seen[0] == 0 || seen[bth.TransportExt|bth.OpSendOnly] == 0 {
		t.Errorf("packets %v, want data and RNR NAKs", seen)
	}
}

// eachPacket calls use with each packet of a workload of SENDs, READs and atomics, before it arrives.
func eachPacket(t *testing.T, use func(q *QP, now mono.Time, f flight)) {
	c := lossless
	c.profile = owned
	p := newPair(t, c)
	l := mixed(p, 0)
	for n := 0; n < 10_000; n++ {
		p.send()
		for _, f := range p.wire {
			use(p.ends[f.to].q, p.now, f)
		}
		if !p.step() {
			break
		}
	}
	l.verify(t)
}

// TestFieldsMalformed: packets with missing, long or wrong fields are dropped, and change nothing.
func TestFieldsMalformed(t *testing.T) {
	dropped := map[string]int{}
	eachPacket(t, func(q *QP, now mono.Time, f flight) {
		k := f.p
		var b [bth.MaxOwn]byte
		own := append([]byte(nil), k.Ext.Own(&b)...)
		if len(own) == 0 {
			return
		}
		kind := "data"
		if k.Opcode.IsReadAck() {
			kind = "read ack"
		} else if k.Opcode.IsAck() {
			kind = "ack"
		} else if k.Opcode.IsResponse() {
			kind = "response"
		}
		before, expected := q.req.una, q.resp.trk.Expected()
		for what, change := range map[string]func(){
			"missing": func() { k.Ext.Flags &^= bth.XHasOwn },
			"long":    func() { k.Ext.SetOwn(append(own, 0, 0, 0, 0)) },
			"wrong":   func() { k.Ext.SetOwn(append([]byte{own[0] ^ 0xff}, own[1:]...)) },
		} {
			k = f.p
			change()
			if d := q.Receive(now, &k, f.meta); d == DropFields {
				dropped[kind+" "+what]++
			} else if d != DropStaleAck {
				t.Fatalf("%s %s: %v", kind, what, d)
			}
			if q.req.una != before || q.resp.trk.Expected() != expected || q.state != RTS {
				t.Fatalf("%s %s: the queue pair has changed", kind, what)
			}
		}
	})
	for _, kind := range []string{"data", "response", "ack", "read ack"} {
		for _, what := range []string{"missing", "long", "wrong"} {
			if dropped[kind+" "+what] == 0 {
				t.Errorf("no %s with %s fields was dropped: %v", kind, what, dropped)
			}
		}
	}
}

// TestFieldsMerged: acknowledgements in order merge, and carry the fields of the last one.
func TestFieldsMerged(t *testing.T) {
	var a ackQueue
	for i := range 3 {
		f := a.push()
		f.Expected, f.Timestamp = bth.MakePSN(uint32(i)), uint16(i)
		a.merge(true)
	}
	if f := a.pop(); a.Len() != 0 || f.Expected != bth.MakePSN(2) || f.Timestamp != 2 {
		t.Errorf("%+v, and %d others", f, a.Len())
	}
	for range 2 {
		a.push().Bitmap = 1
		a.merge(true)
	}
	if a.Len() != 2 {
		t.Errorf("acknowledgements with bitmaps merge")
	}
}

// TestFieldsTraced: events carry the fields by name.
func TestFieldsTraced(t *testing.T) {
	c := lossless
	c.profile = owned
	p := newPair(t, c)
	var log fieldLog
	p.ends[0].q.SetTracer(p.now, &log)
	l := mixed(p, 0)
	p.run(t)
	l.verify(t)
	if log[TraceSent] == 0 || log[TraceReceived] == 0 || log[TraceAck] == 0 || log[TraceKind(100)] > 0 {
		t.Errorf("events with fields %v", log)
	}
}

// fieldLog counts events whose fields are right, and under 100 those whose are not.
type fieldLog [101]int

func (l *fieldLog) Closed() {}

func (l *fieldLog) Trace(_ mono.Time, e TraceEvent) {
	v := ReadFields(e.Fields, e.Own)
	ok := true
	switch e.Kind {
	case TraceSent, TraceReceived:
		ok = v["psn"] == uint64(e.PSN.Uint32())
	case TraceAck:
		ok = v["constant"] == 7 && len(v) == 2
	default:
		return
	}
	if !ok {
		e.Kind = 100
	}
	l[e.Kind]++
}

func TestFieldsCheck(t *testing.T) {
	put, take := ownFields.PutAck, ownFields.TakeAck
	for want, f := range map[string]*Fields{
		"":                                 ownFields,
		"lack a Put or Take function":      {Ack: []Field{{"x", 4}}, PutAck: put},
		"packets or acknowledgements lack": {Data: []Field{{"x", 4}}},
		`field "" of`:                      {Ack: []Field{{"", 4}}, PutAck: put, TakeAck: take},
		`field "x" of 4`:                   {Ack: []Field{{"x", 4}, {"x", 4}}, PutAck: put, TakeAck: take},
		`field "x" of 9`:                   {Ack: []Field{{"x", 9}}, PutAck: put, TakeAck: take},
		"fields of 25 bytes":               {Ack: []Field{{"a", 8}, {"b", 8}, {"c", 8}, {"d", 1}}, PutAck: put, TakeAck: take},
	} {
		if err := f.Check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := (*Fields)(nil).Check(); err != nil || (*Fields)(nil).Of(bth.OpcodeExtAck) != nil {
		t.Error(err)
	}
	if v := ReadFields(ownFields.Ack, []byte{7, 0, 0, 1, 2, 0, 0}); v != nil {
		t.Errorf("a short layout has values %v", v)
	}
}

// TestFieldsAllocateNothing: the fields cost no allocation per packet.
func TestFieldsAllocateNothing(t *testing.T) {
	c := lossless
	c.profile = owned
	q := newPair(t, c).ends[0].q
	var p bth.Packet
	f := &reorder.Feedback{Expected: bth.MakePSN(9)}
	n := testing.AllocsPerRun(100, func() {
		p.Ext = bth.XETH{Profile: 200}
		q.putData(mono.Time(time.Second), &p, q.req.rec)
		if !q.takeData(&p, q.resp.trk) {
			t.Fatal("data")
		}
		p.Ext = bth.XETH{Profile: 200}
		if q.putAck(&p, f); !q.takeAck(&p, f) {
			t.Fatal("ack")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
