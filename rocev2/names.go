package rocev2

import (
	"roced.io/roced/rocev2/memory"
	"roced.io/roced/rocev2/object"
	"roced.io/roced/rocev2/stack"
)

// Types of package stack that clients of a NIC use.
type (
	GIDEntry      = stack.GIDEntry
	VLAN          = stack.VLAN
	AddressVector = stack.AddressVector
	Query         = stack.Query
	Interface     = stack.Interface
	Translation   = stack.Translation
	RouteBits     = stack.RouteBits
	Holder        = stack.Holder
)

// MaxVLAN, MaxGroups, Unlimited and the errors are those of package stack.
const (
	MaxVLAN   = stack.MaxVLAN
	MaxGroups = stack.MaxGroups
	Unlimited = stack.Unlimited
)

// Errors of package stack.
var (
	ErrNoRoute     = stack.ErrNoRoute
	ErrNeighbours  = stack.ErrNeighbours
	ErrUnreachable = stack.ErrUnreachable
	ErrNoGroups    = stack.ErrNoGroups
)

// Types of package memory that clients of a NIC use.
type (
	PD           = memory.PD
	PDInfo       = memory.PDInfo
	MR           = memory.MR
	MRAttr       = memory.MRAttr
	MRInfo       = memory.MRInfo
	ReregFlags   = memory.ReregFlags
	MW           = memory.MW
	MWInfo       = memory.MWInfo
	MWType       = memory.MWType
	Memory       = memory.Memory
	Distant      = memory.Distant
	Deferred     = memory.Deferred
	MemoryAccess = memory.Access
	Bytes        = memory.Bytes
)

// Constants of package memory.
const (
	MWType1          = memory.MWType1
	MWType2          = memory.MWType2
	ReregTranslation = memory.ReregTranslation
	ReregPD          = memory.ReregPD
	ReregAccess      = memory.ReregAccess
)

// NewBytes returns b as a Memory (memory.NewBytes).
func NewBytes(b []byte) *Bytes { return memory.NewBytes(b) }

// Errors of the control verbs.
var (
	ErrInvalid = object.ErrInvalid
	ErrNoMem   = object.ErrNoMem
	ErrBusy    = object.ErrBusy
	ErrLimit   = object.ErrLimit
	ErrAccess  = object.ErrAccess
)
