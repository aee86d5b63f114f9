package cm_test

import (
	"encoding/binary"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/bth/mad"
	"roced.io/roced/internal/daemon/cm"
	"roced.io/roced/plugin/mono"
)

// halfOpen returns a world in which b has sent its REP, and that REP.
func halfOpen(t *testing.T) (*world, mad.REP) {
	t.Helper()
	w := newWorld(0)
	if _, err := w.b.agent.Listen(cm.ListenParam{ServiceID: service, Backlog: 1}, w.b); err != nil {
		t.Fatal(err)
	}
	if err := w.a.connect(w.a.param("")); err != nil {
		t.Fatal(err)
	}
	w.deliver()
	if err := w.b.conn.Accept(0, accept(0x22, "")); err != nil {
		t.Fatal(err)
	}
	var r mad.REP
	r.Decode(w.air[0].b)
	return w, r
}

// TestOffPathMessage: a message ends or completes a connection only if it comes from the peer's address and has both IDs.
func TestOffPathMessage(t *testing.T) {
	for _, c := range []struct {
		name          string
		addr          byte
		remote, local uint32 // added to the IDs
		changes       bool
	}{
		{name: "the peer", addr: 1, changes: true},
		{name: "another address", addr: 7},
		{name: "another ID of the peer", addr: 1, remote: 1},
		{name: "another ID of ours", addr: 1, local: 1},
	} {
		for _, attr := range []mad.Attr{mad.AttrRTU, mad.AttrREJ, mad.AttrDREQ} {
			w, rep := halfOpen(t)
			m := make([]byte, mad.Len)
			h := mad.CMHeader(attr, 1)
			h.Put(m)
			b := m[mad.HeaderLen:]
			binary.BigEndian.PutUint32(b, rep.RemoteCommID+c.remote)
			binary.BigEndian.PutUint32(b[4:], rep.LocalCommID+c.local)
			if attr == mad.AttrDREQ {
				b[10] = 0x22
			}
			from := w.b.route()
			from.DGID[15] = c.addr
			w.b.agent.ReceiveMAD(0, from, m)
			if got := w.b.conn.State(); (got != cm.StateREPSent) != c.changes {
				t.Errorf("%s: %s makes it %v", c.name, attrNames[attr], got)
			}
		}
	}
}

// recorder notes which listeners get requests.
type recorder []*cm.Listener

func (r *recorder) CMEvent(_ mono.Time, _ *cm.Conn, _ *cm.SIDR, e *cm.Event) {
	*r = append(*r, e.Conn.Listener)
}

// TestListenersByAddress: a listener of the address takes precedence over a wildcard listener. Listeners of another
// address or for datagrams get nothing.
func TestListenersByAddress(t *testing.T) {
	w := newWorld(0)
	var got recorder
	listen := func(p cm.ListenParam) *cm.Listener {
		t.Helper()
		p.ServiceID, p.Backlog = service, 9
		l, err := w.b.agent.Listen(p, &got)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	all := listen(cm.ListenParam{})
	own := listen(cm.ListenParam{Local: w.b.gid})
	family := listen(cm.ListenParam{Family: cm.IPv4})
	listen(cm.ListenParam{Family: cm.IPv6})
	listen(cm.ListenParam{Local: w.a.gid})
	listen(cm.ListenParam{Datagram: true})
	for i, l := range []*cm.Listener{own, family, all, nil} {
		p := w.a.param("")
		p.QPN += bth.QPN(i)
		if err := w.a.connect(p); err != nil {
			t.Fatal(err)
		}
		w.deliver()
		if l == nil {
			break
		}
		if len(got) != i+1 || got[i] != l {
			t.Fatalf("request %d reached %v", i, got)
		}
		l.Close(0)
	}
	if len(got) != 3 || w.b.agent.Counters().NoService != 1 {
		t.Errorf("%d requests reported, %+v", len(got), w.b.agent.Counters())
	}
}
