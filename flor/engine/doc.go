// Package engine is the software control plane of Flor (Li et al., "Flor: An Open High Performance RDMA
// Framework Over Heterogeneous RNICs", OSDI 2023), above the queue pairs of any NIC. docs/design/flor.md says
// which mechanism of the paper is where.
//
// Like the core it is sans-I/O: inputs carry the time, and nothing here reads a clock, starts a
// goroutine or takes a lock. An Engine drives one NIC, whose completions and datagrams it is given:
//
//	e.OnAck(now, from, at, datagram)    // those of the acknowledgements' completion queue first (4.1)
//	e.Complete(now, completion)         // then those of data
//	e.OnTimeout(now)                    // when e.NextTimeout() has come
//
// It posts work requests through the interface NIC and tells its User what came of messages, from
// within these calls; the user may send, release and close from there. On the way of a message nothing is
// allocated once the connection has seen as many at a time.
//
// A message of up to Config.MaxSend bytes goes by SEND, a longer one by WRITE_WITH_IMM, into memory that
// the receiver names after it has been asked (3.2). Messages are delivered when they are complete, in any
// order. Of each the sender is told once: without an error when all of it has been acknowledged,
// otherwise with the reason why the connection has ended, and then it may have been delivered or not.
package engine
