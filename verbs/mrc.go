package verbs

import "roced.io/roced/internal/base/abi/uverbs"

// MRCMask selects attributes of QP.ModifyMRC (mrc_qp_attr_mask of OCP's API of MRC).
type MRCMask uint32

// Attribute bits. The responder's, the profiles and the capabilities can change before RTR, the others before RTS.
const (
	MRCMaxWIMM     MRCMask = 1 << 0
	MRCMaxWIMMDest MRCMask = 1 << 1
	MRCMPR         MRCMask = 1 << 2
	MRCMPRDest     MRCMask = 1 << 3
	MRCTimeout     MRCMask = 1 << 4
	MRCEVProfile   MRCMask = 1 << 5
	MRCCCProfile   MRCMask = 1 << 6
	MRCRetryCnt    MRCMask = 1 << 8
	MRCCap         MRCMask = 1 << 9
)

// MRCCaps are capabilities of a queue pair of MRC (mrc_qp_cap).
type MRCCaps uint32

// Capabilities.
const (
	MRCNoTrimNACK MRCCaps = 1 << 0 // the responder answers no trimmed packets
	MRCDynamicMPR MRCCaps = 1 << 1 // SACKs report the maximum PSN range
	MRCNoService  MRCCaps = 1 << 2 // the peer reports no service times
)

// MRCAttr are the attributes that only queue pairs with the transport profile mrc have (mrc_qp_attr).
type MRCAttr struct {
	MPR, MPRDest         uint8  // maximum PSN range as requester and as responder, in 128 PSNs
	MaxWIMM, MaxWIMMDest uint16 // limit on WRITEs with immediate data in flight, likewise
	Timeout              uint8  // 1.024 us * 2^Timeout, at most 24
	Linear               uint8  // retries at that interval, at most 7
	Exponential          uint8  // further retries, each after twice the time; 25: without limit
	EVProfile, CCProfile uint64 // paths and congestion control, by their numbers in the NIC's configuration; 0: the profile's
	Cap                  MRCCaps
}

// ModifyMRC changes the attributes in mask (mrc_modify_qp). An error means that no attribute has changed. A change to
// RESET restores the attributes of a new queue pair.
func (q *QP) ModifyMRC(attr MRCAttr, mask MRCMask) error {
	return q.ctx.run("modify_mrc", uverbs.ExtModifyMRC, uverbs.ModifyMRC{QPHandle: q.handle, AttrMask: uint32(mask), Attr: uverbs.MRCAttr{
		EVProfile: attr.EVProfile, CCProfile: attr.CCProfile, Cap: uint32(attr.Cap), MaxWIMM: attr.MaxWIMM, MaxWIMMDest: attr.MaxWIMMDest,
		MPR: attr.MPR, MPRDest: attr.MPRDest, Timeout: attr.Timeout, Linear: attr.Linear, Exponential: attr.Exponential}})
}

// QueryMRC returns the attributes in force (mrc_query_qp).
func (q *QP) QueryMRC() (MRCAttr, error) {
	r, err := ask[uverbs.MRCAttr](q.ctx, "query_mrc", uverbs.ExtQueryMRC, uverbs.QueryMRC{QPHandle: q.handle})
	if err != nil {
		return MRCAttr{}, err
	}
	return MRCAttr{EVProfile: r.EVProfile, CCProfile: r.CCProfile, Cap: MRCCaps(r.Cap), MaxWIMM: r.MaxWIMM, MaxWIMMDest: r.MaxWIMMDest,
		MPR: r.MPR, MPRDest: r.MPRDest, Timeout: r.Timeout, Linear: r.Linear, Exponential: r.Exponential}, nil
}

// MRCLimits are limits of attributes (mrc_device_attr).
type MRCLimits struct {
	MaxMPR  int // in 128 PSNs
	MaxWIMM int
}

// QueryMRC returns the limits of queue pairs of MRC. It fails if the transport profile is another one.
func (c *Context) QueryMRC() (MRCLimits, error) {
	r, err := ask[uverbs.MRCDeviceResp](c, "query_mrc_device", uverbs.ExtMRCDevice, uverbs.MRCDevice{})
	return MRCLimits{MaxMPR: int(r.MaxMPR), MaxWIMM: int(r.MaxWIMM)}, err
}
