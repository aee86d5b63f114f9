package qp

import (
	"math"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/reorder"
)

// Scratch is memory that a queue pair needs only during a call. Queue pairs that are never called at the same time,
// such as those of one NIC, may share it.
type Scratch struct {
	Late     Late
	rtt      time.Duration        // measured by the last acknowledgement, if any
	feedback reorder.Feedback     // of the acknowledgement being processed
	own      [bth.MaxOwn]byte     // bytes of the transport's own in the packet being built or processed
	word     [atomicWriteLen]byte // value of an ATOMIC WRITE or result of an atomic, on its way to memory
}

// settings are the values of Config that a queue pair keeps.
type settings struct {
	Type       Type
	kind       bth.Profile
	SigAll     bool
	HasSRQ     bool
	Phantom    bool
	MaxSendSGE uint8
	MaxRecvSGE uint8
	DataHeader uint8
	QPN        bth.QPN
	MaxSendWR  uint32
	MaxInline  uint16
	// SingleWrites is that of Config, for RC with standard packets.
	SingleWrites     bool
	UnlimitedRetries bool
	MaxUnacked       uint32
	Tuning           Tuning
}

func settingsOf(c *Config) settings {
	return settings{
		Type: c.Type, kind: c.Profile.Kind, SigAll: c.SigAll, HasSRQ: c.HasSRQ, Phantom: c.Phantom, QPN: c.QPN,
		MaxSendWR: c.MaxSendWR, MaxSendSGE: uint8(min(c.MaxSendSGE, MaxSGE)), MaxRecvSGE: uint8(min(c.MaxRecvSGE, MaxSGE)),
		MaxInline: uint16(min(c.MaxInline, math.MaxUint16)), MaxUnacked: c.MaxUnacked, DataHeader: c.DataHeader, Tuning: c.Tuning,
		SingleWrites:     c.SingleWrites && c.Type == RC && c.Profile.Kind == bth.ProfileRC,
		UnlimitedRetries: c.UnlimitedRetries,
	}
}
