package stack

import (
	"encoding/binary"

	"roced.io/roced/bth/inet"

	"testing"
)

func TestSocketID(t *testing.T) {
	for _, s := range []struct {
		word [4]byte
		ok   bool
	}{{[4]byte{0, 0, 0x40, 0}, true}, {[4]byte{0, 127, 0x40, 0}, true}, {[4]byte{0, 128, 0x40, 0}, false},
		{[4]byte{1, 0, 0x40, 0}, false}, {[4]byte{}, false}} {
		if socketID(binary.LittleEndian.Uint32(s.word[:])) != s.ok {
			t.Errorf("%x: %v", s.word, !s.ok)
		}
	}
}

func TestGroupMAC(t *testing.T) {
	if got := groupMAC(&inet.GID{10: 0xff, 11: 0xff, 12: 239, 13: 0xff, 14: 2, 15: 3}); got != (inet.MAC{1, 0, 0x5e, 0x7f, 2, 3}) {
		t.Errorf("%v", got)
	}
}
