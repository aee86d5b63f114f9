package cm_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/bth/mad"
	"roced.io/roced/internal/daemon/cm"
	"roced.io/roced/plugin/mono"
)

// faults is the number of faults of the link before it becomes reliable. It is less than the retries of a message.
const faults = 10

// owner answers the events of a side as an application would.
func owner(t *rapid.T, accepts bool) func(*side, mono.Time, *cm.Conn, *cm.SIDR, *cm.Event) {
	qpn := bth.QPN(100)
	return func(s *side, now mono.Time, c *cm.Conn, _ *cm.SIDR, e *cm.Event) {
		var err error
		switch {
		case e.Kind == cm.ConnectRequest && accepts:
			qpn++
			err = c.Accept(now, accept(qpn, ""))
		case e.Kind == cm.ConnectRequest:
			err = c.Reject(now, mad.ReasonConsumerDefined, nil, nil)
		case e.Kind == cm.ConnectReply:
			err = c.Establish(now, nil)
		case e.Kind == cm.Disconnected && e.DREQ:
			err = c.DisconnectReply(now, nil)
		}
		if err != nil {
			t.Fatalf("%s: %s: %v", s.name, eventNames[e.Kind], err)
		}
	}
}

// settle delivers all datagrams, with at most *left faults. It returns when no datagram is in transit and only
// timewait timers remain.
func settle(t *rapid.T, w *world, left *int) {
	for {
		if len(w.air) == 0 {
			next := w.a.agent.NextTimeout().Min(w.b.agent.NextTimeout())
			if next == mono.Never || !waiting(w.a) && !waiting(w.b) {
				return
			}
			w.advance(next.Sub(w.now))
			continue
		}
		if *left > 0 {
			i := rapid.IntRange(0, len(w.air)-1).Draw(t, "which")
			w.air[0], w.air[i] = w.air[i], w.air[0]
			switch rapid.SampledFrom([]string{"deliver", "deliver", "drop", "duplicate", "delay"}).Draw(t, "fate") {
			case "drop":
				*left--
				w.air = w.air[1:]
				continue
			case "duplicate":
				*left--
				w.air = append(w.air, w.air[0])
			case "delay":
				*left--
				w.advance(7 * time.Second)
				continue
			}
		}
		w.deliver()
	}
}

// waiting reports whether s has a connection that waits for its peer.
func waiting(s *side) bool {
	for _, c := range s.conns {
		switch c.State() {
		case cm.StateREQSent, cm.StateREPSent, cm.StateDREQSent:
			return true
		}
	}
	return false
}

func established(s *side) (open []*cm.Conn) {
	for _, c := range s.conns {
		if c.State() == cm.StateEstablished {
			open = append(open, c)
		}
	}
	return open
}

// TestBothEndsAgree: for any faults of the link, both ends agree on whether they are connected, and forget a closed
// connection.
func TestBothEndsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(byte(rapid.IntRange(0, 255).Draw(t, "seed")))
		accepts := rapid.Bool().Draw(t, "accepts")
		w.a.react, w.b.react = owner(t, accepts), owner(t, accepts)
		if _, err := w.b.agent.Listen(cm.ListenParam{ServiceID: service, Backlog: 4}, w.b); err != nil {
			t.Fatal(err)
		}
		left := faults
		p := w.a.param("")
		p.MaxCMRetries = 15
		if err := w.a.connect(p); err != nil {
			t.Fatal(err)
		}
		settle(t, w, &left)
		a, b := established(w.a), established(w.b)
		if len(a) != len(b) || (len(a) == 1) != accepts {
			t.Fatalf("%d and %d connections\n%s", len(a), len(b), w.log.String())
		}
		left = faults
		if len(a) == 1 {
			if a[0].QPAttr().RQPSN != b[0].QPAttr().SQPSN || a[0].QPAttr().SQPSN != b[0].QPAttr().RQPSN {
				t.Fatalf("%+v and %+v", a[0].QPAttr(), b[0].QPAttr())
			}
			for _, c := range [][]*cm.Conn{a, b, append(a, b...)}[rapid.IntRange(0, 2).Draw(t, "who")] {
				if rapid.Bool().Draw(t, "close") {
					c.Close(w.now)
				} else if err := c.Disconnect(w.now, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		settle(t, w, &left)
		w.advance(time.Minute)
		if w.a.agent.Len() != 0 || w.b.agent.Len() != 0 || w.a.agent.NextTimeout() != mono.Never || w.b.agent.NextTimeout() != mono.Never {
			t.Fatalf("left over: %d and %d\n%s", w.a.agent.Len(), w.b.agent.Len(), w.log.String())
		}
	})
}

// FuzzReceive: an off-path attacker without the IDs changes nothing. The agent survives any datagram and keeps its
// limits.
func FuzzReceive(f *testing.F) {
	for attr := mad.AttrREQ; attr <= mad.AttrAPR; attr++ {
		m := make([]byte, mad.Len)
		h := mad.CMHeader(attr, 1)
		h.Put(m)
		f.Add(m, false)
	}
	f.Fuzz(func(t *testing.T, m []byte, offPath bool) {
		w := newWorld(1)
		for _, datagram := range []bool{false, true} {
			if _, err := w.b.agent.Listen(cm.ListenParam{ServiceID: service, Backlog: 2, Datagram: datagram}, w.b); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.a.connect(w.a.param("")); err != nil {
			t.Fatal(err)
		}
		w.deliver()
		if err := w.b.conn.Accept(0, accept(0x22, "")); err != nil {
			t.Fatal(err)
		}
		c := w.b.conn
		from := w.a.route()
		from.SGID, from.DGID = from.DGID, from.SGID
		if offPath {
			from.DGID[15] = 77
		}
		for range 3 {
			w.b.agent.ReceiveMAD(w.now, from, m)
			w.advance(time.Second)
		}
		if offPath && c.State() != cm.StateREPSent {
			t.Errorf("an off-path attacker has changed the connection to %v", c.State())
		}
		if w.b.agent.Len() > 8 {
			t.Errorf("%d connections", w.b.agent.Len())
		}
	})
}

// TestFlood: a flood of requests occupies no more than the backlog and the limit of the agent.
func TestFlood(t *testing.T) {
	w := newWorld(0)
	l, err := w.b.agent.Listen(cm.ListenParam{ServiceID: service, Backlog: 3}, w.b)
	if err != nil {
		t.Fatal(err)
	}
	flood := func(first bth.QPN) {
		for i := range bth.QPN(100) {
			p := w.a.param("")
			p.QPN = first + i
			if err := w.a.connect(p); err != nil {
				t.Fatal(err)
			}
			for len(w.air) > 0 {
				w.deliver()
			}
			w.a.conn.Close(w.now) // its REJ is lost
			w.air = nil
		}
	}
	flood(1000)
	if got := w.b.agent.Counters(); w.b.agent.Len() != 3 || got.BacklogFull != 97 {
		t.Errorf("%d pending, %+v", w.b.agent.Len(), got)
	}
	l.Close(w.now)
	if _, err := w.b.agent.Listen(cm.ListenParam{ServiceID: service, Backlog: 1000}, w.b); err != nil {
		t.Fatal(err)
	}
	flood(2000)
	if got := w.b.agent.Counters(); w.b.agent.Len() != 8 || got.LimitConnections != 95 {
		t.Errorf("%d connections of 8, %+v", w.b.agent.Len(), got)
	}
}
