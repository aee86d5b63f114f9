// Package flor sends messages and calls over RDMA: Flor (Li et al., "Flor: An Open High Performance RDMA Framework Over
// Heterogeneous RNICs", OSDI 2023) over NICs of roced. Software implements reliability, congestion control and chunking,
// so they do not depend on the NIC; docs/design/flor.md describes the design.
//
//	dev, err := flor.Open(flor.Config{Device: "rxe_a"})
//	c, err := dev.Dial(ctx, netip.MustParseAddrPort("198.18.0.2:7471"))
//	m, err := c.NewMessage(ctx, 100)    // memory that the NIC reads: nothing is copied
//	copy(m.Data, "...")
//	answer, err := c.Call(ctx, m)       // or Send, or Post
//	fmt.Printf("%s\n", answer.Data)     // where the NIC has put it
//	answer.Release()
//
// Messages of up to 32 KB use SEND. Longer ones use WRITE, after an exchange that allocates memory at the receiver. Each
// message arrives once, or the sender gets an error. Messages of a connection may overtake each other.
//
// # Backpressure
//
// A sender blocks, within its context, while Config.Queue messages are in flight, while the peer's inbox is full, and while
// there is no memory for its messages. Peers can occupy only limited memory of a Device: Config.Pool buffers for SENDs,
// copies of Config.Inbox messages per connection, and Config.Landing bytes, half of them for one connection.
//
// # Threads
//
// A goroutine of the Device polls the NIC, acknowledgements first. It sleeps on a completion channel after Config.Spin
// without completions. Another goroutine runs the verbs that wait for the daemon. All connections of a Device share the two.
// To use more cores, open the NIC several times.
//
// # Ends
//
// Conn.Shutdown closes a connection after all messages have been acknowledged, Conn.Close at once. The peer learns of the
// end through rdma_cm. Errors are of type *Error, which names the connection, and wrap an error of this package or of verbs.
// With RC (Config.Engine.Hardware) the peer's NIC acknowledges: an acknowledged message is lost if the peer's program ends
// before it takes the message.
package flor
