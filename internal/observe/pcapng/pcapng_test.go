package pcapng_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"roced.io/roced/internal/observe/pcapng"
)

// readAll reads r to its end or its first error.
func readAll(r io.Reader) (frames []pcapng.Frame, err error) {
	rd, err := pcapng.NewReader(r)
	if err != nil {
		return nil, err
	}
	for {
		var f pcapng.Frame
		if err := rd.Next(&f); err != nil {
			if err == io.EOF {
				err = nil
			}
			return frames, err
		}
		f.Data = append([]byte{}, f.Data...)
		frames = append(frames, f)
	}
}

func newWriter(tb testing.TB, w io.Writer, snap int) *pcapng.Writer {
	tb.Helper()
	wr, err := pcapng.NewWriter(w, "roced test")
	if err != nil {
		tb.Fatal(err)
	}
	for _, name := range []string{"rocep0", "p1"} {
		if _, err := wr.AddInterface(pcapng.Interface{Name: name, Link: pcapng.LinkEthernet, SnapLen: snap}); err != nil {
			tb.Fatal(err)
		}
	}
	return wr
}

func TestWriterReader(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var file bytes.Buffer
		snap := rapid.SampledFrom([]int{0, 40}).Draw(rt, "snap")
		w := newWriter(t, &file, snap)
		var want []pcapng.Frame
		for range rapid.IntRange(0, 5).Draw(rt, "frames") {
			parts := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 30), 0, 4).Draw(rt, "parts")
			data := append([]byte{}, bytes.Join(parts, nil)...)
			f := pcapng.Frame{
				Data: data, Length: len(data), Link: pcapng.LinkEthernet,
				Time:      rapid.Int64Min(0).Draw(rt, "time"),
				Interface: rapid.IntRange(0, 1).Draw(rt, "if"),
				Direction: pcapng.Direction(rapid.IntRange(0, 2).Draw(rt, "dir")),
				Comment:   rapid.StringN(0, 20, -1).Draw(rt, "comment"),
			}
			if snap > 0 {
				f.Data = data[:min(len(data), snap)]
			}
			want = append(want, f)
			info := pcapng.PacketInfo{Interface: f.Interface, Time: f.Time, Direction: f.Direction, Comment: f.Comment}
			if err := w.WritePacket(info, parts...); err != nil {
				rt.Fatal(err)
			}
		}
		got, err := readAll(&file)
		if err != nil {
			rt.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			rt.Fatal(d)
		}
	})
}

func TestWriterRefusesUnknownInterface(t *testing.T) {
	w := newWriter(t, io.Discard, 0)
	for _, i := range []int{-1, 2} {
		if w.WritePacket(pcapng.PacketInfo{Interface: i}) == nil {
			t.Errorf("interface %d", i)
		}
	}
}

func TestLongCommentIsCut(t *testing.T) {
	var file bytes.Buffer
	w := newWriter(t, &file, 0)
	if err := w.WritePacket(pcapng.PacketInfo{Comment: strings.Repeat("x", 70000)}, []byte("frame")); err != nil {
		t.Fatal(err)
	}
	got, err := readAll(&file)
	if err != nil || len(got) != 1 || len(got[0].Comment) != 0xfffc {
		t.Errorf("%d frames, %v", len(got), err)
	}
}

