package verbs_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"roced.io/roced/verbs"
)

// Example sends a message to a peer. A Bootstrap over a TCP connection, which the
// peer accepts, connects the queue pairs.
func Example() {
	if err := greet("192.0.2.1:18515"); err != nil {
		log.Print(err)
	}
}

func greet(peer string) error {
	ctx, err := verbs.Open("") // the first device of this host's daemon
	if err != nil {
		return err
	}
	defer ctx.Close() // also destroys the objects below
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	mr, err := pd.AllocMR(4096, verbs.AccessLocalWrite)
	if err != nil {
		return err
	}
	ch, err := ctx.CreateCompChannel()
	if err != nil {
		return err
	}
	cq, err := ctx.CreateCQ(16, ch)
	if err != nil {
		return err
	}
	qp, err := pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: cq, RecvCQ: cq,
		MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1})
	if err != nil {
		return err
	}
	conn, err := net.Dial("tcp", peer)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := verbs.NewBootstrap(conn).Connect(context.Background(), qp, verbs.DefaultConnParams(), nil); err != nil {
		return err
	}
	n := copy(mr.Bytes(), "hello")
	if err := qp.PostSend(&verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, Flags: verbs.SendSignaled,
		SGEs: []verbs.SGE{mr.SGE(0, n)}}); err != nil {
		return err
	}
	var wcs [1]verbs.WC
	if _, err := cq.Wait(context.Background(), wcs[:]); err != nil {
		return err
	}
	fmt.Println("sent:", wcs[0].Status)
	return wcs[0].Err()
}
