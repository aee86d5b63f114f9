// Package resend shows a unit test of RDMA code: two NICs in the process of the test, on a link that loses a packet.
package resend

import (
	"context"
	"testing"
	"time"

	"roced.io/roced/entry/local"
	"roced.io/roced/verbs"
)

// lossy makes two NICs that are connected to each other. rxe_a loses the second packet that it sends, once.
const lossy = `
nics:
  - {name: rxe_a, addresses: [198.18.0.1/24], port: {type: unix, local: a, remote: b}, faults: [tx drop psn=+1 n=1]}
  - {name: rxe_b, addresses: [198.18.0.2/24], port: {type: unix, local: b, remote: a}}
`

// peer is one side of a connection.
type peer struct {
	dev *verbs.Context
	cq  *verbs.CQ
	qp  *verbs.QP
	mr  *verbs.MR
}

func open(t *testing.T, nics *local.NICs, name string) *peer {
	t.Helper()
	dev, err := nics.Open(name)
	must(t, err)
	t.Cleanup(func() { dev.Close() })
	pd, err := dev.AllocPD()
	must(t, err)
	mr, err := pd.AllocMR(1<<16, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	must(t, err)
	cq, err := dev.CreateCQ(16, nil)
	must(t, err)
	qp, err := pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, MaxSendWR: 8, MaxSendSGE: 1})
	must(t, err)
	return &peer{dev, cq, qp, mr}
}

// TestLostPacket: a WRITE of 16 packets completes although the link loses one, and the NIC has retransmitted it.
func TestLostPacket(t *testing.T) {
	nics, err := local.Start(lossy, nil)
	must(t, err)
	defer nics.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(t, nics.Ready(ctx))

	a, b := open(t, nics, "rxe_a"), open(t, nics, "rxe_b")
	p := verbs.DefaultConnParams()
	toA, err := a.qp.Info(p)
	must(t, err)
	toB, err := b.qp.Info(p)
	must(t, err)
	must(t, a.qp.Connect(toB, p))
	must(t, b.qp.Connect(toA, p))

	copy(a.mr.Bytes()[1<<16-5:], "hello")
	must(t, a.qp.PostSend(&verbs.SendWR{Opcode: verbs.OpWrite, Flags: verbs.SendSignaled, SGEs: []verbs.SGE{a.mr.SGE(0, 1<<16)},
		RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}))
	var wcs [1]verbs.WC
	_, err = a.cq.PollWait(ctx, wcs[:])
	must(t, err)
	must(t, wcs[0].Err())
	if got := string(b.mr.Bytes()[1<<16-5:]); got != "hello" {
		t.Errorf("the peer has %q", got)
	}
	if n := counter(t, a.dev, "retransmitted_packets"); n == 0 {
		t.Error("no packet was retransmitted")
	}
}

// counter returns a counter of a NIC.
func counter(t *testing.T, dev *verbs.Context, name string) uint64 {
	t.Helper()
	stats, err := dev.Stats()
	must(t, err)
	for _, s := range stats {
		if s.Name == name {
			return s.Value
		}
	}
	t.Fatalf("no counter %s", name)
	return 0
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
