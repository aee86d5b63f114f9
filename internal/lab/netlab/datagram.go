package netlab

import (
	"encoding/binary"
	"net/netip"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
)

// Datagram returns the UDP payload of p, from one IPv4 address to another, as a NIC on sockets sends it: with DF and IP ID 0.
func Datagram(src netip.AddrPort, dst netip.Addr, p *bth.Packet) []byte {
	const headers = inet.IPv4Len + inet.UDPLen
	b := p.AppendTo(make([]byte, headers))
	l3, udp, body := b[:inet.IPv4Len], b[inet.IPv4Len:headers], b[headers:]
	from, to := inet.GIDOf(src.Addr()), inet.GIDOf(dst)
	inet.PutIPv4(l3, 0, 64, inet.ProtoUDP, &from, &to)
	binary.BigEndian.PutUint16(udp, src.Port())
	binary.BigEndian.PutUint16(udp[2:], bth.UDPPort)
	inet.SetLengths(l3, udp, 0, len(body))
	end := len(body) - bth.ICRCLen
	bth.PutICRC(body[end:], bth.ICRCUpdate(bth.ICRCStart(l3, udp, body[:bth.BTHLen]), body[bth.BTHLen:end]))
	return body
}
