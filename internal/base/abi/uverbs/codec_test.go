package uverbs

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io/fs"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestCommandGolden(t *testing.T) {
	b := Command(CmdRegMR, 12, RegMR{Start: 0x1000, Length: 0x2000, HCAVA: 0x1008, PDHandle: 3, AccessFlags: 7})
	const want = "090000000c000300" + "0000000000000000" + "0010000000000000" + "0020000000000000" +
		"0810000000000000" + "0300000007000000"
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("REG_MR is\n%s, want\n%s", got, want)
	}
	r, err := ParseRequest(b)
	if err != nil || r.Command != CmdRegMR || r.Extended || r.Out != 12 {
		t.Fatalf("parsed %+v, %v", r, err)
	}
	v, err := Decode[RegMR](r.Body)
	if want := (RegMR{Start: 0x1000, Length: 0x2000, HCAVA: 0x1008, PDHandle: 3, AccessFlags: 7}); err != nil || v != want {
		t.Errorf("decoded %+v, %v", v, err)
	}
}

// extended encodes an extended command.
func extended(number uint32, core, provider []byte, out, provOut uint16) []byte {
	b := Append(nil, Hdr{Command: number | FlagExtended, InWords: uint16(len(core) / 8), OutWords: out},
		ExHdr{Response: 1, ProviderInWords: uint16(len(provider) / 8), ProviderOutWords: provOut})
	return append(append(b, core...), provider...)
}

func TestParseExtended(t *testing.T) {
	core := Append(nil, ExCreateCQ{UserHandle: 9, CQE: 10, CompChannel: -1})
	r, err := ParseRequest(extended(CmdCreateCQ, core, make([]byte, 16), 2, 3))
	if err != nil || !r.Extended || r.Command != CmdCreateCQ || len(r.Provider) != 16 || r.Out != 16 || r.ProviderOut != 24 {
		t.Fatalf("parsed %+v, %v", r, err)
	}
	v, err := DecodeEx[ExCreateCQ](r.Body, 32)
	if err != nil || v.CQE != 10 || v.CompChannel != -1 {
		t.Errorf("decoded %+v, %v", v, err)
	}
}

func TestExCommand(t *testing.T) {
	r, err := ParseRequest(ExCommand(CmdModifyQP, 8, ExModifyQP{RateLimit: 7}))
	if err != nil || !r.Extended || r.Command != CmdModifyQP || len(r.Provider) != 0 || r.Out != 8 || r.ProviderOut != 0 {
		t.Fatalf("parsed %+v, %v", r, err)
	}
	if v, err := DecodeEx[ExModifyQP](r.Body, 112); err != nil || v.RateLimit != 7 {
		t.Errorf("decoded %+v, %v", v, err)
	}
}

func TestParseRejects(t *testing.T) {
	good := Command(CmdAllocPD, 4, AllocPD{})
	mutate := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	ex := extended(CmdCreateCQ, make([]byte, 40), nil, 2, 0)
	reserved := bytes.Clone(ex)
	reserved[20] = 1
	for name, b := range map[string][]byte{
		"empty": nil, "short": good[:7], "unknown bits": mutate(1, 1), "words": mutate(4, 5),
		"longer": append(bytes.Clone(good), 0), "ex short": ex[:20], "ex words": ex[:len(ex)-8], "ex reserved": reserved,
	} {
		if r, err := ParseRequest(b); Errno(err) != unix.EINVAL {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

func TestDecodeLengths(t *testing.T) {
	b := Append(nil, ModifyQP{QPHandle: 7, QPState: 3})
	if _, err := Decode[ModifyQP](b[:len(b)-1]); !errors.Is(err, unix.EINVAL) {
		t.Errorf("short: %v", err)
	}
	if v, err := Decode[ModifyQP](append(b, 1, 2, 3)); err != nil || v.QPHandle != 7 || v.QPState != 3 {
		t.Errorf("long: %+v, %v", v, err)
	}
	if _, err := DecodeEx[ExModifyQP](b[:100], 112); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("extended, too short: %v", err)
	}
	if v, err := DecodeEx[ExModifyQP](b[:112], 112); err != nil || v.Base.QPHandle != 7 || v.RateLimit != 0 {
		t.Errorf("extended, of an older caller: %+v, %v", v, err)
	}
	b = Append(nil, ExModifyQP{RateLimit: 5}, uint64(0))
	if v, err := DecodeEx[ExModifyQP](b, 112); err != nil || v.RateLimit != 5 {
		t.Errorf("extended, of a newer caller: %+v, %v", v, err)
	}
	b[len(b)-1] = 1
	if _, err := DecodeEx[ExModifyQP](b, 112); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("extended, unknown field: %v", err)
	}
}

func TestReply(t *testing.T) {
	core, prov := CreateCQResp{CQHandle: 1, CQE: 2}, RxeCreateCQResp{MI: MMInfo{Offset: 3, Size: 4}}
	provider := Append(nil, prov)
	plain := append(Append(nil, core), provider...)
	excore := ExCreateCQResp{Base: core, ResponseLength: 16}
	for _, c := range []struct {
		name string
		r    Request
		core any
		prov any
		want []byte
	}{
		{"plain", Request{Out: 24}, core, prov, plain},
		{"plain, no provider", Request{Out: 24}, core, nil, plain[:8]},
		{"plain, little room", Request{Out: 12}, core, prov, plain[:12]},
		{"extended", Request{Extended: true, Out: 16, ProviderOut: 16}, excore, prov, append(Append(nil, excore), provider...)},
		{"extended, older caller", Request{Extended: true, Out: 8, ProviderOut: 16}, excore, prov, plain},
		{"extended, newer caller", Request{Extended: true, Out: 24, ProviderOut: 16}, excore, prov,
			append(Append(nil, excore, uint64(0)), provider...)},
	} {
		got, err := c.r.Reply(c.core, c.prov)
		if err != nil || !bytes.Equal(got, c.want) {
			t.Errorf("%s: %x, %v; want %x", c.name, got, err, c.want)
		}
	}
	r := Request{Out: 4}
	if _, err := r.Reply(core, nil); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("no room: %v", err)
	}
}

