package engine

import "roced.io/roced/plugin/mono"

// QPN is the number of a queue pair.
type QPN uint32

// Buffer is registered memory.
type Buffer struct {
	Data []byte
	Addr uint64 // as the NIC knows it
	Key  uint32 // local key
}

// Op is the operation of a work request.
type Op uint8

// Operations: the two that all NICs do well, over RC and UC (Flor 3.2).
const (
	OpSend Op = iota
	OpWriteImm
)

// WQE is a work request. Its completion is always asked for.
type WQE struct {
	ID     uint64 // global sequence number; Completion.ID
	Op     Op
	Header [HeaderLen]byte // OpSend: precedes Data
	Data   Buffer          // payload; may be empty

	Imm        Imm // OpWriteImm
	RemoteAddr uint64
	RemoteKey  uint32
}

// NIC is what an engine drives. None of its methods waits, and none calls the engine. Its data queue
// pairs share a receive queue, of the engine's pool, and have completions for all that they send. It
// has a datagram queue pair for acknowledgements, of the highest priority, with a completion queue of its
// own (Flor 4.1).
type NIC interface {
	// Room reports whether a work request could be posted to qp. If not, a completion of qp will
	// follow.
	Room(qp QPN) bool
	// Post posts w to qp, where there is room. w is only lent.
	Post(qp QPN, w *WQE)
	// PostRecv posts the i-th buffer of the engine's pool to the shared receive queue.
	PostRecv(i int)
	// PostAck sends a datagram to the engine at the other end of c. b is only lent. It may be lost.
	PostAck(c *Conn, b []byte)
	// Expose lets peers write to b, until Revoke, and returns where they find it. Keys are not used
	// again soon: a WRITE that comes after Revoke, however late, changes nothing.
	Expose(b Buffer) (addr uint64, key uint32)
	Revoke(key uint32)
	// Disconnect takes a queue pair out of use: nothing more is received by it, and all that has been
	// posted to it completes. With again it is connected anew, in the background, and Connected is called
	// then. Otherwise it will not be used again.
	Disconnect(qp QPN, again bool)
	// Time is what the NIC's clock shows, the one that Completion.At is of. To ask takes long.
	Time() mono.Time
}

// CompletionKind is the kind of a completion.
type CompletionKind uint8

// Kinds of completions.
const (
	Sent     CompletionKind = iota // of a work request
	Failed                         // of one that ended in an error or was flushed
	Received                       // a SEND lies in a buffer of the pool
	Written                        // a WRITE_WITH_IMM has taken a buffer of the pool, and left it as it was
)

// Completion is one of a data queue pair.
type Completion struct {
	QP    QPN
	Kind  CompletionKind
	ID    uint64    // Sent, Failed: the WQE's
	Buf   int       // Received, Written: of the pool
	Bytes uint32    // Received, Written
	Imm   Imm       // Written
	At    mono.Time // NIC's clock: T1 of what was sent (Flor 4.1), T2 of what was received; zero if not known
}

// Message is one that has arrived.
type Message struct {
	Data []byte // valid until Release
	Tag  uint32 // of Conn.Send
	// Landing is set if the message lies in the buffer that User.Landing gave for it, which is Buffer.
	Landing bool
	Buffer  Buffer

	buf int
}

// User is whose connections are.
type User interface {
	// Delivered tells of a message. Unless it lies in a landing buffer, it is to be given back by
	// Engine.Release: what the user keeps, peers cannot send into.
	Delivered(now mono.Time, c *Conn, m Message)
	// Told tells what came of a message that Send has taken, exactly once. The engine and the NIC do
	// not need its memory any more.
	Told(now mono.Time, c *Conn, id uint64, err error)
	// Landing returns memory for a message of n bytes. If there is none now, Conn.Resume asks again.
	// It must not call the engine.
	Landing(c *Conn, n int) (b Buffer, ok bool)
	// Unused takes back the landing buffer of a message that will not come, because the connection
	// has ended.
	Unused(c *Conn, b Buffer)
	// Closed tells that a connection has ended, after all that it had to tell.
	Closed(now mono.Time, c *Conn, err error)
}

// Counters are the counters of an engine.
type Counters struct {
	Messages, Bytes          uint64 // delivered
	WQEs, Acks, AcksReceived uint64
	Lost                     uint64 // WQEs found lost, by acknowledgements of later ones, a timeout or a queue pair's failure
	Timeouts                 uint64
	Switches                 uint64 // to a backup queue pair
	Duplicates               uint64 // SENDs that had been taken before, and WRITEs of what was there
	Late                     uint64 // chunks of messages that had been delivered
	NoRoom                   uint64 // chunks that were dropped because the pool is in use
	NoCompletion             uint64 // completions that match no WQE

	// Violations of the protocol by peers, which were refused:
	BadHeaders, BadImms, BadAcks uint64
	Stalled                      uint64 // connections whose peer held memory and sent nothing
}
