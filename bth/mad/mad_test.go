package mad_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"roced.io/roced/bth"
	"roced.io/roced/bth/mad"
	"roced.io/roced/internal/observe/pcapng"
)

// captured returns the MADs of a connection of rping between two Linux rxe NICs.
func captured(tb testing.TB) [][]byte {
	tb.Helper()
	fd, err := os.Open("../testdata/cm_rping.pcap")
	if err != nil {
		tb.Fatal(err)
	}
	defer fd.Close()
	r, err := pcapng.NewReader(fd)
	if err != nil {
		tb.Fatal(err)
	}
	var mads [][]byte
	var f pcapng.Frame
	for r.Next(&f) == nil {
		const body = 14 + 20 + 8
		var p bth.Packet
		if f.Data[23] == 17 && p.Decode(f.Data[body:]) == nil && p.DestQP == 1 {
			mads = append(mads, bytes.Clone(p.Payload))
		}
	}
	if len(mads) != 5 {
		tb.Fatalf("%d MADs", len(mads))
	}
	return mads
}

func gid4(d byte) [16]byte { return [16]byte{10: 0xff, 11: 0xff, 12: 198, 13: 18, 15: d} }

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// header decodes the header of m, whose attribute must be a, and writes it into a new MAD.
func header(t *testing.T, m []byte, a mad.Attr) []byte {
	t.Helper()
	var h mad.Header
	if err := h.Decode(m); err != nil {
		t.Fatal(err)
	}
	same(t, "header", h, mad.CMHeader(a, 0x00000002d78a82ed))
	out := bytes.Repeat([]byte{0xee}, mad.Len)
	h.Put(out)
	return out
}

const clientID, serverID = 0xed828ad7, 0xee828ad7

func TestCapturedREQ(t *testing.T) {
	m := captured(t)[0]
	out := header(t, m, mad.AttrREQ)
	var r mad.REQ
	r.Decode(m)
	private := r.PrivateData
	want := mad.REQ{
		LocalCommID: clientID, ServiceID: mad.IPServiceID(0x0106, 7471), LocalCAGUID: 0x0000_00ff_fe00_0001,
		LocalQPN: 0x11, ResponderResources: 1, InitiatorDepth: 1, RemoteCMTimeout: 20, Type: mad.RC,
		StartingPSN: 0x909dfc, LocalCMTimeout: 20, RetryCount: 7, PKey: 0xffff, PathMTU: 3, RNRRetry: 7,
		MaxCMRetries: 15,
		Primary: mad.Path{
			LocalLID: 0xffff, RemoteLID: 0xffff, LocalGID: gid4(1), RemoteGID: gid4(2),
			FlowLabel: 0xc2688, HopLimit: 64, LocalAckTimeout: 19,
		},
		PrivateData: private,
	}
	same(t, "REQ", r, want)
	var ip mad.IPCM
	rest, err := ip.Decode(private)
	if err != nil {
		t.Fatal(err)
	}
	wantIP := mad.IPCM{Src: netip.MustParseAddr("198.18.0.1"), Dst: netip.MustParseAddr("198.18.0.2"), SrcPort: 0xe787}
	if ip != wantIP || len(rest) != mad.REQPrivateLen-mad.IPCMLen {
		t.Errorf("IP CM header %+v and %d bytes, want %+v", ip, len(rest), wantIP)
	}
	r.PrivateData = ip.Append(nil)
	r.Put(out)
	same(t, "encoded", hex.Dump(out), hex.Dump(m))
}

func TestCapturedREP(t *testing.T) {
	m := captured(t)[1]
	out := header(t, m, mad.AttrREP)
	var r mad.REP
	r.Decode(m)
	same(t, "REP", r, mad.REP{
		LocalCommID: serverID, RemoteCommID: clientID, LocalQPN: 0x11, StartingPSN: 0x36c7a9,
		ResponderResources: 1, InitiatorDepth: 1, TargetAckDelay: 15, RNRRetry: 7,
		LocalCAGUID: 0x0000_00ff_fe00_0002, PrivateData: make([]byte, mad.REPPrivateLen),
	})
	r.PrivateData = nil
	r.Put(out)
	same(t, "encoded", hex.Dump(out), hex.Dump(m))
}

func TestCapturedNotices(t *testing.T) {
	for i, c := range []struct {
		attr    mad.Attr
		private int
		want    mad.Notice
	}{
		{mad.AttrRTU, mad.RTUPrivateLen, mad.Notice{LocalCommID: clientID, RemoteCommID: serverID}},
		{mad.AttrDREQ, mad.DREQPrivateLen, mad.Notice{LocalCommID: clientID, RemoteCommID: serverID, RemoteQPN: 0x11}},
		{mad.AttrDREP, mad.DREPPrivateLen, mad.Notice{LocalCommID: serverID, RemoteCommID: clientID}},
	} {
		m := captured(t)[2+i]
		out := header(t, m, c.attr)
		var n mad.Notice
		n.Decode(c.attr, m)
		c.want.PrivateData = make([]byte, c.private)
		same(t, "notice", n, c.want)
		n.PrivateData = nil
		n.Put(c.attr, out)
		same(t, "encoded", hex.Dump(out), hex.Dump(m))
	}
}

