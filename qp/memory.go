package qp

// memoryState is the progress of work that may have to wait for memory (Host.Later). The requester has one for
// responses, the responder one for requests, and the queue pair one for the packets that it sends.
type memoryState uint8

// States of memory.
const (
	memorySynced   memoryState = iota // all data written is visible; no work waits
	memoryUnsynced                    // data was written since the last Sync
	memoryPlaced                      // the retried packet is already placed; only Sync is outstanding
	memoryWritten                     // the value of an ATOMIC WRITE is written; only Sync is outstanding
	memoryBlocked                     // PollTransmit returns false until Resume
)

// wrote records that data was written.
func (m *memoryState) wrote() {
	if *m == memorySynced {
		*m = memoryUnsynced
	}
}

// retried reports whether the packet being received was placed before.
func (m *memoryState) retried() bool {
	if *m != memoryPlaced {
		return false
	}
	*m = memoryUnsynced
	return true
}

// sync makes all written data visible. If it fails, later reports whether it may succeed after Resume.
func (m *memoryState) sync(h Host) (ok, later bool) {
	switch {
	case *m == memorySynced:
		return true, false
	case !h.Sync():
		if later = h.Later(); later && *m == memoryUnsynced {
			*m = memoryPlaced
		}
		return false, later
	case *m != memoryWritten:
		*m = memorySynced
	}
	return true, false
}

// block reports whether the call of Host that has just failed may succeed later. If so, PollTransmit returns false
// until Resume.
func (q *QP) block() bool {
	if !q.host.Later() {
		return false
	}
	q.memory = memoryBlocked
	return true
}

// Blocked reports whether the queue pair waits for Resume.
func (q *QP) Blocked() bool { return q.memory == memoryBlocked }
