package server

import (
	"math"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
	"roced.io/roced/rocev2"
)

// firmware is the version that QUERY_DEVICE reports: 1.0.0.
const firmware = 1 << 32

// Constants of QUERY_DEVICE and QUERY_PORT besides limits and states.
const (
	capUDAVPortEnforce = 1 << 6
	deviceCapabilities = uverbs.CapBadPKeyCounter | uverbs.CapBadQKeyCounter | uverbs.CapSRQResize | capUDAVPortEnforce | uverbs.CapCurrQPStateMod | uverbs.CapPortActiveEvent |
		uverbs.CapSysImageGUID | uverbs.CapRCRNRNakGen | uverbs.CapMemWindow | uverbs.CapMemMgtExt | uverbs.CapMemWindowType2B
	atomicHCA          = 1 // IBV_ATOMIC_HCA: atomic among the queue pairs of this NIC
	physPolling        = 2
	physLinkUp         = 5
	portCapCM          = 1 << 16
	portCapIPBasedGIDs = 1 << 26
	activeWidth4X      = 2
	activeSpeedEDR     = 32
	pageSizes          = 0xfffff000
	localAckDelay      = 15
	vendorID           = 0xffffff // no IEEE OUI
	numCompVectors     = 1
	timestampMask      = math.MaxUint64 // completions carry 64-bit nanoseconds
	coreClock          = 1_000_000      // kHz
)

// getContext opens the context and creates the channel of asynchronous events.
func (c *client) getContext(q *request) error {
	if c.async != nil {
		return unix.EINVAL
	}
	ch, fd, err := c.newChannel()
	if err != nil {
		return err
	}
	c.asyncMu.Lock()
	c.async = ch
	c.asyncMu.Unlock()
	q.attach(uverbs.FD{FD: fd, Kind: uverbs.FDNumber})
	q.core = uverbs.GetContextResp{NumCompVectors: numCompVectors}
	return nil
}

func (c *client) guid() [8]byte { return GUID(c.srv.cfg.MAC) }

// GUID returns the EUI-64 of a NIC, which is its node GUID and system image GUID.
func GUID(m inet.MAC) [8]byte {
	return [8]byte{m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]}
}

func (c *client) deviceAttr() (r uverbs.QueryDeviceResp, err error) {
	err = c.peek(func(n *rocev2.NIC) error {
		nic, own := n.Limits(), c.limits
		r = uverbs.QueryDeviceResp{
			FwVer: firmware, NodeGUID: c.guid(), SysImageGUID: c.guid(),
			MaxMRSize: math.MaxInt64, PageSizeCap: pageSizes, VendorID: vendorID,
			MaxQP: least(nic.QPs, own.QPs), MaxQPWR: least(nic.SendWR, nic.RecvWR), DeviceCapFlags: capabilities(c.writesOnly()),
			MaxSGE: uint32(nic.SGE), MaxSGERd: uint32(nic.SGE), MaxCQ: least(nic.CQs, own.CQs), MaxCQE: uint32(nic.CQE),
			MaxMR: least(nic.MRs, own.MRs), MaxPD: least(nic.PDs, own.PDs),
			MaxQPRdAtom: uint32(nic.RdAtomic), MaxQPInitRdAtom: uint32(nic.RdAtomic),
			MaxResRdAtom: uint32(nic.RdAtomic) * least(nic.QPs, own.QPs),
			AtomicCap:    atomicHCA, MaxMW: least(nic.MWs, own.MWs), MaxAH: least(nic.AHs, own.AHs),
			MaxSRQ: least(nic.SRQs, own.SRQs), MaxSRQWR: uint32(nic.RecvWR), MaxSRQSGE: uint32(nic.SGE),
			MaxMcastGrp: rocev2.MaxGroups, MaxMcastQPAttach: rocev2.MaxGroupMembers,
			MaxTotalMcastQPAttach: rocev2.MaxGroups * rocev2.MaxGroupMembers,
			MaxPKeys:              1, LocalCAAckDelay: localAckDelay, PhysPortCnt: 1,
		}
		return nil
	})
	if c.writesOnly() {
		r.MaxQPRdAtom, r.MaxQPInitRdAtom, r.MaxResRdAtom, r.AtomicCap = 0, 0, 0, 0
	}
	return r, err
}

