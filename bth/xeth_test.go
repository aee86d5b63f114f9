package bth_test

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"roced.io/roced/bth"
)

// TestXETHDecode covers headers that are refused and headers that are skipped.
func TestXETHDecode(t *testing.T) {
	for _, c := range []struct {
		name, hex string
		length    int
		err       error
	}{
		{"no fields", "21010000", 4, nil},
		{"longer than its fields", "24010000 ffffffff ffffffff ffffffff", 16, nil},
		{"unknown profile", "21ff0000", 4, nil},
		{"reserved bits", "22010800 ff000005", 8, nil},
		{"cut", "210100", 0, bth.ErrShort},
		{"empty", "", 0, bth.ErrShort},
		{"version 1", "11010000", 0, bth.ErrExtVersion},
		{"version 3", "31010000", 0, bth.ErrExtVersion},
		{"length 0", "20010000", 0, bth.ErrShort},
		{"shorter than its fields", "21010100 00000000 00000000", 0, bth.ErrShort},
		{"longer than the packet", "23010000 00000000", 0, bth.ErrShort},
		{"unknown flag", "21010020", 0, bth.ErrExtFlags},
		{"second hole without the first", "23014000 00000001 00000001", 0, bth.ErrExtFlags},
		{"third hole without the second", "2501a000 00000001 00000001 00000001 00000001", 0, bth.ErrExtFlags},
		{"empty hole", "23012000 00000001 00000000", 0, bth.ErrExtField},
		{"hole", "23012000 00000001 00000002", 12, nil},
	} {
		b, err := hex.DecodeString(strip(c.hex))
		if err != nil {
			t.Fatal(err)
		}
		var h bth.XETH
		n, err := h.Decode(b)
		if !errors.Is(err, c.err) || err == nil && n != c.length {
			t.Errorf("%s: %d, %v, want %d, %v", c.name, n, err, c.length, c.err)
		}
	}
}

func strip(s string) string {
	var out []byte
	for _, c := range []byte(s) {
		if c != ' ' {
			out = append(out, c)
		}
	}
	return string(out)
}

func TestXETHMaxLen(t *testing.T) {
	h := bth.XETH{Flags: bth.XHasMsg | bth.XHasRecvSN | bth.XHasReadSN | bth.XHasHead | bth.XHasSACK | bth.XHasPath}
	h.SetHoles(make([]bth.Hole, bth.MaxHoles))
	if h.Len() != bth.XETHMaxLen {
		t.Errorf("the longest header has %d bytes, XETHMaxLen is %d", h.Len(), bth.XETHMaxLen)
	}
	if h.Len() > 4*15 {
		t.Errorf("%d bytes cannot be said in 4 bits", h.Len())
	}
	if h.SetHoles(h.Holes[:1]); h.HoleCount() != 1 {
		t.Errorf("%d holes", h.HoleCount())
	}
}

// TestXETHOwn covers the bytes of a profile's own: they take the place of holes, up to MaxOwn.
func TestXETHOwn(t *testing.T) {
	var all [bth.MaxOwn]byte
	for i := range all {
		all[i] = byte(i + 1)
	}
	for n := 4; n <= bth.MaxOwn; n += 4 {
		h := bth.XETH{Profile: bth.FirstOwnProfile, Flags: bth.XHasMsg | bth.XHasRecvSN | bth.XHasReadSN | bth.XHasHead | bth.XHasSACK | bth.XHasPath, MSN: 5}
		h.SetOwn(all[:n])
		b := make([]byte, bth.XETHMaxLen)
		wrote := h.Put(b)
		var got bth.XETH
		var own [bth.MaxOwn]byte
		read, err := got.Decode(b[:wrote])
		if err != nil || read != wrote || wrote != h.Len() || got.MSN != 5 || string(got.Own(&own)) != string(all[:n]) {
			t.Errorf("%d bytes: %d written, %d read, %v, %+v", n, wrote, read, err, got)
		}
	}
	for _, c := range []struct {
		name, hex string
		err       error
	}{
		{"own", "22800040 01020304", nil},
		{"none", "21800040", bth.ErrExtField},
		{"too many", "28800040" + strings.Repeat("00", 28), bth.ErrExtField},
		{"of a built-in profile", "227f0040 01020304", bth.ErrExtFlags},
		{"beside a hole", "24802040 00000001 00000001 01020304", bth.ErrExtFlags},
	} {
		b, err := hex.DecodeString(strip(c.hex))
		if err != nil {
			t.Fatal(err)
		}
		var h bth.XETH
		if _, err := h.Decode(b); !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.name, err, c.err)
		}
	}
}
