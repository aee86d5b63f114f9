package main

import (
	"fmt"
	"time"

	"roced.io/roced/verbs"
)

// address is the addressing data that an end sends to its peer.
type address struct {
	QPN  uint32
	PSN  uint32
	GID  verbs.GID
	Addr uint64 // of the first byte of its buffer
	RKey uint32
}

// settings are the parameters of a queue pair.
type settings struct {
	Type     verbs.QPType
	MTU      verbs.MTU
	IPv6     bool
	Timeout  uint8
	RetryCnt uint8
	RNRRetry uint8
}

// tolerantSettings are settings that survive a pause of the machine for a second or two, while others use the processors: eight
// transmissions, half a second apart.
func tolerantSettings(t verbs.QPType, mtu verbs.MTU, v6 bool) settings {
	return settings{Type: t, MTU: mtu, IPv6: v6, Timeout: 17, RetryCnt: 7, RNRRetry: 7}
}

const (
	qkey        = 0x11111111
	minRNRTimer = 12 // 0.64 ms
)

// work is a send work request. Off is in the end's own buffer, Remote in the peer's.
type work struct {
	ID            uint64
	Op            verbs.Opcode
	Off, Len      int
	Remote        int
	RKey          uint32 // zero: the key of the peer's buffer
	Imm           uint32
	Compare, Swap uint64
}

// end is one side of a case: a queue pair and a buffer, of our NIC or of rxe.
type end interface {
	// Open makes a queue pair in INIT; Connect takes it to RTS.
	Open(s settings) (address, error)
	Connect(peer address) error
	// Fill writes the pattern of a seed, starting at byte number from of the pattern. Check compares.
	Fill(off, n int, seed, from uint64) error
	Check(off, n int, seed, from uint64) error
	// Word and SetWord access 8 aligned bytes.
	Word(off int) (uint64, error)
	SetWord(off int, v uint64) error
	// Recv posts a receive of n bytes.
	Recv(id uint64, off, n int) error
	Send(w work) error
	// Poll returns n completions, or fewer when limit expires. Those of rxe have no operation.
	Poll(n int, limit time.Duration) ([]verbs.WC, error)
	// Stream repeats a request, depth in flight, until limit expires or a request fails.
	Stream(w work, depth int, limit time.Duration) (streamed, error)
	// Window opens a memory window of type 2 for the peer.
	Window(off, n int) (rkey uint32, err error)
	State() (verbs.QPState, error)
	// Fail puts the queue pair into the error state.
	Fail() error
	// Close destroys the queue pair.
	Close() error
}

// streamed is the result of a stream.
type streamed struct {
	Time   time.Duration
	Done   int          // requests that completed without error
	Status verbs.Status // of the failed request, if any
}

// Layout of an end's buffer: sources and destinations. Between the areas is room for guards.
const (
	maxMessage = 8 << 20
	guard      = 64
	sendArea   = 4096
	recvArea   = sendArea + maxMessage + 64<<10
	wordArea   = recvArea + maxMessage + 64<<10
	bufferSize = wordArea + 4096
	grh        = 40 // before the payload of a datagram
)

// mix is the finalizer of splitmix64: the i-th word of the pattern of a seed is
// mix(seed + i). rocedrill-agent computes the same.
func mix(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// pattern produces the bytes of a seed in order.
type pattern struct {
	seed, index, word uint64
}

func newPattern(seed, from uint64) pattern {
	p := pattern{seed: seed, index: from}
	if from%8 != 0 {
		p.word = mix(seed + from/8)
	}
	return p
}

func (p *pattern) next() byte {
	if p.index%8 == 0 {
		p.word = mix(p.seed + p.index/8)
	}
	b := byte(p.word >> (8 * (p.index % 8)))
	p.index++
	return b
}

// fill and check implement Fill and Check on memory.
func fill(b []byte, seed, from uint64) {
	p := newPattern(seed, from)
	for i := range b {
		b[i] = p.next()
	}
}

func check(b []byte, seed, from uint64) error {
	p := newPattern(seed, from)
	for i := range b {
		if want := p.next(); b[i] != want {
			return fmt.Errorf("byte %d of %d is %#x, want %#x", i, len(b), b[i], want)
		}
	}
	return nil
}
