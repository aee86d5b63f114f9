package test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// TestReplyPriority captures the VLAN priorities of datagrams and of replies to them: only explicit service levels count,
// since the field of a completion carries the packet type.
func TestReplyPriority(t *testing.T) {
	const vlan = 10
	l := lab.New(t, netlab.LabOptions{Unix: true, Together: true, VLAN: vlan})
	h := l.Host[0]
	text, err := os.ReadFile(h.Config)
	lab.Must(t, err)
	file := filepath.Join(l.Dir, "all.pcapng")
	lab.Must(t, os.WriteFile(h.Config, fmt.Appendf(text, "    capture: {file: %q}\n", file), 0o600))
	lab.Must(t, h.Stop(os.Interrupt))
	lab.Must(t, h.Start(lab.Bin))
	succeed(t, verbs(t, l, "reply"))
	lab.Must(t, h.Stop(os.Interrupt))
	capture, err := os.ReadFile(file)
	lab.Must(t, err)
	if got, want := priorities(capture, vlan), []int{0, 0, 0, 5, 5, 0, 0, 5, 5, 5, 5}; !slices.Equal(got, want) {
		t.Errorf("request, two replies, and a reply with an explicit service level, twice, then three requests: priorities %v, want %v", got, want)
	}
}

// priorities returns the priorities of the UDP packets over IPv4 in a VLAN, in the order of a capture.
func priorities(capture []byte, vlan uint16) (list []int) {
	const tagged = 6 + 20 // tag, type and IPv4 header
	for i := 0; i+tagged < len(capture); i++ {
		if binary.BigEndian.Uint16(capture[i:]) != 0x8100 {
			continue
		}
		tci := binary.BigEndian.Uint16(capture[i+2:])
		if tci&0xfff == vlan && binary.BigEndian.Uint16(capture[i+4:]) == 0x800 && capture[i+6+9] == 17 {
			list = append(list, int(tci>>13))
		}
	}
	return list
}
