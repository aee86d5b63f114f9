// Package verbs is the Go client of roced: it opens a software RoCEv2 NIC and
// uses it as programs in C use libibverbs, without a system call and without an
// allocation on the way of data.
//
//	ctx, err := verbs.Open("")              // the first device of this host
//	pd, err := ctx.AllocPD()
//	mr, err := pd.AllocMR(1<<20, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
//	ch, err := ctx.CreateCompChannel()
//	cq, err := ctx.CreateCQ(256, ch)
//	qp, err := pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: cq, RecvCQ: cq,
//		MaxSendWR: 128, MaxRecvWR: 128, MaxSendSGE: 1, MaxRecvSGE: 1})
//	conn, err := net.Dial("tcp", peer)      // the peer accepts
//	_, err = verbs.NewBootstrap(conn).Connect(ctx, qp, verbs.DefaultConnParams(), nil)
//	err = qp.PostSend(&verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled,
//		SGEs: []verbs.SGE{mr.SGE(0, 100)}})
//	n, err := cq.Wait(context.Background(), wcs)
//
// # Memory
//
// The daemon reads and writes the memory of its clients through shared mappings.
// Memory for that comes from PD.AllocMR, or from Context.AllocBuffer if several
// regions are to share a buffer. It is outside the reach of the garbage collector:
// it stays until it is given back, and must not be touched afterwards.
//
// # Waiting
//
// CQ.Poll never blocks. CQ.Wait blocks on a completion channel and costs no
// processor time; CQ.PollWait polls and gives the core away in between, for the
// least latency. A loop around CQ.Poll alone is a bad idea where cores are few:
// the daemon may need the one that it keeps busy.
//
// # Concurrency and errors
//
// All objects may be used by several goroutines at a time. Errors of verbs are of
// type *Error and wrap a unix.Errno or one of the errors of this package. If the
// daemon goes, everything that waits returns ErrDeviceFatal, and so does every
// verb from then on.
package verbs
