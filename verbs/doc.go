// Package verbs is the Go client of roced: it opens a software RoCEv2 NIC and offers
// the operations of libibverbs. The data path makes no system call and allocates no
// memory.
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
// The daemon accesses the memory of its clients through shared mappings. PD.AllocMR
// allocates such memory, and Context.AllocBuffer a buffer for several regions. It is
// outside of the Go heap: it stays mapped until it is freed, and must not be accessed
// afterwards.
//
// # Waiting
//
// CQ.Poll never blocks. CQ.Wait blocks on a completion channel and uses no processor
// time. CQ.PollWait polls for the least latency and yields the core in between. Do not
// poll in a loop around CQ.Poll alone: on a machine with few cores the daemon may need
// the core.
//
// # Concurrency and errors
//
// All objects are safe for concurrent use. Errors of verbs are of type *Error and wrap
// a unix.Errno or one of the errors of this package. If the daemon ends, all calls in
// progress and all later calls return ErrDeviceFatal.
package verbs