func TestWritePacketDoesNotAllocate(t *testing.T) {
	w := newWriter(t, io.Discard, 0)
	header, payload := make([]byte, 66), make([]byte, 4096)
	info := pcapng.PacketInfo{Time: 1, Direction: pcapng.Outbound, Comment: "dropped: receive queue empty"}
	if n := testing.AllocsPerRun(100, func() {
		if err := w.WritePacket(info, header, payload); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestTsharkReadsIt reads the Writer's output with Wireshark's tshark, if installed.
func TestTsharkReadsIt(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	path := filepath.Join(t.TempDir(), "x.pcapng")
	fd, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := newWriter(t, fd, 0)
	info := pcapng.PacketInfo{Interface: 1, Time: 1700000000123456789, Direction: pcapng.Outbound, Comment: "why: dropped"}
	if err := w.WritePacket(info, make([]byte, 14), make([]byte, 47)); err != nil {
		t.Fatal(err)
	}
	if err := fd.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(tshark, "-r", path, "-T", "fields", "-e", "frame.time_epoch", "-e", "frame.len",
		"-e", "frame.interface_name", "-e", "frame.comment", "-e", "frame.packet_flags_direction").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.TrimSpace(string(out)), "1700000000.123456789\t61\tp1\twhy: dropped\t0x00000002"; got != want {
		t.Errorf("tshark: %q, want %q", got, want)
	}
}

// block builds a pcapng block.
func block(order binary.AppendByteOrder, kind uint32, body ...byte) []byte {
	n := uint32(len(body) + 12)
	b := order.AppendUint32(order.AppendUint32(nil, kind), n)
	return order.AppendUint32(append(b, body...), n)
}

func section(order binary.AppendByteOrder) []byte {
	body := order.AppendUint32(nil, 0x1a2b3c4d)
	return block(order, 0x0a0d0d0a, append(body, 0, 1, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255)...)
}

// ifDesc builds an interface with the options if_tsresol and if_tsoffset.
func ifDesc(order binary.AppendByteOrder, snap uint32, tsresol byte, offset uint64) []byte {
	b := order.AppendUint32(order.AppendUint16(order.AppendUint16(nil, 1), 0), snap)
	b = append(order.AppendUint16(order.AppendUint16(b, 9), 1), tsresol, 0, 0, 0)
	b = order.AppendUint64(order.AppendUint16(order.AppendUint16(b, 14), 8), offset)
	return block(order, 1, append(b, 0, 0, 0, 0)...)
}

func enhanced(order binary.AppendByteOrder, ts uint64, data string) []byte {
	b := order.AppendUint32(order.AppendUint32(order.AppendUint32(nil, 0), uint32(ts>>32)), uint32(ts))
	b = order.AppendUint32(order.AppendUint32(b, uint32(len(data))), uint32(len(data)))
	b = append(b, data...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return block(order, 6, b...)
}

func TestReaderVariants(t *testing.T) {
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		simple := block(order, 3, append(order.AppendUint32(nil, 6), "abcdef\x00\x00"...)...)
		file := bytes.Join([][]byte{
			section(order), ifDesc(order, 4, 0x83, 100), // 1/8 s
			block(order, 0x80000001, make([]byte, 2<<20)...), // large, of unknown type
			enhanced(order, 12, "xyz"), simple,
			section(order), ifDesc(order, 0, 3, 0), enhanced(order, 5, ""),
		}, nil)
		got, err := readAll(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		want := []pcapng.Frame{
			{Data: []byte("xyz"), Length: 3, Time: 101_500_000_000, Link: 1},
			{Data: []byte("abcd"), Length: 6, Link: 1},
			{Data: []byte{}, Time: 5_000_000, Link: 1},
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%v: %s", order, d)
		}
	}
}

func TestClassicVariants(t *testing.T) {
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		for magic, scale := range map[uint32]int64{0xa1b2c3d4: 1000, 0xa1b23c4d: 1} {
			b := order.AppendUint32(nil, magic)
			b = append(b, make([]byte, 16)...)
			b = order.AppendUint32(b, 101)
			for _, v := range []uint32{1700000000, 999999, 3, 1500} {
				b = order.AppendUint32(b, v)
			}
			got, err := readAll(bytes.NewReader(append(b, "abc"...)))
			want := []pcapng.Frame{{Data: []byte("abc"), Length: 1500, Time: 1700000000e9 + 999999*scale, Link: 101}}
			if d := cmp.Diff(want, got); d != "" || err != nil {
				t.Errorf("%v %x: %v %s", order, magic, err, d)
			}
		}
	}
}

func TestDamagedFiles(t *testing.T) {
	le := binary.LittleEndian
	head := bytes.Join([][]byte{section(le), ifDesc(le, 0, 9, 0), enhanced(le, 0, "good")}, nil)
	long := enhanced(le, 0, "data")
	le.PutUint32(long[20:], 5)
	lengths := enhanced(le, 0, "data")
	lengths[len(lengths)-4]++
	other := enhanced(le, 0, "data")
	other[8] = 1
	option := enhanced(le, 0, "")
	option = block(le, 6, append(option[8:28], 1, 0, 99, 0)...)
	for name, c := range map[string]struct {
		tail []byte
		want error
	}{
		"half a header":    {[]byte{6, 0, 0}, pcapng.ErrTruncated},
		"half a block":     {enhanced(le, 0, "data")[:30], pcapng.ErrTruncated},
		"half a section":   {section(le)[:20], pcapng.ErrTruncated},
		"half a skip":      {block(le, 0x99, 0, 0, 0, 0)[:13], pcapng.ErrTruncated},
		"length 8":         {[]byte{6, 0, 0, 0, 8, 0, 0, 0}, pcapng.ErrFormat},
		"length 4 GB":      {[]byte{6, 0, 0, 0, 0xfc, 255, 255, 255}, pcapng.ErrFormat},
		"captured length":  {long, pcapng.ErrFormat},
		"two lengths":      {lengths, pcapng.ErrFormat},
		"no interface":     {other, pcapng.ErrFormat},
		"option too long":  {option, pcapng.ErrFormat},
		"byte order":       {append([]byte("\n\r\r\n\x1c\x00\x00\x00"), 1, 2, 3, 4), pcapng.ErrFormat},
		"short section":    {append([]byte("\n\r\r\n\x0c\x00\x00\x00"), 0x4d, 0x3c, 0x2b, 0x1a), pcapng.ErrFormat},
		"short interface":  {block(le, 1, 1, 0, 0, 0), pcapng.ErrFormat},
		"short packet":     {block(le, 6, 1, 0, 0, 0), pcapng.ErrFormat},
		"empty simple":     {append(section(le), block(le, 3)...), pcapng.ErrFormat},
		"resolution 10^20": {ifDesc(le, 0, 20, 0), pcapng.ErrFormat},
		"resolution 2^64":  {ifDesc(le, 0, 0x80+64, 0), pcapng.ErrFormat},
	} {
		frames, err := readAll(bytes.NewReader(append(bytes.Clone(head), c.tail...)))
		var fe *pcapng.FileError
		if !errors.As(err, &fe) || !errors.Is(err, c.want) || len(frames) != 1 {
			t.Errorf("%s: %d frames, %v", name, len(frames), err)
			continue
		}
		at := int64(len(head))
		if name == "empty simple" {
			at += int64(len(section(le)))
		}
		if fe.Packet != 2 || fe.Offset != at {
			t.Errorf("%s: %v, want packet 2 at byte %d", name, err, at)
		}
	}
}

// TestManyOptions reads a block whose comments exceed a frame by far.
func TestManyOptions(t *testing.T) {
	b := append(enhanced(binary.LittleEndian, 0, "")[8:28], bytes.Repeat([]byte{1, 0, 1, 0, 'c', 0, 0, 0}, 1<<20)...)
	file := bytes.Join([][]byte{section(binary.LittleEndian), ifDesc(binary.LittleEndian, 0, 9, 0), block(binary.LittleEndian, 6, b...)}, nil)
	frames, err := readAll(bytes.NewReader(file))
	if err != nil || len(frames) != 1 || len(frames[0].Comment) != 3<<20-2 {
		t.Errorf("%d frames, %v", len(frames), err)
	}
}

func TestNotACapture(t *testing.T) {
	for _, s := range []string{"", "abc", "neither of the formats at all", "\xd4\xc3\xb2\xa1 short"} {
		if _, err := readAll(strings.NewReader(s)); !errors.Is(err, pcapng.ErrFormat) {
			t.Errorf("%q: %v", s, err)
		}
	}
	b := append([]byte("\xd4\xc3\xb2\xa1"), make([]byte, 20)...)
	_, err := readAll(bytes.NewReader(append(b, make([]byte, 7)...)))
	if err == nil || err.Error() != "packet 1 at byte 24: the file ends inside a block" {
		t.Errorf("half a record: %v", err)
	}
	huge := append(b, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0)
	if _, err = readAll(bytes.NewReader(huge)); !errors.Is(err, pcapng.ErrFormat) {
		t.Errorf("captured length of 4 GB: %v", err)
	}
}

func FuzzReader(f *testing.F) {
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		f.Add(bytes.Join([][]byte{section(order), ifDesc(order, 9, 6, 1), enhanced(order, 1, "hello")}, nil))
	}
	var file bytes.Buffer
	w := newWriter(f, &file, 0)
	if err := w.WritePacket(pcapng.PacketInfo{Comment: "c", Direction: pcapng.Inbound}, []byte("x")); err != nil {
		f.Fatal(err)
	}
	f.Add(file.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		frames, err := readAll(bytes.NewReader(b))
		var fe *pcapng.FileError
		if err != nil && !errors.As(err, &fe) && !errors.Is(err, pcapng.ErrFormat) {
			t.Fatal(err)
		}
		for _, fr := range frames {
			if len(fr.Data) > len(b) {
				t.Fatalf("frame of %d bytes in a file of %d", len(fr.Data), len(b))
			}
		}
	})
}

func BenchmarkWritePacket(b *testing.B) {
	w := newWriter(b, io.Discard, 0)
	data := make([]byte, 1082)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if err := w.WritePacket(pcapng.PacketInfo{Direction: pcapng.Inbound}, data); err != nil {
			b.Fatal(err)
		}
	}
}
