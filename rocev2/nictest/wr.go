package nictest

import "roced.io/roced/qp"

// These functions return signaled work requests. The caller may set further fields.

func request(id uint64, op qp.WROpcode, sges []qp.SGE) qp.SendWQE {
	return qp.SendWQE{WRID: id, Opcode: op, Flags: qp.SendSignaled, SGEs: sges}
}

func remote(id uint64, op qp.WROpcode, r Remote, sges []qp.SGE) qp.SendWQE {
	w := request(id, op, sges)
	w.RemoteVA, w.RKey = r.VA, r.RKey
	return w
}

// Send is a SEND.
func Send(id uint64, sges ...qp.SGE) qp.SendWQE { return request(id, qp.WRSend, sges) }

// SendInline is a SEND of inline data.
func SendInline(id uint64, data []byte) qp.SendWQE {
	w := request(id, qp.WRSend, nil)
	w.Flags |= qp.SendInline
	w.Inline = data
	return w
}

// SendInv is a SEND that invalidates a window of the peer.
func SendInv(id uint64, rkey uint32, sges ...qp.SGE) qp.SendWQE {
	w := request(id, qp.WRSendWithInv, sges)
	w.Imm = rkey
	return w
}

// Write is an RDMA WRITE to r.
func Write(id uint64, r Remote, sges ...qp.SGE) qp.SendWQE { return remote(id, qp.WRWrite, r, sges) }

// WriteImm is an RDMA WRITE with immediate data.
func WriteImm(id uint64, r Remote, imm uint32, sges ...qp.SGE) qp.SendWQE {
	w := remote(id, qp.WRWriteImm, r, sges)
	w.Imm = imm
	return w
}

// Read is an RDMA READ from r.
func Read(id uint64, r Remote, sges ...qp.SGE) qp.SendWQE { return remote(id, qp.WRRead, r, sges) }

// FetchAdd adds to the number at r; the original value goes to result.
func FetchAdd(id uint64, r Remote, add uint64, result qp.SGE) qp.SendWQE {
	w := remote(id, qp.WRFetchAdd, r, []qp.SGE{result})
	w.CompareAdd = add
	return w
}

// CompareSwap replaces the number at r if it equals compare.
func CompareSwap(id uint64, r Remote, compare, swap uint64, result qp.SGE) qp.SendWQE {
	w := remote(id, qp.WRCmpSwap, r, []qp.SGE{result})
	w.CompareAdd, w.Swap = compare, swap
	return w
}

// BindMW binds a window.
func BindMW(id uint64, b qp.BindWR) qp.SendWQE {
	w := request(id, qp.WRBindMW, nil)
	w.Bind = b
	return w
}

// SendTo is a UD SEND through an address handle.
func SendTo(id uint64, ah uint32, to *QP, sges ...qp.SGE) qp.SendWQE {
	w := request(id, qp.WRSend, sges)
	w.AH, w.RemoteQPN, w.RemoteQKey = ah, uint32(to.Num()), to.o.QKey
	return w
}

// With returns w with further flags.
func With(w qp.SendWQE, f qp.SendFlags) qp.SendWQE {
	w.Flags |= f
	return w
}
