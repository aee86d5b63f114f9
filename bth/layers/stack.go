package layers

import "github.com/google/gopacket"

// Stack holds one of each RoCEv2 layer, for a gopacket.DecodingLayerParser, which reuses the layers and does not allocate:
//
//	var roce layers.Stack
//	parser := gopacket.NewDecodingLayerParser(first, append(roce.Layers(), &eth, &ip, &udp)...)
//
// Only the opcode determines the header that follows an extension header, so the layers of a Stack read its BTH. A layer
// outside of a Stack returns the payload as next layer. A Stack must not be copied after a call of Layers.
type Stack struct {
	BTH          BTH
	XETH         XETH
	DETH         DETH
	FETH         FETH
	RETH         RETH
	AtomicETH    AtomicETH
	AETH         AETH
	AtomicAckETH AtomicAckETH
	ImmDt        ImmDt
	IETH         IETH
	METH         METH
	TSETH        TSETH
	SETH         SETH
	CCState      CCState
	NETH         NETH
	PETH         PETH
	ERTH         ERTH
	EETH         EETH
	Payload      gopacket.Payload
}

// Layers connects the layers of s and returns them.
func (s *Stack) Layers() []gopacket.DecodingLayer {
	all := []gopacket.DecodingLayer{
		&s.BTH, &s.XETH, &s.DETH, &s.FETH, &s.RETH, &s.AtomicETH, &s.AETH,
		&s.AtomicAckETH, &s.ImmDt, &s.IETH, &s.METH, &s.TSETH, &s.SETH, &s.CCState, &s.NETH, &s.PETH, &s.ERTH, &s.EETH,
		&s.Payload,
	}
	for _, l := range all {
		if e, ok := l.(interface{ setBTH(*BTH) }); ok {
			e.setBTH(&s.BTH)
		}
	}
	return all
}
