package engine

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestImmediate(t *testing.T) {
	for _, c := range []struct {
		hint        bool
		mid, offset uint32
		want        Imm
	}{
		{false, 0, 0, 0},
		{false, 1, 2, 0x0000_0402}, // the 32 KB chunk of figure 14
		{true, 0, 0, 0x8000_0000},
		{true, MaxMessageID, MaxChunks - 1, 0xffff_ffff},
		{false, MaxMessageID + 1, MaxChunks, 0}, // both wrap
	} {
		i := MakeImm(c.hint, c.mid, c.offset)
		if i != c.want || i.Hint() != c.hint || i.MessageID() != c.mid&MaxMessageID || i.Offset() != c.offset&(MaxChunks-1) {
			t.Errorf("%v %d %d: %#x: %v %d %d", c.hint, c.mid, c.offset, uint32(i), i.Hint(), i.MessageID(), i.Offset())
		}
	}
	for _, c := range []struct {
		a, b uint32
		want int
	}{{0, MaxMessageID, 1}, {MaxMessageID, 0, -1}, {5, 5, 0}, {1 << 20, 0, -1 << 20}, {1<<20 - 1, 0, 1<<20 - 1}} {
		if got := midDiff(c.a, c.b); got != c.want {
			t.Errorf("%d-%d = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

var goldenHeaders = []struct {
	name, hex string
	h         Header
}{
	{"message", "0101000000000007 00000000000000ff 00000003 00002000 00001000 0000002a",
		Header{Kind: KindMessage, Hint: true, RN: 7, GN: 255, Message: 3, Length: 8192, Offset: 4096, Tag: 42}},
	{"request", "02000000ffffffff ffffffffffffffff 001fffff 00100000 00000000 0000002a",
		Header{Kind: KindRequest, RN: 1<<32 - 1, GN: 1<<64 - 1, Message: MaxMessageID, Length: 1 << 20, Tag: 42}},
	{"grant", "0300000000000001 0000000000000002 00000009 0badcafe 00007f0000001000",
		Header{Kind: KindGrant, RN: 1, GN: 2, Message: 9, Key: 0xbadcafe, Addr: 0x7f0000001000}},
	{"rewrite", "0400000000000001 0000000000000004 00000402 00000000 00000000 00000000", // figure 14
		Header{Kind: KindRewrite, RN: 1, GN: 4, Message: uint32(MakeImm(false, 1, 2))}},
}

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestHeaderGolden(t *testing.T) {
	for _, c := range goldenHeaders {
		want := unhex(t, c.hex)
		got := bytes.Repeat([]byte{0xff}, HeaderLen)
		if c.h.Put(got); !bytes.Equal(got, want) {
			t.Errorf("%s: %x, want %x", c.name, got, want)
		}
		var h Header
		if err := h.Parse(want); err != nil || h != c.h {
			t.Errorf("%s: %+v, %v, want %+v", c.name, h, err, c.h)
		}
		if err := h.Parse(want[:HeaderLen-1]); !errors.Is(err, ErrShort) {
			t.Errorf("%s, cut: %v", c.name, err)
		}
	}
	for _, bad := range []string{
		"0000000000000007 00000000000000ff 00000003 00002000 00001000 00000000", // kind 0
		"0500000000000007 00000000000000ff 00000003 00002000 00001000 00000000", // unknown kind
		"0102000000000007 00000000000000ff 00000003 00002000 00001000 00000000", // unknown flag
		"0100000100000007 00000000000000ff 00000003 00002000 00001000 00000000", // reserved
		"0200000000000007 00000000000000ff 00000003 00002000 00000001 00000000",
		"0200000000000007 00000000000000ff 00200000 00002000 00000000 00000000", // more than 21 bits
		"0300000000000007 00000000000000ff 00200000 00002000 00000000 00000000",
		"0400000000000007 00000000000000ff 80000402 00000000 00000000 00000000", // the hint must be zero
		"0400000000000007 00000000000000ff 00000402 00000001 00000000 00000000",
	} {
		var h Header
		if err := h.Parse(unhex(t, bad)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestAckGolden(t *testing.T) {
	// A WRITE, a SEND with a later and a SEND with an earlier global number: the earlier one is the least.
	a := Ack{QPN: 0x123456, Delay: 1500 * time.Nanosecond}
	a.AddWrite(MakeImm(true, 1, 2))
	if !a.AddSend(1<<40+5) || !a.AddSend(1<<40+3) {
		t.Fatal("not added")
	}
	want := unhex(t, "00123456 60000000 0000010000000003 00000000000005dc 80000402 00000002 00000000")
	if got := a.Append(nil); !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
	var b Ack
	if err := b.Parse(want); err != nil || b != a {
		t.Errorf("%+v, %v, want %+v", b, err, a)
	}
	if n, send := b.At(1); n != 1<<40+5 || !send {
		t.Errorf("%d %v", n, send)
	}
	// An acknowledgement of 40 bytes has four numbers (Flor A.1.2).
	if err := b.Parse(unhex(t, "00000001 00000000 0000000000000000 0000000000000000 00000000 00000001 00000002 00000003")); err != nil || b.Len() != 4 {
		t.Errorf("%d numbers, %v", b.Len(), err)
	}
	for name, bad := range map[string]string{
		"no number":       "00123456 00000000 0000000000000000 0000000000000000",
		"cut":             "00123456 00000000 0000000000000000 0000000000000000 000000",
		"odd":             "00123456 00000000 0000000000000000 0000000000000000 00000000 00",
		"too many":        "00123456 00000000 0000000000000000 0000000000000000" + strings.Repeat(" 00000000", MaxAcked+1),
		"bit without one": "00123456 40000000 0000000000000000 0000000000000000 00000000",
		"not the least":   "00123456 80000000 0000000000000000 0000000000000000 00000001",
		"least of none":   "00123456 00000000 0000000000000001 0000000000000000 00000001",
		"queue pair":      "01123456 00000000 0000000000000000 0000000000000000 00000001",
		"negative delay":  "00123456 00000000 0000000000000000 8000000000000000 00000001",
	} {
		if err := b.Parse(unhex(t, bad)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// TestAckSpan: global numbers are relative to the least one, wherever their 64 bits wrap.
func TestAckSpan(t *testing.T) {
	var a Ack
	if !a.AddSend(1<<64-2) || !a.AddSend(3) || !a.AddSend(1<<32-3) {
		t.Fatal("refused")
	}
	if a.AddSend(1<<32 - 2) {
		t.Error("2^32 apart")
	}
	if a.AddSend(1<<64-3) || a.Len() != 3 {
		t.Error("2^32 apart, the other way")
	}
	var b Ack
	if err := b.Parse(a.Append(nil)); err != nil || b != a {
		t.Errorf("%+v, %v, want %+v", b, err, a)
	}
}

func FuzzHeader(f *testing.F) {
	for _, c := range goldenHeaders {
		f.Add(unhex(f, c.hex))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Header
		if h.Parse(b) != nil {
			return
		}
		got := make([]byte, HeaderLen)
		if h.Put(got); !bytes.Equal(got, b[:HeaderLen]) {
			t.Fatalf("%x became %x", b, got)
		}
	})
}

func FuzzAck(f *testing.F) {
	f.Add(unhex(f, "00123456 60000000 0000010000000003 00000000000005dc 80000402 00000002 00000000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var a Ack
		if a.Parse(b) != nil {
			return
		}
		if got := a.Append(nil); !bytes.Equal(got, b) {
			t.Fatalf("%x became %x", b, got)
		}
	})
}

// TestWindow compares a window with a set, across the wrap of numbers.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.SampledFrom([]uint32{0, 7, 1<<32 - 100, 1<<31 - 50}).Draw(t, "first")
		w, next, done := newWindow(first, 128), 0, map[int]bool{}
		for range 300 {
			i := next + rapid.IntRange(-40, 160).Draw(t, "number")
			rn := first + uint32(i)
			if got, want := w.holds(rn), i < next+128; got != want {
				t.Fatalf("holds %d with %d next: %v", i, next, got)
			}
			if i >= next+128 {
				continue
			}
			if got, want := w.done(rn), i < next || done[i]; got != want {
				t.Fatalf("%d with %d next: done %v", i, next, got)
			}
			w.mark(rn)
			for done[i] = true; done[next]; next++ {
			}
			if w.next != first+uint32(next) {
				t.Fatalf("next is %d, want %d", w.next-first, next)
			}
		}
	})
}