// TestLayouts compares messages that the capture lacks with bytes composed by hand from the tables of the
// specification.
func TestLayouts(t *testing.T) {
	for _, c := range []struct {
		name string
		put  func(m []byte)
		want string // from the end of the header; zeros follow
	}{
		{"MRA", (&mad.MRA{LocalCommID: 1, RemoteCommID: 2, Answers: mad.MsgREP, ServiceTimeout: 24, PrivateData: []byte{9}}).Put,
			"00000001 00000002 40 c0 09"},
		{"REJ", (&mad.REJ{LocalCommID: 1, RemoteCommID: 2, Answers: mad.MsgOther, Reason: 0x0102, ARI: []byte{7, 8}}).Put,
			"00000001 00000002 80 04 0102 0708"},
		{"SIDR_REQ", (&mad.SIDRREQ{RequestID: 1, PKey: 0xffff, ServiceID: 0x0102030405060708, PrivateData: []byte{9}}).Put,
			"00000001 ffff 0000 0102030405060708 09"},
		{"SIDR_REP", (&mad.SIDRREP{RequestID: 1, Status: 2, QPN: 0x030405, ServiceID: 0x0102030405060708, QKey: 0x11223344, Info: []byte{5}}).Put,
			"00000001 02 01 0000 030405 00 0102030405060708 11223344 05"},
		{"APR", (&mad.APR{LocalCommID: 1, RemoteCommID: 2, Status: mad.APUnsupported}).Put,
			"00000001 00000002 00 02"},
		{"ClassPortInfo", (&mad.ClassPortInfo{BaseVersion: 1, ClassVersion: 2, Capabilities: 0x2200, RespTime: 18}).Put,
			"01 02 2200 00000012"},
	} {
		want := make([]byte, mad.Len-mad.HeaderLen)
		b, err := hex.DecodeString(string(bytes.ReplaceAll([]byte(c.want), []byte(" "), nil)))
		if err != nil {
			t.Fatal(c.name, err)
		}
		copy(want, b)
		m := bytes.Repeat([]byte{0xee}, mad.Len)
		c.put(m)
		same(t, c.name, hex.Dump(m[mad.HeaderLen:]), hex.Dump(want))
	}
}

func TestIPCMRefused(t *testing.T) {
	good := (&mad.IPCM{Src: netip.MustParseAddr("fd00::1"), Dst: netip.MustParseAddr("fd00::2"), SrcPort: 5}).Append(nil)
	var h mad.IPCM
	if _, err := h.Decode(good); err != nil || h.Src != netip.MustParseAddr("fd00::1") || h.SrcPort != 5 {
		t.Fatalf("%+v %v", h, err)
	}
	for _, c := range []struct{ at, value byte }{{0, 0x10}, {1, 0x50}, {1, 0}} {
		bad := bytes.Clone(good)
		bad[c.at] = c.value
		if _, err := h.Decode(bad); !errors.Is(err, mad.ErrIPCM) {
			t.Errorf("byte %d = %#x: %v", c.at, c.value, err)
		}
	}
	if _, err := h.Decode(good[:mad.IPCMLen-1]); !errors.Is(err, mad.ErrIPCM) {
		t.Errorf("short: %v", err)
	}
}

func TestHeaderRefused(t *testing.T) {
	var h mad.Header
	m := captured(t)[0]
	for _, b := range [][]byte{nil, m[:mad.Len-1], append(bytes.Clone(m), 0)} {
		if err := h.Decode(b); !errors.Is(err, mad.ErrLength) {
			t.Errorf("%d bytes: %v", len(b), err)
		}
	}
	m[0] = 2
	if err := h.Decode(m); !errors.Is(err, mad.ErrVersion) {
		t.Errorf("version: %v", err)
	}
}

func TestNoAllocations(t *testing.T) {
	mads := captured(t)
	out := make([]byte, mad.Len)
	if n := testing.AllocsPerRun(100, func() {
		for _, m := range mads {
			recode(m, out)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// recode decodes m as the message that its header names, and encodes it into out.
func recode(m, out []byte) bool {
	var h mad.Header
	if h.Decode(m) != nil {
		return false
	}
	h.Put(out)
	switch h.Attr {
	case mad.AttrREQ:
		var r mad.REQ
		r.Decode(m)
		r.Put(out)
	case mad.AttrREP:
		var r mad.REP
		r.Decode(m)
		r.Put(out)
	case mad.AttrMRA:
		var r mad.MRA
		r.Decode(m)
		r.Put(out)
	case mad.AttrREJ:
		var r mad.REJ
		r.Decode(m)
		r.Put(out)
	case mad.AttrSIDRREQ:
		var r mad.SIDRREQ
		r.Decode(m)
		r.Put(out)
	case mad.AttrSIDRREP:
		var r mad.SIDRREP
		r.Decode(m)
		r.Put(out)
	case mad.AttrAPR:
		var r mad.APR
		r.Decode(m)
		r.Put(out)
	case mad.AttrRTU, mad.AttrDREQ, mad.AttrDREP:
		var n mad.Notice
		n.Decode(h.Attr, m)
		n.Put(h.Attr, out)
	default:
		return false
	}
	return true
}

// FuzzRecode: decoding and encoding an encoded message returns the same bytes. Only reserved bits are lost.
func FuzzRecode(f *testing.F) {
	for _, m := range captured(f) {
		f.Add(m)
	}
	for a := mad.AttrREQ; a <= mad.AttrAPR; a++ {
		m := bytes.Repeat([]byte{0xff}, mad.Len)
		h := mad.CMHeader(a, 1)
		h.Put(m)
		f.Add(m)
	}
	f.Fuzz(func(t *testing.T, m []byte) {
		once, twice := make([]byte, mad.Len), make([]byte, mad.Len)
		if !recode(m, once) {
			return
		}
		if !recode(once, twice) || !bytes.Equal(once, twice) {
			t.Errorf("%x\nbecomes %x\nand then %x", m, once, twice)
		}
	})
}
