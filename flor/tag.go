package flor

// tagKind is the kind of a message. A tag consists of a kind of four bits and a value.
type tagKind uint32

const (
	tagMessage    tagKind = iota // a message of Conn.Send
	tagRequest                   // a request of Conn.Call; value: the call's number
	tagResponse                  // a reply; value: the call's number
	tagUnanswered                // no reply will follow; value: the call's number
	tagCredit                    // credit; value: number of messages and requests taken from the inbox
	tagKinds
)

const (
	tagShift = 28
	tagMask  = 1<<tagShift - 1
)

func makeTag(k tagKind, v uint32) uint32 { return uint32(k)<<tagShift | v&tagMask }

func splitTag(t uint32) (tagKind, uint32) { return tagKind(t >> tagShift), t & tagMask }
