package verbs

import (
	"cmp"

	"roced.io/roced/internal/base/abi/uverbs"
)

// AHAttr is the address of a peer (ibv_ah_attr).
type AHAttr struct {
	DGID         GID
	SGIDIndex    int
	TrafficClass uint8 // DSCP and ECN bits
	HopLimit     uint8 // zero: 64
	FlowLabel    uint32
	// SL is the service level. Packets with a higher one leave before other packets of
	// this context. Zero: the upper three bits of TrafficClass.
	SL uint8
}

// AH is an address handle (ibv_ah), for UD.
type AH struct {
	ctx    *Context
	handle uint32
	num    uint32 // number in work requests
}

// defaultHopLimit replaces a hop limit of zero.
const defaultHopLimit = 64

func (a *AHAttr) hopLimit() uint8 {
	return cmp.Or(a.HopLimit, defaultHopLimit)
}

// CreateAH creates an address handle.
func (p *PD) CreateAH(attr AHAttr) (*AH, error) {
	r, n, err := create[uverbs.CreateAHResp, uverbs.RxeCreateAHResp](p.ctx, "create_ah", uverbs.CmdCreateAH,
		uverbs.CreateAH{PDHandle: p.handle, Attr: uverbs.AHAttr{PortNum: 1, SL: attr.SL, IsGlobal: 1, GRH: uverbs.GlobalRoute{
			DGID: attr.DGID, FlowLabel: attr.FlowLabel, SGIDIndex: uint8(attr.SGIDIndex),
			HopLimit: attr.hopLimit(), TrafficClass: attr.TrafficClass}}})
	if err != nil {
		return nil, explain(err, attr.DGID.String())
	}
	return &AH{ctx: p.ctx, handle: r.AHHandle, num: n.AHNum}, nil
}

// Destroy destroys the address handle.
func (a *AH) Destroy() error {
	return a.ctx.run("destroy_ah", uverbs.CmdDestroyAH, uverbs.DestroyAH{AHHandle: a.handle})
}
