package engine

import "roced.io/roced/plugin/mono"

// QPN is the number of a queue pair.
type QPN uint32

// Buffer is registered memory.
type Buffer struct {
	Data []byte
	Addr uint64 // address for the NIC
	Key  uint32 // local key
}

// Op is the operation of a work request.
type Op uint8

// Operations that all NICs perform well, over RC and UC (Flor 3.2).
const (
	OpSend Op = iota
	OpWriteImm
)

// WQE is a work request. It is always signaled.
type WQE struct {
	ID     uint64 // global sequence number; Completion.ID
	Op     Op
	Header [HeaderLen]byte // OpSend: precedes Data
	Data   Buffer          // payload; may be empty

	Imm        Imm // OpWriteImm
	RemoteAddr uint64
	RemoteKey  uint32
}

// NIC is the interface of an engine to its NIC. Its methods do not block and do not call the engine. Its data queue
// pairs share a receive queue, which uses the engine's pool. All their sends are signaled. A datagram queue pair of the
// highest priority carries acknowledgements; it has its own completion queue (Flor 4.1).
type NIC interface {
	// Room reports whether qp has room for a work request. If not, a completion of qp will follow.
	Room(qp QPN) bool
	// Post posts w to qp, which must have room. It must not keep w.
	Post(qp QPN, w *WQE)
	// PostRecv posts the i-th buffer of the engine's pool to the shared receive queue.
	PostRecv(i int)
	// PostAck sends a datagram to the engine at the other end of c. It must not keep b. The datagram may be lost.
	PostAck(c *Conn, b []byte)
	// Expose lets peers write to b until Revoke, and returns the address and key for them. The NIC does not soon reuse
	// keys: a WRITE that arrives after Revoke, however late, changes nothing.
	Expose(b Buffer) (addr uint64, key uint32)
	Revoke(key uint32)
	// Disconnect takes a queue pair out of use: it receives nothing any more, and all its posted work requests
	// complete. If again is set, the NIC reconnects it in the background and then calls Connected. Otherwise it is not
	// used again.
	Disconnect(qp QPN, again bool)
	// Time returns the time of the NIC's clock, which Completion.At uses. Reading it is slow.
	Time() mono.Time
}

// CompletionKind is the kind of a completion.
type CompletionKind uint8

// Kinds of completions.
const (
	Sent     CompletionKind = iota // a work request has completed
	Failed                         // a work request ended in an error or was flushed
	Received                       // a SEND is in a buffer of the pool
	Written                        // a WRITE_WITH_IMM has consumed a buffer of the pool without changing it
)

// Completion is a completion of a data queue pair.
type Completion struct {
	QP    QPN
	Kind  CompletionKind
	ID    uint64    // Sent, Failed: id of the WQE
	Buf   int       // Received, Written: index in the pool
	Bytes uint32    // Received, Written
	Imm   Imm       // Written
	At    mono.Time // time of the NIC's clock: T1 of a sent WQE (Flor 4.1), T2 of a received one; zero if unknown
}

// Message is a received message.
type Message struct {
	Data []byte // valid until Release
	Tag  uint32 // tag of Conn.Send
	// Landing is set if the message lies in Buffer, which User.Landing provided.
	Landing bool
	Buffer  Buffer

	buf int
}

// User is the owner of the connections.
type User interface {
	// Delivered delivers a message. Unless it lies in a landing buffer, the user must free it with Engine.Release.
	// Until then peers cannot use its buffer.
	Delivered(now mono.Time, c *Conn, m Message)
	// Told reports the result of a message accepted by Send, exactly once. The engine and the NIC do not use its memory
	// any more.
	Told(now mono.Time, c *Conn, id uint64, err error)
	// Landing returns memory for a message of n bytes. If none is free now, Conn.Resume asks again. It must not call
	// the engine.
	Landing(c *Conn, n int) (b Buffer, ok bool)
	// Unused returns the landing buffer of a message that cannot complete because the connection has ended.
	Unused(c *Conn, b Buffer)
	// Closed reports the end of a connection, after all its other notifications.
	Closed(now mono.Time, c *Conn, err error)
}

// Counters are the counters of an engine.
type Counters struct {
	Messages, Bytes          uint64 // delivered messages
	WQEs, Acks, AcksReceived uint64
	Lost                     uint64 // WQEs declared lost, because of acknowledgements of later ones, a timeout or a failed queue pair
	Timeouts                 uint64
	Switches                 uint64 // switches to a backup queue pair
	Duplicates               uint64 // repeated SENDs, and WRITEs of data that had arrived before
	Late                     uint64 // chunks of delivered messages
	NoRoom                   uint64 // chunks dropped because the pool was in use
	NoCompletion             uint64 // completions without a matching WQE

	// Protocol violations by peers, all refused:
	BadHeaders, BadImms, BadAcks uint64
	Stalled                      uint64 // connections whose peer held memory and sent almost nothing
}
