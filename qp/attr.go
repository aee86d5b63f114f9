package qp

// AttrMask names the attributes of a Modify call, as ibv_qp_attr_mask.
type AttrMask uint32

// Attribute bits.
const (
	AttrState           AttrMask = 1 << 0
	AttrCurState        AttrMask = 1 << 1
	AttrEnSQDNotify     AttrMask = 1 << 2
	AttrAccessFlags     AttrMask = 1 << 3
	AttrPKeyIndex       AttrMask = 1 << 4
	AttrPort            AttrMask = 1 << 5
	AttrQKey            AttrMask = 1 << 6
	AttrAV              AttrMask = 1 << 7
	AttrPathMTU         AttrMask = 1 << 8
	AttrTimeout         AttrMask = 1 << 9
	AttrRetryCnt        AttrMask = 1 << 10
	AttrRNRRetry        AttrMask = 1 << 11
	AttrRQPSN           AttrMask = 1 << 12
	AttrMaxRdAtomic     AttrMask = 1 << 13
	AttrAltPath         AttrMask = 1 << 14
	AttrMinRNRTimer     AttrMask = 1 << 15
	AttrSQPSN           AttrMask = 1 << 16
	AttrMaxDestRdAtomic AttrMask = 1 << 17
	AttrPathMigState    AttrMask = 1 << 18
	AttrCap             AttrMask = 1 << 19
	AttrDestQPN         AttrMask = 1 << 20
	AttrRateLimit       AttrMask = 1 << 25
)

// Attr are the modifiable attributes of a queue pair (ibv_qp_attr). The NIC resolves the address vector; the core does
// not see it.
type Attr struct {
	State           State
	CurState        State
	EnSQDNotify     bool
	Port            uint8
	AccessFlags     Access
	PKeyIndex       uint16
	PathMTU         MTU
	QKey            uint32
	Timeout         uint8 // 4.096 us * 2^Timeout, 0 = infinite, at most 31
	RetryCnt        uint8 // 0 to 7
	RNRRetry        uint8 // 0 to 7, 7 = no limit
	MaxRdAtomic     uint8
	RQPSN           uint32
	SQPSN           uint32
	MaxDestRdAtomic uint8
	MinRNRTimer     uint8 // RNR timer code, 0 to 31
	DestQPN         uint32
	RateLimit       uint32 // kb/s, 0 = unlimited
}
