package qp

import "roced.io/roced/bth"

// transports are the bits of opcodes by transport service.
var transports = [...]bth.Opcode{RC: bth.TransportRC, UC: bth.TransportUC, UD: bth.TransportUD}

// header sets all fields of the BTH of a packet from this queue pair. The NIC has the P_Key table and replaces PKey
// if the index differs from the default.
//
// A connection that does not use automatic path migration is in the state Migrated, so that MigReq is 1 in each of its
// packets (IBTA vol.1 17.2.8). A peer in the state Armed takes 0 for consent to migration, and some NICs handle such
// packets slowly. Datagrams, CNPs and MRC have no such state, and 0.
func (q *QP) header(p *bth.Packet, op bth.Opcode, psn bth.PSN) {
	p.Opcode = q.transport | op
	p.Solicited, p.FECN, p.BECN, p.AckReq = false, false, false, false
	p.MigReq = q.transport != bth.TransportUD && q.transport != bth.TransportMRC
	p.PKey = bth.DefaultPKey
	p.DestQP = bth.QPN(q.attr.DestQPN)
	p.PSN = psn
	p.Payload = nil
}
