package verbs_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"roced.io/roced/verbs"
)

// streams returns two ends of a TCP connection.
func streams(t *testing.T) (ends [2]net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	ends[0], err = net.Dial("tcp", l.Addr().String())
	must(t, err)
	ends[1], err = l.Accept()
	must(t, err)
	t.Cleanup(func() { ends[0].Close(); ends[1].Close() })
	return ends
}

// TestBootstrap connects two queue pairs and then sends over the connection. One queue pair has a receive for the first
// message.
func TestBootstrap(t *testing.T) {
	hosts, s := lab(t), streams(t)
	a, b := hosts[0].open(t), hosts[1].open(t)
	a.createQP(verbs.QPInitAttr{Type: verbs.RC})
	b.createQP(verbs.QPInitAttr{Type: verbs.RC})
	errs := make(chan error, 1)
	peer := verbs.NewBootstrap(s[1])
	go func() {
		_, err := peer.Connect(timeout(t), b.qp, verbs.DefaultConnParams(), func() error {
			return b.qp.PostRecv(&verbs.RecvWR{WRID: 3, SGEs: []verbs.SGE{b.mr.SGE(0, 100)}})
		})
		errs <- errors.Join(err, peer.Send("after"))
	}()
	boot := verbs.NewBootstrap(s[0])
	remote, err := boot.Connect(timeout(t), a.qp, verbs.DefaultConnParams(), nil)
	must(t, err)
	must(t, <-errs)
	if remote.QPN != b.qp.Num() {
		t.Errorf("connected to %+v", remote)
	}
	must(t, a.qp.PostSend(&verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("first")}))
	if w := b.completion(); w.WRID != 3 || w.ByteLen != 5 {
		t.Errorf("received %+v", w)
	}
	var text string
	if must(t, boot.Receive(&text)); text != "after" {
		t.Errorf("the peer sent %q", text)
	}
}

// TestBootstrapFails checks both sides after an error of one, and a peer that is
// silent.
func TestBootstrapFails(t *testing.T) {
	hosts, s := lab(t), streams(t)
	a, b := hosts[0].open(t), hosts[1].open(t)
	a.createQP(verbs.QPInitAttr{Type: verbs.RC})
	b.createQP(verbs.QPInitAttr{Type: verbs.RC})
	errs := make(chan error, 1)
	refused := errors.New("refused")
	go func() {
		_, err := verbs.NewBootstrap(s[1]).Connect(timeout(t), b.qp, verbs.DefaultConnParams(), func() error { return refused })
		errs <- err
	}()
	_, err := verbs.NewBootstrap(s[0]).Connect(timeout(t), a.qp, verbs.DefaultConnParams(), nil)
	if err == nil || !strings.Contains(err.Error(), "the peer reports: refused") {
		t.Errorf("the peer fails: %v", err)
	}
	want(t, <-errs, refused)
	c := hosts[0].open(t)
	c.createQP(verbs.QPInitAttr{Type: verbs.RC})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = verbs.NewBootstrap(streams(t)[0]).Connect(ctx, c.qp, verbs.DefaultConnParams(), nil)
	want(t, err, context.DeadlineExceeded)
}
