package bth

import (
	"fmt"
	"strconv"
)

const psnMask = 1<<24 - 1

// PSN is a 24-bit packet sequence number (IBTA vol.1 9.7.1). Its order is circular, so it is a struct: comparing two
// PSNs with < does not compile.
type PSN struct{ v uint32 }

// MakePSN returns the PSN of the low 24 bits of v.
func MakePSN(v uint32) PSN { return PSN{v & psnMask} }

// Uint32 returns the number, 0 to 2^24-1.
func (p PSN) Uint32() uint32 { return p.v }

// Add returns the PSN n packets after p; n may be negative.
func (p PSN) Add(n int) PSN { return PSN{(p.v + uint32(n)) & psnMask} }

// Next returns the PSN after p.
func (p PSN) Next() PSN { return p.Add(1) }

// Diff returns p-q as a signed distance in -2^23 .. 2^23-1.
func (p PSN) Diff(q PSN) int { return int(int32((p.v-q.v)<<8) >> 8) }

// Since returns p-q as an unsigned distance in 0 .. 2^24-1: the number of PSNs from q up to p, where p does not precede q.
func (p PSN) Since(q PSN) uint32 { return (p.v - q.v) & psnMask }

// Before reports whether p precedes q in circular order.
func (p PSN) Before(q PSN) bool { return p.Diff(q) < 0 }

// After reports whether p follows q in circular order.
func (p PSN) After(q PSN) bool { return p.Diff(q) > 0 }

// String returns the number in decimal, as Wireshark shows it.
func (p PSN) String() string { return strconv.FormatUint(uint64(p.v), 10) }

// QPN is a 24-bit queue pair number.
type QPN uint32

// Text returns the number in decimal and in hexadecimal: programs and tools use both.
func (q QPN) Text() string { return fmt.Sprintf("%d (%#x)", uint32(q), uint32(q)) }

// MaxQPN is the highest queue pair number; it stands for the multicast QP.
const MaxQPN QPN = 1<<24 - 1
