package rxering

import (
	"encoding/binary"

	"roced.io/roced/internal/base/abi/rxe"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// stage writes a work request as a client does.
func stage(p *rxe.SendProducer, w *qp.SendWQE) error {
	e, err := p.Next()
	if err != nil {
		return err
	}
	e.WRID, e.Opcode, e.Flags = w.WRID, uint32(w.Opcode), uint32(w.Flags)
	binary.BigEndian.PutUint32(e.Ex[:], w.Imm)
	switch w.Opcode {
	case qp.WRWrite, qp.WRWriteImm, qp.WRRead, qp.WRAtomicWrite:
		*e.RDMA() = rxe.RDMA{Addr: w.RemoteVA, RKey: w.RKey}
	case qp.WRFlush:
		*e.Flush() = rxe.Flush{Addr: w.RemoteVA, RKey: w.RKey, Type: w.Flush.Type, Level: w.Flush.Level}
	case qp.WRCmpSwap, qp.WRFetchAdd:
		*e.Atomic() = rxe.Atomic{Addr: w.RemoteVA, CompareAdd: w.CompareAdd, Swap: w.Swap, RKey: w.RKey}
	case qp.WRSendWithInv, qp.WRLocalInv:
		binary.NativeEndian.PutUint32(e.Ex[:], w.Imm)
	case qp.WRSend, qp.WRSendImm:
		*e.UD() = rxe.UD{QPN: w.RemoteQPN, QKey: w.RemoteQKey, AH: w.AH}
	case qp.WRBindMW:
		b := w.Bind
		*e.BindMW() = rxe.BindMW{Addr: b.Addr, Length: b.Length, MRLKey: b.MRLKey, MWRKey: b.MWRKey, RKey: b.RKey, Access: uint32(b.Access)}
	}
	if w.Opcode == qp.WRFlush {
		p.StageRange(w.Flush.Length)
		return nil
	}
	if w.Flags&qp.SendInline != 0 {
		return p.StageInline(w.Inline)
	}
	return rxe.StageSGEs(p, w.SGEs)
}

// next takes a completion as a client does.
func next(c *rxe.CQConsumer, e *qp.CQE) bool {
	var w rxe.WC
	if !c.Next(&w) {
		return false
	}
	*e = qp.CQE{WRID: w.WRID, Status: qp.Status(w.Status), Opcode: qp.WCOpcode(w.Opcode), Flags: qp.WCFlags(w.Flags),
		VendorErr: w.VendorErr, ByteLen: w.ByteLen, Imm: binary.BigEndian.Uint32(w.Ex[:]), QPN: w.QPN, SrcQP: w.SrcQP,
		PKeyIndex: w.PKeyIndex, SL: w.SL, Time: mono.Time(w.Time)}
	if e.Flags&qp.WCWithInv != 0 {
		e.Imm = binary.NativeEndian.Uint32(w.Ex[:])
	}
	return true
}
