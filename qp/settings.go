package qp

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/reorder"
)

// Scratch is memory that a queue pair needs while it is called and not between calls. Those that are
// never called at the same time, as those of one NIC, may share it: it makes each of them smaller.
type Scratch struct {
	rtt  time.Duration        // that the last acknowledgement gave, if any
	said reorder.Feedback     // by the acknowledgement that is being digested
	word [atomicWriteLen]byte // what an ATOMIC WRITE writes, or an atomic has read, on its way to memory
}

// settings are what a queue pair keeps of its Config; the rest is where it is used.
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
	MaxInline  uint32
	MaxUnacked uint32
	Tuning     Tuning
}

func settingsOf(c *Config) settings {
	return settings{
		Type: c.Type, kind: c.Profile.Kind, SigAll: c.SigAll, HasSRQ: c.HasSRQ, Phantom: c.Phantom, QPN: c.QPN,
		MaxSendWR: c.MaxSendWR, MaxSendSGE: uint8(min(c.MaxSendSGE, MaxSGE)), MaxRecvSGE: uint8(min(c.MaxRecvSGE, MaxSGE)),
		MaxInline: c.MaxInline, MaxUnacked: c.MaxUnacked, DataHeader: c.DataHeader, Tuning: c.Tuning,
	}
}