func TestErrno(t *testing.T) {
	for _, c := range []struct {
		err  error
		want unix.Errno
	}{
		{nil, 0}, {unix.EBUSY, unix.EBUSY}, {errors.Join(errors.New("x"), unix.ENOMEM), unix.ENOMEM},
		{fs.ErrNotExist, unix.ENOENT}, {fs.ErrPermission, unix.EPERM}, {ErrTooBig, unix.EMSGSIZE}, {errors.New("x"), unix.EIO},
	} {
		if got := Errno(c.err); got != c.want {
			t.Errorf("Errno(%v) = %v, want %v", c.err, got, c.want)
		}
	}
}

func TestText(t *testing.T) {
	var b [4]byte
	if !SetText(b[:], "abc") || Text(b[:]) != "abc" || !SetText(b[:], "wxyz") || Text(b[:]) != "wxyz" ||
		!SetText(b[:], "") || Text(b[:]) != "" || SetText(b[:], "vwxyz") {
		t.Error("fixed fields do not keep their text")
	}
}

// TestRoundTrip encodes and decodes every structure with every byte of its fields
// set.
func TestRoundTrip(t *testing.T) {
	for _, l := range layouts {
		v := reflect.New(reflect.TypeOf(l.v))
		fill(v.Elem(), 1)
		b := Append(nil, v.Interface())
		got := reflect.New(reflect.TypeOf(l.v))
		if err := decodeAny(b, got.Interface()); err != nil {
			t.Errorf("%s: %v", l.c, err)
		}
		if d := cmp.Diff(v.Elem().Interface(), got.Elem().Interface(), cmp.Exporter(func(reflect.Type) bool { return true })); d != "" {
			t.Errorf("%s:\n%s", l.c, d)
		}
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add(Command(CmdAllocPD, 4, AllocPD{}))
	f.Add(extended(CmdCreateQP, make([]byte, 64), nil, 5, 4))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseRequest(b)
		if err != nil {
			return
		}
		if v, err := Decode[CreateQP](r.Body); err == nil && !bytes.Equal(Append(nil, v)[:40], r.Body[:40]) {
			t.Errorf("decoded %+v", v)
		}
		if v, err := DecodeEx[ExCreateQP](r.Body, ExCreateQPMin); err == nil && len(r.Body) < ExCreateQPMin {
			t.Errorf("decoded %+v of %d bytes", v, len(r.Body))
		}
		if got, err := r.Reply(CreateQPResp{QPN: 1}, RxeCreateQPResp{}); err == nil && len(got) > r.Out+r.ProviderOut {
			t.Errorf("reply of %d bytes for %d and %d", len(got), r.Out, r.ProviderOut)
		}
	})
}

func FuzzParseAnswer(f *testing.F) {
	f.Add(Append(nil, answerHdr{Len: 8, NFD: 1}, uint64(0)), uint8(1))
	f.Add(Append(nil, answerHdr{Ret: -22}), uint8(0))
	f.Fuzz(func(t *testing.T, b []byte, n uint8) {
		resp, fds, err := parseAnswer(b, make([]int, n%(MaxFDs+1)))
		if err == nil && (len(resp) != len(b)-AnswerLen || len(fds) != int(n%(MaxFDs+1))) {
			t.Errorf("%d bytes, %d descriptors of %d, %d", len(resp), len(fds), len(b), n)
		}
		for _, d := range fds {
			if d.Kind == FDNumber && d.Arg > uint64(len(resp))-4 {
				t.Errorf("the number at %d of %d", d.Arg, len(resp))
			}
		}
	})
}
