// Package mrc is the part of MRC that needs nothing of a queue pair: attributes, the code of SACKs and NACKs, when they are
// due, and endpoint requests. Package qp has the rest, its senderPolicy and admission, in files named mrc_*.go.
//
// No promise: this package may change between releases.
package mrc

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// Trim says whether a switch has removed the payload of a WRITE.
type Trim uint8

// Values of Trim.
const (
	Whole Trim = iota
	Trimmed
	TrimmedLastHop // by the switch of the last link
)

// Stamp returns the timestamp of a packet that is built at now.
func Stamp(now mono.Time) bth.TSETH {
	return bth.TSETH{Timestamp: uint16(now / bth.MRCTimestampUnit), Format: bth.MRCFormatTimestamp}
}