// capabilities returns device_cap_flags. A transport profile without READs has no atomics and no windows either.
func capabilities(writesOnly bool) uint32 {
	if writesOnly {
		return deviceCapabilities &^ (uverbs.CapRCRNRNakGen | uverbs.CapMemMgtExt | uverbs.CapMemWindow | uverbs.CapMemWindowType2B)
	}
	return deviceCapabilities
}

// Capabilities returns the device_cap_flags of a client that requests no profile.
func (s *Server) Capabilities() uint32 { return capabilities(s.writesOnly(s.cfg.Profile)) }

// writesOnly reports whether the transport profile of the client has no READs and no atomics.
func (c *client) writesOnly() bool { return c.srv.writesOnly(c.profile) }

func (s *Server) writesOnly(name string) bool {
	if all := s.cfg.Profiles; name == "" && len(all) > 0 {
		name = all[0]
	}
	return !profile.Supports(name, qp.WRRead)
}

func least(a, b int) uint32 { return uint32(min(a, b)) }

func (c *client) queryDevice(q *request) error {
	r, err := c.deviceAttr()
	if err == nil {
		q.core = r
	}
	return err
}

// exQueryDevice truncates the answer to the client's buffer.
func (c *client) exQueryDevice(q *request) error {
	in, err := uverbs.DecodeEx[uverbs.ExQueryDevice](q.Body, 8)
	if err != nil {
		return err
	}
	if in.CompMask != 0 {
		return unix.EINVAL
	}
	base, err := c.deviceAttr()
	if err != nil {
		return err
	}
	size := min(uverbs.Size[uverbs.ExQueryDeviceResp](), q.Out)
	if size < uverbs.Size[uverbs.QueryDeviceResp]()+8 {
		return unix.ENOSPC
	}
	caps := uint64(base.DeviceCapFlags)
	if !c.writesOnly() {
		caps |= uverbs.CapFlushGlobal | uverbs.CapAtomicWrite
	}
	q.core = uverbs.ExQueryDeviceResp{Base: base, ResponseLength: uint32(size), TimestampMask: timestampMask, HCACoreClock: coreClock,
		DeviceCapFlagsEx: caps, MaxCQModerationCount: math.MaxUint16, MaxCQModerationPeriod: math.MaxUint16}
	return nil
}

func (c *client) queryPort(q *request) error {
	var in uverbs.QueryPort
	if err := q.decode(&in); err != nil {
		return err
	}
	if in.PortNum != 1 {
		return unix.EINVAL
	}
	return c.peek(func(n *rocev2.NIC) error {
		a := n.PortAttr()
		r := uverbs.QueryPortResp{
			PortCapFlags: portCapCM | portCapIPBasedGIDs, MaxMsgSz: qp.MaxMessage, GIDTblLen: uint32(a.GIDs),
			BadPKeyCntr: a.BadPKeys, QKeyViolCntr: a.BadQKeys,
			PKeyTblLen: uint16(a.PKeys), State: uint8(a.State), MaxMTU: uint8(a.MaxMTU), ActiveMTU: uint8(a.ActiveMTU),
			MaxVLNum: 1, ActiveWidth: activeWidth4X, ActiveSpeed: activeSpeedEDR, PhysState: physPolling,
			LinkLayer: uverbs.LinkLayerEthernet, LID: n.LID(),
		}
		if a.State == rocev2.PortActive {
			r.PhysState = physLinkUp
		}
		q.core = r
		return nil
	})
}
