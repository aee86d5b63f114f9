package flor

import (
	"net/netip"

	"roced.io/roced/flor/engine"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/verbs"
)

// The datagram queue pair carries acknowledgements and the control messages that reconnect queue pairs.
const (
	ackDepth   = 256  // datagrams posted to the NIC
	acksPosted = 1024 // posted receives
	grhLen     = 40   // the GRH at the start of a received datagram
	ackBuffer  = 256  // bytes of a receive: GRH and the longest datagram
	ackQKey    = 0x466c6f72
	ackSend    = 1 << 32 // WRID of a SEND
)

// ackAddr is the source address of datagrams.
type ackAddr struct {
	gid verbs.GID
	qpn uint32
}

// peer is a remote device at the end of connections. It receives this device's datagrams.
type peer struct {
	ackAddr
	id    uint64 // identifies the peer to the engine
	ah    *verbs.AH
	users int
}

// openAcks creates the datagram queue pair and posts its receives.
func (d *Device) openAcks() (err error) {
	if d.srq == nil {
		return nil // an earlier step has failed and reported its error
	}
	d.acks, err = d.pd.CreateQP(verbs.QPInitAttr{Type: verbs.UD, SendCQ: d.ackCQ, RecvCQ: d.ackCQ, MaxSendWR: 2 * ackDepth, MaxRecvWR: acksPosted,
		MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: engine.MaxAckLen})
	if err != nil {
		return err
	}
	p := verbs.DefaultConnParams()
	p.QKey = ackQKey
	if err := d.acks.Connect(verbs.ConnInfo{}, p); err != nil {
		return err
	}
	if d.ackMR, err = d.pd.AllocMR(acksPosted*ackBuffer, verbs.AccessLocalWrite); err != nil {
		return err
	}
	for i := range acksPosted {
		if err := d.postAckRecv(i); err != nil {
			return err
		}
	}
	return nil
}

func (d *Device) postAckRecv(i int) error {
	d.recvSGE[0] = d.ackMR.SGE(i*ackBuffer, ackBuffer)
	d.recvWR = verbs.RecvWR{WRID: uint64(i), SGEs: d.recvSGE[:]}
	return d.acks.PostRecv(&d.recvWR)
}

// PostAck implements engine.NIC.
func (n *nic) PostAck(k *engine.Conn, b []byte) {
	d := (*Device)(n)
	if d.cfg.SharedAcks {
		d.pairs[uint32(k.Primary())].postAck(b)
		return
	}
	d.datagram(k.Ctx.(*Conn).peer, b)
}

// postAck sends an acknowledgement on a data queue pair. The acknowledgement is lost if the send queue is full.
func (p *pair) postAck(b []byte) {
	d := p.d
	if p.state != pairUp || p.outstanding() == len(p.posted) {
		return
	}
	d.sendWR = verbs.SendWR{Opcode: verbs.OpSendImm, Flags: verbs.SendSignaled, Inline: b}
	if p.q.PostSend(&d.sendWR) == nil {
		p.posted[int(p.tail)%len(p.posted)] = posted{ack: true}
		p.tail++
	}
}

// sharedAck processes an acknowledgement that arrived on a data queue pair, in a buffer of the pool.
func (d *Device) sharedAck(now mono.Time, p *pair, wc *verbs.WC) {
	if b := d.cfg.Engine.Pool[wc.WRID].Data; p != nil && int(wc.ByteLen) <= len(b) {
		d.eng.OnAck(now, p.c.peer.id, mono.Time(wc.Time), b[:wc.ByteLen])
	}
	(*nic)(d).PostRecv(int(wc.WRID))
}

// datagram sends a datagram. The datagram is lost if the send queue is full.
func (d *Device) datagram(to *peer, b []byte) {
	if d.ackRoom == ackDepth || d.lost {
		return
	}
	d.sendWR = verbs.SendWR{WRID: ackSend, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, Inline: b, AH: to.ah, RemoteQPN: to.qpn, RemoteQKey: ackQKey}
	if d.acks.PostSend(&d.sendWR) == nil {
		d.ackRoom++
	}
}

// ackCompleted processes a completion of the datagram queue pair.
func (d *Device) ackCompleted(now mono.Time, wc *verbs.WC) {
	if wc.WRID == ackSend {
		d.ackRoom--
		return
	}
	at := int(wc.WRID) * ackBuffer
	if b := d.ackMR.Bytes()[at : at+ackBuffer]; wc.Status == verbs.StatusSuccess && wc.ByteLen > grhLen && wc.ByteLen <= ackBuffer {
		var id uint64
		from := d.peers[ackAddr{source(b), wc.SrcQP}]
		if from != nil {
			id = from.id
		}
		if b = b[grhLen:wc.ByteLen]; b[0] == 0 { // an acknowledgement begins with a 24-bit queue pair number
			d.eng.OnAck(now, id, mono.Time(wc.Time), b)
		} else if !d.takeControl(now, from, b) {
			d.ctr.BadControl++
		}
	}
	if d.postAckRecv(int(wc.WRID)) != nil && d.err == nil {
		d.err = verbs.ErrDeviceFatal
	}
}

// source returns the sender's GID from the GRH of a datagram. IPv4 uses the last 20 bytes of the GRH.
func source(grh []byte) verbs.GID {
	if grh[0]>>4 == 6 {
		return verbs.GID(grh[8:24])
	}
	return verbs.GIDOf(netip.AddrFrom4([4]byte(grh[32:36])))
}

// meet returns the peer at an address and takes a reference; forsake drops it. The caller holds d.opening.
func (d *Device) meet(a ackAddr, sgid int) (*peer, error) {
	d.mu.Lock()
	p := d.peers[a]
	if p != nil {
		p.users++
	}
	d.mu.Unlock()
	if p != nil {
		return p, nil
	}
	ah, err := d.pd.CreateAH(verbs.AHAttr{DGID: a.gid, SGIDIndex: sgid, TrafficClass: d.cfg.AckClass})
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastID++
	p = &peer{ackAddr: a, id: d.lastID, ah: ah, users: 1}
	d.peers[a] = p
	return p, nil
}

// forsake deletes an unused peer. The caller holds d.mu.
func (d *Device) forsake(p *peer) {
	if p.users--; p.users == 0 {
		delete(d.peers, p.ackAddr)
		d.worker.do(func() { _ = p.ah.Destroy() }) // if this fails, it ends with the device
	}
}
