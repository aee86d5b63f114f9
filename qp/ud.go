package qp

import "roced/bth"

// addressDatagram sets what UD packets have and connected ones do not: the
// destination, of whose number 24 bits count, the address handle and the DETH. A
// Q_Key with its high bit set
// stands for that of the queue pair, which only a privileged process can have
// set (IBTA vol.1 10.2.5).
func (r *requester) addressDatagram(w *SendWQE, t *Transmit) {
	qkey := w.RemoteQKey
	if qkey>>31 != 0 {
		qkey = r.q.attr.QKey
	}
	t.AH = w.AH
	t.Packet.DestQP = bth.QPN(w.RemoteQPN) & bth.MaxQPN
	t.Packet.DETH = bth.DETH{QKey: qkey, SrcQP: r.q.cfg.QPN}
}
