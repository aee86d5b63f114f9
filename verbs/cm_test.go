package verbs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/verbs"
)

func (h *host) openCM(t *testing.T) *verbs.CM {
	t.Helper()
	m, err := openManager(h)
	must(t, err)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// TestCM connects by address, sends over the connection and closes it.
func TestCM(t *testing.T) {
	hosts := lab(t)
	ctx := timeout(t)
	a, b := hosts[0].open(t), hosts[1].open(t)
	a.createQP(verbs.QPInitAttr{Type: verbs.RC})
	b.createQP(verbs.QPInitAttr{Type: verbs.RC})
	must(t, b.qp.ToInit(verbs.DefaultConnParams()))
	must(t, b.qp.PostRecv(&verbs.RecvWR{WRID: 5, SGEs: []verbs.SGE{b.mr.SGE(0, 64)}}))
	ma, mb := hosts[0].openCM(t), hosts[1].openCM(t)
	l, err := mb.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), 0), 4)
	must(t, err)
	defer l.Close()

	accepted := make(chan *verbs.CMConn, 1)
	go func() {
		defer close(accepted)
		r, err := l.Next(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		if !bytes.HasPrefix(r.PrivateData, []byte("hello\x00")) || r.Remote.Addr() != hosts[0].addr {
			t.Errorf("request %+v", r)
		}
		c, err := r.Accept(ctx, b.qp, verbs.CMParams{PrivateData: []byte("welcome"), ResponderResources: 1})
		if err != nil {
			t.Error(err)
			return
		}
		accepted <- c
	}()
	ca, err := ma.Dial(ctx, netip.AddrPortFrom(hosts[1].addr, l.Addr.Port()), a.qp,
		verbs.CMParams{PrivateData: []byte("hello"), InitiatorDepth: 1})
	must(t, err)
	defer ca.Close()
	if !bytes.HasPrefix(ca.PrivateData, []byte("welcome\x00")) {
		t.Errorf("private data %q", ca.PrivateData)
	}
	cb := <-accepted
	if cb == nil {
		t.FailNow()
	}
	defer cb.Close()
	if ca.Local != cb.Remote || ca.Remote != cb.Local {
		t.Errorf("ends %v %v and %v %v", ca.Local, ca.Remote, cb.Local, cb.Remote)
	}

	copy(a.mr.Bytes(), "by address")
	must(t, a.qp.PostSend(&verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGEs: []verbs.SGE{a.mr.SGE(0, 10)}}))
	a.completion()
	if w := b.completion(); w.WRID != 5 || string(b.mr.Bytes()[:10]) != "by address" {
		t.Errorf("%+v, %q", w, b.mr.Bytes()[:10])
	}
	must(t, ca.Disconnect())
	must(t, cb.Wait(ctx))
	must(t, cb.Disconnect())
	must(t, ca.Wait(ctx))
}

// TestCMDatagrams finds a UD queue pair by address and sends to it.
func TestCMDatagrams(t *testing.T) {
	const qkey = 0x11112222
	hosts := lab(t)
	ctx := timeout(t)
	a, b := hosts[0].open(t), hosts[1].open(t)
	p := verbs.DefaultConnParams()
	p.QKey = qkey
	for _, n := range []*node{a, b} {
		n.createQP(verbs.QPInitAttr{Type: verbs.UD})
		must(t, n.qp.Connect(verbs.ConnInfo{}, p))
	}
	const grh = 40
	must(t, b.qp.PostRecv(&verbs.RecvWR{WRID: 5, SGEs: []verbs.SGE{b.mr.SGE(0, 64)}}))
	ma, mb := hosts[0].openCM(t), hosts[1].openCM(t)
	l, err := mb.ListenDatagrams(netip.AddrPortFrom(hosts[1].addr, 7174), 4)
	must(t, err)
	answered := make(chan error, 1)
	go func() {
		q, err := l.Next(ctx)
		if err == nil && (!bytes.HasPrefix(q.PrivateData, []byte("who?\x00")) || q.Local != l.Addr) {
			t.Errorf("question %+v", q)
		}
		if err == nil {
			err = q.Accept(b.qp, qkey, []byte("me"))
		}
		if err == nil {
			q, err = l.Next(ctx)
		}
		if err == nil {
			err = q.Reject(nil)
		}
		answered <- err
	}()
	s, err := ma.Resolve(ctx, l.Addr, []byte("who?"))
	must(t, err)
	if s.QPN != b.qp.Num() || s.QKey != qkey || s.Remote != l.Addr || !bytes.HasPrefix(s.PrivateData, []byte("me\x00")) {
		t.Errorf("service %+v", s)
	}
	ah, err := a.pd.CreateAH(s.AH)
	must(t, err)
	copy(a.mr.Bytes(), "by address")
	must(t, a.qp.PostSend(&verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, AH: ah, RemoteQPN: s.QPN,
		RemoteQKey: s.QKey, SGEs: []verbs.SGE{a.mr.SGE(0, 10)}}))
	a.completion()
	if w := b.completion(); w.WRID != 5 || string(b.mr.Bytes()[grh:grh+10]) != "by address" {
		t.Errorf("%+v, %q", w, b.mr.Bytes()[:grh+10])
	}
	var refused *verbs.RefusedError
	if _, err = ma.Resolve(ctx, l.Addr, nil); !errors.As(err, &refused) || refused.Status != 2 {
		t.Errorf("refused: %v", err)
	}
	must(t, <-answered)
	l.Close()
	if _, err = ma.Resolve(ctx, l.Addr, nil); !errors.As(err, &refused) || refused.Status != 1 {
		t.Errorf("nobody listens: %v", err)
	}
	_, err = ma.Resolve(ctx, l.Addr, make([]byte, 181))
	want(t, err, unix.EINVAL)
}

