package uverbs

// AllocPD is ib_uverbs_alloc_pd.
type AllocPD struct {
	Response uint64
}

// AllocPDResp is ib_uverbs_alloc_pd_resp.
type AllocPDResp struct {
	PDHandle uint32
}

// DeallocPD is ib_uverbs_dealloc_pd.
type DeallocPD struct {
	PDHandle uint32
}

// RegMR is ib_uverbs_reg_mr.
type RegMR struct {
	Response    uint64
	Start       uint64
	Length      uint64
	HCAVA       uint64
	PDHandle    uint32
	AccessFlags uint32
}

// RegMRResp is ib_uverbs_reg_mr_resp.
type RegMRResp struct {
	MRHandle uint32
	LKey     uint32
	RKey     uint32
}

// ReregMR is ib_uverbs_rereg_mr.
type ReregMR struct {
	Response    uint64
	MRHandle    uint32
	Flags       uint32
	Start       uint64
	Length      uint64
	HCAVA       uint64
	PDHandle    uint32
	AccessFlags uint32
}

// ReregMRResp is ib_uverbs_rereg_mr_resp.
type ReregMRResp struct {
	LKey uint32
	RKey uint32
}

// DeregMR is ib_uverbs_dereg_mr.
type DeregMR struct {
	MRHandle uint32
}

// AllocMW is ib_uverbs_alloc_mw.
type AllocMW struct {
	Response uint64
	PDHandle uint32
	MWType   uint8
	_        [3]uint8
}

// AllocMWResp is ib_uverbs_alloc_mw_resp.
type AllocMWResp struct {
	MWHandle uint32
	RKey     uint32
}

// DeallocMW is ib_uverbs_dealloc_mw.
type DeallocMW struct {
	MWHandle uint32
}

// GlobalRoute is ib_uverbs_global_route.
type GlobalRoute struct {
	DGID         [16]uint8
	FlowLabel    uint32
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	_            uint8
}

// AHAttr is ib_uverbs_ah_attr.
type AHAttr struct {
	GRH      GlobalRoute
	DLID     uint16
	SL       uint8
	_        [2]uint8
	IsGlobal uint8
	PortNum  uint8
	_        uint8
}

// CreateAH is ib_uverbs_create_ah.
type CreateAH struct {
	_        [2]uint64
	PDHandle uint32
	_        uint32
	Attr     AHAttr
}

// CreateAHResp is ib_uverbs_create_ah_resp.
type CreateAHResp struct {
	AHHandle uint32
}

// DestroyAH is ib_uverbs_destroy_ah.
type DestroyAH struct {
	AHHandle uint32
}

// AttachMcast is ib_uverbs_attach_mcast, and ib_uverbs_detach_mcast.
type AttachMcast struct {
	GID      [16]uint8
	QPHandle uint32
	MLID     uint16
	_        uint16
}
