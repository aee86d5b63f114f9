package layers_test

import (
	"fmt"
	"log"
	"os"

	"github.com/google/gopacket"
	"github.com/google/gopacket/pcapgo"

	"roced.io/roced/bth/layers"
)

// Example prints the RoCEv2 packets of a capture of VXLAN, and verifies their ICRCs.
func Example() {
	f, err := os.Open("../../internal/test/captures/testdata/vxlan.pcap")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	if err != nil {
		log.Fatal(err)
	}
	for p := range gopacket.NewPacketSource(r, r.LinkType()).Packets() {
		if b, ok := p.Layer(layers.LayerTypeBTH).(*layers.BTH); ok {
			fmt.Printf("%v psn %v, ICRC error: %v\n", b.Opcode, b.PSN, layers.CheckICRC(p))
		}
	}
	// Output:
	// RC_SEND_ONLY psn 100, ICRC error: <nil>
	// RC_ACKNOWLEDGE psn 100, ICRC error: <nil>
	// RC_RDMA_WRITE_FIRST psn 101, ICRC error: <nil>
}
