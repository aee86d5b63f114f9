// Package flor sends messages and calls over RDMA: Flor (Li et al., "Flor: An Open High Performance RDMA Framework Over
// Heterogeneous RNICs", OSDI 2023) above the NICs of roced. Reliability, congestion control and how messages are cut
// are software's, so they are the same whatever the NIC does; docs/design/flor.md says what is where.
//
//	dev, err := flor.Open(flor.Config{Device: "rxe_a"})
//	c, err := dev.Dial(ctx, netip.MustParseAddrPort("198.18.0.2:7471"))
//	m, err := c.NewMessage(ctx, 100)    // memory that the NIC reads: nothing is copied
//	copy(m.Data, "...")
//	answer, err := c.Call(ctx, m)       // or Send, or Post
//	fmt.Printf("%s\n", answer.Data)     // where the NIC has put it
//	answer.Release()
//
// A message of up to 32 KB goes by SEND, a longer one by WRITE after an exchange that finds memory for it. Each arrives
// once, or its sender is told why it may not have. Messages of a connection may overtake each other.
//
// # Back-pressure
//
// A sender waits, as long as its context permits, while as many messages are under way as Config.Queue says, while the peer's
// inbox is full, of which nobody takes messages by Recv, and while there is no memory for its messages. What peers can
// make a Device hold is bounded: Config.Pool buffers for SENDs, beside which as many messages as Config.Inbox
// are copied for each connection whose messages are not taken, and Config.Landing bytes, half of them for one connection.
//
// # Threads
//
// A Device has a goroutine that polls the NIC, acknowledgements first, and sleeps on a completion channel when there has been
// nothing for Config.Spin; another one runs the verbs that wait for the daemon. All connections of a Device share them. Who
// needs more opens the NIC more than once.
//
// # Ends
//
// Conn.Shutdown ends a connection when all that was sent has been acknowledged, Conn.Close does so now. The peer's
// end is told by rdma_cm. Errors are of type *Error, which names the connection, and wrap one of this package or of
// roced/verbs. By RC (Config.Engine.Hardware) it is the peer's NIC that acknowledges: a message may be lost with the
// peer's program after that.
package flor