func TestCMErrors(t *testing.T) {
	hosts := lab(t)
	ctx := timeout(t)
	a := hosts[0].open(t)
	a.createQP(verbs.QPInitAttr{Type: verbs.RC})
	ma, mb := hosts[0].openCM(t), hosts[1].openCM(t)
	var rejected *verbs.RejectedError
	_, err := ma.Dial(ctx, netip.AddrPortFrom(hosts[1].addr, 9), a.qp, verbs.CMParams{})
	if !errors.As(err, &rejected) || rejected.Reason != 8 {
		t.Errorf("nobody listens: %v", err)
	}
	l, err := mb.Listen(netip.AddrPortFrom(hosts[1].addr, 7471), 1)
	must(t, err)
	go func() {
		if r, err := l.Next(ctx); err != nil || r.Reject([]byte("full")) != nil {
			t.Errorf("%v", err)
		}
	}()
	_, err = ma.Dial(ctx, l.Addr, a.qp, verbs.CMParams{})
	if !errors.As(err, &rejected) || rejected.Reason != 28 || !bytes.HasPrefix(rejected.PrivateData, []byte("full")) {
		t.Errorf("rejected: %v", err)
	}
	_, err = mb.Listen(l.Addr, 1)
	want(t, err, unix.EADDRINUSE)
	_, err = ma.Listen(l.Addr, 1)
	want(t, err, unix.EADDRNOTAVAIL)
	_, err = ma.Dial(ctx, netip.MustParseAddrPort("192.0.2.1:1"), a.qp, verbs.CMParams{})
	want(t, err, unix.ENETUNREACH)
	_, err = ma.Dial(ctx, l.Addr, a.qp, verbs.CMParams{PrivateData: make([]byte, 57)})
	want(t, err, unix.EINVAL)
	_, err = verbs.OpenCM("rxe_none", verbs.WithRunDir(hosts[0].dir))
	want(t, err, unix.ENODEV)
	short, cancel := context.WithCancel(ctx)
	cancel()
	_, err = l.Next(short)
	want(t, err, context.Canceled)
	hosts[1].stop()
	_, err = l.Next(ctx)
	want(t, err, verbs.ErrDeviceFatal)
}

// Example_connect connects a queue pair to a listener by address and port.
func Example_connect() {
	var q *verbs.QP // of PD.CreateQP
	if err := connect(context.Background(), q); err != nil {
		log.Print(err)
	}
}

func connect(ctx context.Context, q *verbs.QP) error {
	cm, err := verbs.OpenCM("")
	if err != nil {
		return err
	}
	defer cm.Close()
	c, err := cm.Dial(ctx, netip.MustParseAddrPort("198.18.0.2:7471"), q, verbs.CMParams{PrivateData: []byte("hello")})
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Printf("connected to %v, which says %q\n", c.Remote, c.PrivateData)
	return c.Disconnect()
}
