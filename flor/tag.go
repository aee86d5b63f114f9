package flor

// A message's tag says what it is for: four bits of kind, and a value.
type tagKind uint32

const (
	tagMessage    tagKind = iota // of Conn.Send
	tagRequest                   // of Conn.Call: the call's number
	tagResponse                  // to it: the same number
	tagUnanswered                // there will be none
	tagCredit                    // how many messages and requests have been taken out of the inbox
	tagKinds
)

const (
	tagShift = 28
	tagMask  = 1<<tagShift - 1
)

func makeTag(k tagKind, v uint32) uint32 { return uint32(k)<<tagShift | v&tagMask }

func splitTag(t uint32) (tagKind, uint32) { return tagKind(t >> tagShift), t & tagMask }
