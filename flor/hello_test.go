package flor

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"roced.io/roced/internal/lab"
	"roced.io/roced/verbs"
)

var aHello = hello{rc: true, unit: 1024, writes: 16, partials: 8, maxSend: 32 << 10, inbox: 64, mtu: verbs.MTU1024, ackQPN: 0x17,
	token: 0x0102030405060708, firstGN: 1<<64 - 1, n: 3, qpn: [3]uint32{0x18, 0x19, 0xfffffe}, psns: [3]uint32{1, 2, 0xffffff}}

func TestHelloGolden(t *testing.T) {
	want, _ := hex.DecodeString(strings.ReplaceAll(
		"466c0101 0a040803 00008000 0040 03 00 00000017 0102030405060708 ffffffffffffffff 000018000001 000019000002 fffffeffffff", " ", ""))
	got := aHello.append(nil)
	if !bytes.Equal(got, want) || len(got) != helloLen {
		t.Errorf("%x, want %x", got, want)
	}
	var h hello
	if err := h.parse(append(want, 0, 0)); err != nil || h != aHello {
		t.Errorf("%+v, %v", h, err)
	}
	for i, x := range map[int]byte{0: 'G', 2: 2, 3: 2, 4: 32, 5: 40, 7: 4, 14: 9, 15: 1, 38: 0x19, 54: 1} {
		bad := append(bytes.Clone(want), 0, 0)
		bad[i] = x
		if err := h.parse(bad); !errors.Is(err, ErrProtocol) {
			t.Errorf("byte %d is %d: %v", i, x, err)
		}
	}
}

// FuzzHello: parse refuses a greeting, or accepts it if append reproduces its bytes.
func FuzzHello(f *testing.F) {
	f.Add(aHello.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h hello
		if h.parse(b) != nil {
			return
		}
		if got := h.append(nil); !bytes.Equal(got, b[:helloLen]) {
			t.Errorf("%x became %x", b, got)
		}
	})
}

// FuzzControl: the same holds for control messages.
func FuzzControl(f *testing.F) {
	f.Add((&control{slot: 2, state: controlUp, to: 7, token: 1 << 63, epoch: 3, psn: 4}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m control
		if m.parse(b) && !bytes.Equal(m.append(nil), b) {
			t.Errorf("%x is %+v", b, m)
		}
	})
}

// TestHostilePeer: the listener refuses an invalid greeting, sends the reason, and counts it.
func TestHostilePeer(t *testing.T) {
	e := newEnds(t, Config{})
	ctx := timeout(t)
	d := e.dev[0]
	good := aHello
	good.rc = false
	others := []struct {
		name    string
		private []byte
		why     string
	}{
		{"nothing", nil, "does not speak Flor"},
		{"another program", []byte("hello"), "does not speak Flor"},
		{"version", func() []byte { b := good.append(nil); b[2] = 9; return b }(), "version 9"},
		{"rc", aHello.append(nil), "RC is 1 at the peer, 0 here"},
		{"unit", func() []byte { h := good; h.unit = 4096; return h.append(nil) }(), "Unit is 4096 at the peer, 1024 here"},
		{"no queue pair", func() []byte { h := good; h.qpn[1] = 0; return h.append(nil) }(), "invalid fields"},
		{"no inbox", func() []byte { h := good; h.inbox = 0; return h.append(nil) }(), "invalid fields"},
	}
	for _, c := range others {
		p, err := d.newPair(0)
		lab.Must(t, err)
		_, err = d.cm.Dial(ctx, e.l.Addr(), p.q, verbs.CMParams{PrivateData: c.private})
		var no *verbs.RejectedError
		if !errors.As(err, &no) || no.Reason != consumerReject || !strings.Contains(string(no.PrivateData), c.why) {
			t.Errorf("%s: %v", c.name, err)
		}
		p.destroy()
	}
	// The listener sends the refusal before it counts it.
	lab.Eventually(t, lab.Limit, "all that were refused", func() bool { return e.dev[1].Counters().Refused == uint64(len(others)) })
	lab.Must(t, e.conn[0].Close())
	lab.Must(t, e.conn[1].Close())
	e.nothingLeft(t)
}

// TestHostileListener: a client refuses an invalid answer of a listener.
func TestHostileListener(t *testing.T) {
	e := newEnds(t, Config{})
	ctx := timeout(t)
	l, err := e.dev[1].cm.Listen(netip.MustParseAddrPort("198.18.0.2:7472"), 4)
	lab.Must(t, err)
	defer l.Close()
	go func() {
		r, err := l.Next(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		p, err := e.dev[1].newPair(0)
		if err != nil {
			t.Error(err)
			return
		}
		defer p.destroy()
		short, cancel := context.WithTimeout(ctx, making)
		defer cancel()
		_, err = r.Accept(short, p.q, verbs.CMParams{PrivateData: []byte("welcome"), Connect: func(_, _ netip.AddrPort, _ []byte) error { return nil }})
		if err == nil {
			t.Error("the connection stands")
		}
	}()
	_, err = e.dev[0].Dial(ctx, l.Addr)
	var mine *Error
	if !errors.Is(err, ErrProtocol) || !errors.As(err, &mine) || mine.Remote != l.Addr {
		t.Errorf("dial: %v", err)
	}
}
