package layers

import "github.com/google/gopacket"

// Stack is one of each RoCEv2 layer, for a gopacket.DecodingLayerParser, which
// decodes into the same layers again and again without allocating:
//
//	var roce layers.Stack
//	parser := gopacket.NewDecodingLayerParser(first, append(roce.Layers(), &eth, &ip, &udp)...)
//
// An extension header does not say what follows it, only the opcode does, so
// the layers of a Stack look at its BTH. A layer outside of a Stack names the
// payload as next. A Stack must not be copied after Layers was called.
type Stack struct {
	BTH          BTH
	XETH         XETH
	DETH         DETH
	RETH         RETH
	AtomicETH    AtomicETH
	AETH         AETH
	AtomicAckETH AtomicAckETH
	ImmDt        ImmDt
	IETH         IETH
	Payload      gopacket.Payload
}

// Layers ties the layers of s together and returns them.
func (s *Stack) Layers() []gopacket.DecodingLayer {
	for _, e := range []*ext{
		&s.XETH.ext, &s.DETH.ext, &s.RETH.ext, &s.AtomicETH.ext, &s.AETH.ext,
		&s.AtomicAckETH.ext, &s.ImmDt.ext, &s.IETH.ext,
	} {
		e.within = &s.BTH
	}
	return []gopacket.DecodingLayer{
		&s.BTH, &s.XETH, &s.DETH, &s.RETH, &s.AtomicETH, &s.AETH,
		&s.AtomicAckETH, &s.ImmDt, &s.IETH, &s.Payload,
	}
}
