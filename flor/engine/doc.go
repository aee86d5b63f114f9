// Package engine is the software control plane of Flor (Li et al., "Flor: An Open High Performance RDMA Framework Over
// Heterogeneous RNICs", OSDI 2023), above the queue pairs of any NIC. docs/design/flor.md maps the paper's mechanisms
// to the code.
//
// The engine is sans-I/O, like the core: inputs carry the time, and the engine reads no clock, starts no goroutine and
// takes no lock. An Engine drives one NIC. The caller passes it the NIC's completions and datagrams:
//
//	e.OnAck(now, from, at, datagram)    // first those of the acknowledgements' completion queue (4.1)
//	e.Complete(now, completion)         // then those of data
//	e.OnTimeout(now)                    // when e.NextTimeout() is due
//
// The engine posts work requests through the interface NIC. It reports the results of messages to its User within these
// calls; the user may call Send, Release and Close from there. Sending a message allocates nothing once the connection
// has had as many in flight.
//
// A message of up to Config.MaxSend bytes uses SEND. A longer one uses WRITE_WITH_IMM, into memory that the receiver
// grants on request (3.2). The receiver delivers messages when they are complete, in any order. The sender gets one
// result per message. Without an error, the peer has acknowledged all of it. Otherwise the error is the cause of the
// connection's end, and the message may have been delivered or not.
package engine
