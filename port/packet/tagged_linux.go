package packet

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/vnet"
)

// tagQueue receives frames with their VLAN tags. The kernel removes a tag from a frame and reports it beside the frame
// (packet(7), PACKET_AUXDATA).
type tagQueue struct {
	header  [vnet.HeaderLen]byte
	vector  [2]unix.Iovec
	control [64]byte
	message unix.Msghdr
}

// listenAll makes the interface accept frames for any Ethernet address, until the socket is closed.
func (p *Port) listenAll(index int) error {
	m := unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(p.sock, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
		return fmt.Errorf("interface %s: promiscuous mode: %w", p.cfg.Interface, err)
	}
	return nil
}

// recvTagged is Recv for Config.All.
func (p *Port) recvTagged(now mono.Time, buf []byte) (frame []byte, segSize int, err error) {
	if p.FD() < 0 {
		return nil, 0, port.ErrDown
	}
	t := &p.tagged
	body := buf[inet.VLANLen:]
	for {
		t.vector[0].Base, t.vector[1].Base = &t.header[0], &body[0]
		t.vector[0].SetLen(len(t.header))
		t.vector[1].SetLen(len(body))
		t.message = unix.Msghdr{Iov: &t.vector[0], Iovlen: 2, Control: &t.control[0]}
		t.message.SetControllen(len(t.control))
		n, e := port.RawMessage(unix.SYS_RECVMSG, p.FD(), &t.message, 0)
		if e != 0 {
			return nil, 0, p.RecvFailed("packet", e, func() { p.Poll(now) })
		}
		if n -= len(t.header); n < port.EthLen {
			p.Counters.RecvDropped++
			continue
		}
		frame = body[:n]
		if tpid, tci, ok := t.tag(); ok {
			frame = buf[:inet.VLANLen+n]
			copy(frame, frame[inet.VLANLen:inet.VLANLen+offEtherType])
			binary.BigEndian.PutUint16(frame[offEtherType:], tpid)
			binary.BigEndian.PutUint16(frame[offEtherType+2:], tci)
		}
		return frame, vnet.SegmentSize(&t.header), nil
	}
}

// tag returns the tag that the kernel has removed from the frame. Its message is the only one.
func (t *tagQueue) tag() (tpid, tci uint16, ok bool) {
	const header = unix.SizeofCmsghdr
	if int(t.message.Controllen) < header+int(unsafe.Sizeof(unix.TpacketAuxdata{})) {
		return 0, 0, false
	}
	aux := (*unix.TpacketAuxdata)(unsafe.Pointer(&t.control[header]))
	if aux.Status&unix.TP_STATUS_VLAN_VALID == 0 {
		return 0, 0, false
	}
	tpid = unix.ETH_P_8021Q
	if aux.Status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
		tpid = aux.Vlan_tpid
	}
	return tpid, aux.Vlan_tci, true
}
