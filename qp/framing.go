package qp

import (
	"roced/bth"
	"roced/mono"
)

// framing is how a connection's requests and responses are numbered and what their packets
// say: as those of standard RC, or with an extension header (docs/wire.md).
type framing interface {
	// stamp sets the headers of packet k of s that standard RC does not have. When s begins,
	// it gives it the numbers that its packets carry.
	stamp(s *slot, k uint32, p *bth.Packet)
	// receive takes an acknowledgement or a response.
	receive(now mono.Time, p *bth.Packet, m arrival) Drop
}

// kinds are what the acknowledgements and packets of a transport say beyond the others'.
var kinds = [...]struct {
	perPacket bool // an acknowledgement for each packet, with its path: they clock the sender (MP-RDMA 3.1)
	head      bool // packets carry the connection's first PSN and mark its last packet (Eunomia 3.2.1)
	holdsLast bool // last packets of WRITEs wait for all before them (Eunomia 3.5.2)
	onlyHoles bool // only a new hole is worth a NACK of its own (MELO 3.2.4)
}{
	bth.ProfileMELO:    {onlyHoles: true},
	bth.ProfileMPRDMA:  {perPacket: true},
	bth.ProfileEunomia: {head: true, holdsLast: true},
}
