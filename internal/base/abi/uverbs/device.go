package uverbs

// GetContext is ib_uverbs_get_context.
type GetContext struct {
	Response uint64
}

// GetContextResp is ib_uverbs_get_context_resp.
type GetContextResp struct {
	AsyncFD        uint32
	NumCompVectors uint32
}

// QueryDevice is ib_uverbs_query_device.
type QueryDevice struct {
	Response uint64
}

// QueryDeviceResp is ib_uverbs_query_device_resp. The GUIDs are big-endian.
type QueryDeviceResp struct {
	FwVer                 uint64
	NodeGUID              [8]byte
	SysImageGUID          [8]byte
	MaxMRSize             uint64
	PageSizeCap           uint64
	VendorID              uint32
	_                     [2]uint32
	MaxQP                 uint32
	MaxQPWR               uint32
	DeviceCapFlags        uint32
	MaxSGE                uint32
	MaxSGERd              uint32
	MaxCQ                 uint32
	MaxCQE                uint32
	MaxMR                 uint32
	MaxPD                 uint32
	MaxQPRdAtom           uint32
	MaxEERdAtom           uint32
	MaxResRdAtom          uint32
	MaxQPInitRdAtom       uint32
	MaxEEInitRdAtom       uint32
	AtomicCap             uint32
	_                     [2]uint32
	MaxMW                 uint32
	_                     [2]uint32
	MaxMcastGrp           uint32
	MaxMcastQPAttach      uint32
	MaxTotalMcastQPAttach uint32
	MaxAH                 uint32
	_                     [2]uint32
	MaxSRQ                uint32
	MaxSRQWR              uint32
	MaxSRQSGE             uint32
	MaxPKeys              uint16
	LocalCAAckDelay       uint8
	PhysPortCnt           uint8
	_                     [4]uint8
}

// ExQueryDevice is ib_uverbs_ex_query_device.
type ExQueryDevice struct {
	CompMask uint32
	_        uint32
}

// ExQueryDeviceResp is ib_uverbs_ex_query_device_resp.
type ExQueryDeviceResp struct {
	Base                  QueryDeviceResp
	CompMask              uint32
	ResponseLength        uint32
	_                     [24]byte
	TimestampMask         uint64
	HCACoreClock          uint64 // kHz
	DeviceCapFlagsEx      uint64
	_                     [48]byte
	MaxCQModerationCount  uint16 // of event moderation
	MaxCQModerationPeriod uint16 // microseconds
	_                     [20]byte
}

// Device capabilities (enum ib_uverbs_device_cap_flags).
const (
	CapBadPKeyCounter  = 1 << 1
	CapBadQKeyCounter  = 1 << 2
	CapCurrQPStateMod  = 1 << 7
	CapPortActiveEvent = 1 << 10
	CapSysImageGUID    = 1 << 11
	CapRCRNRNakGen     = 1 << 12
	CapSRQResize       = 1 << 13
	CapMemWindow       = 1 << 17
	CapMemMgtExt       = 1 << 21
	CapMemWindowType2B = 1 << 24
)

// Further bits of DeviceCapFlagsEx.
const (
	CapFlushGlobal = 1 << 38
	CapAtomicWrite = 1 << 40
)

// QueryPort is ib_uverbs_query_port.
type QueryPort struct {
	Response uint64
	PortNum  uint8
	_        [7]uint8
}

// QueryPortResp is ib_uverbs_query_port_resp.
type QueryPortResp struct {
	PortCapFlags uint32
	MaxMsgSz     uint32
	BadPKeyCntr  uint32
	QKeyViolCntr uint32
	GIDTblLen    uint32
	PKeyTblLen   uint16
	LID          uint16
	SMLID        uint16
	State        uint8
	MaxMTU       uint8
	ActiveMTU    uint8
	LMC          uint8
	MaxVLNum     uint8
	_            [3]uint8
	ActiveWidth  uint8
	ActiveSpeed  uint8
	PhysState    uint8
	LinkLayer    uint8
	_            [2]uint8
}

// Port states (enum ib_port_state) and link layers.
const (
	PortInit   = 2
	PortArmed  = 3
	PortActive = 4

	LinkLayerEthernet = 2
)
