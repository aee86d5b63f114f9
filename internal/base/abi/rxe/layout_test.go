package rxe

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// Offsets in SendWQE.
const (
	union = 24
	av    = unsafe.Offsetof(SendWQE{}.AV)
)

// layout lists our offsets with their expressions in C.
var layout = []struct {
	c string
	n uintptr
}{
	{"offsetof(struct rxe_queue_buf, log2_elem_size)", offLog2Elem},
	{"offsetof(struct rxe_queue_buf, index_mask)", offMask},
	{"offsetof(struct rxe_queue_buf, producer_index)", offProducer},
	{"offsetof(struct rxe_queue_buf, consumer_index)", offConsumer},
	{"offsetof(struct rxe_queue_buf, data)", offData},
	{"offsetof(struct rxe_send_wqe, wr.wr_id)", unsafe.Offsetof(SendWR{}.WRID)},
	{"offsetof(struct rxe_send_wqe, wr.opcode)", unsafe.Offsetof(SendWR{}.Opcode)},
	{"offsetof(struct rxe_send_wqe, wr.send_flags)", unsafe.Offsetof(SendWR{}.Flags)},
	{"offsetof(struct rxe_send_wqe, wr.ex)", unsafe.Offsetof(SendWR{}.Ex)},
	{"offsetof(struct rxe_send_wqe, wr.wr)", union},
	{"sizeof(struct rxe_send_wr)", 144},
	{"offsetof(struct rxe_send_wqe, iova)", unsafe.Offsetof(SendWQE{}.Iova)},
	{"offsetof(struct rxe_send_wqe, dma)", unsafe.Offsetof(SendWQE{}.DMA)},
	{"offsetof(struct rxe_send_wqe, dma.sge)", uintptr(sendLen)},
	{"offsetof(struct rxe_send_wqe, dma.inline_data)", uintptr(sendLen)},
	{"sizeof(struct rxe_send_wqe)", uintptr(sendLen)},
	{"offsetof(struct rxe_send_wqe, wr.wr.rdma.remote_addr)", union + unsafe.Offsetof(RDMA{}.Addr)},
	{"offsetof(struct rxe_send_wqe, wr.wr.rdma.rkey)", union + unsafe.Offsetof(RDMA{}.RKey)},
	{"offsetof(struct rxe_send_wqe, wr.wr.atomic.remote_addr)", union + unsafe.Offsetof(Atomic{}.Addr)},
	{"offsetof(struct rxe_send_wqe, wr.wr.atomic.compare_add)", union + unsafe.Offsetof(Atomic{}.CompareAdd)},
	{"offsetof(struct rxe_send_wqe, wr.wr.atomic.swap)", union + unsafe.Offsetof(Atomic{}.Swap)},
	{"offsetof(struct rxe_send_wqe, wr.wr.atomic.rkey)", union + unsafe.Offsetof(Atomic{}.RKey)},
	{"offsetof(struct rxe_send_wqe, wr.wr.ud.remote_qpn)", union + unsafe.Offsetof(UD{}.QPN)},
	{"offsetof(struct rxe_send_wqe, wr.wr.ud.remote_qkey)", union + unsafe.Offsetof(UD{}.QKey)},
	{"offsetof(struct rxe_send_wqe, wr.wr.ud.ah_num)", union + unsafe.Offsetof(UD{}.AH)},
	{"offsetof(struct rxe_send_wqe, wr.wr.mw.addr)", union + unsafe.Offsetof(BindMW{}.Addr)},
	{"offsetof(struct rxe_send_wqe, wr.wr.mw.length)", union + unsafe.Offsetof(BindMW{}.Length)},
	{"offsetof(struct rxe_send_wqe, wr.wr.mw.mr_lkey)", union + unsafe.Offsetof(BindMW{}.MRLKey)},
	{"offsetof(struct rxe_send_wqe, wr.wr.mw.mw_rkey)", union + unsafe.Offsetof(BindMW{}.MWRKey)},
	{"offsetof(struct rxe_send_wqe, wr.wr.mw.rkey)", union + unsafe.Offsetof(BindMW{}.RKey)},
	{"offsetof(struct rxe_send_wqe, wr.wr.mw.access)", union + unsafe.Offsetof(BindMW{}.Access)},
	{"offsetof(struct rxe_send_wqe, wr.wr.mw.access) + 4", unsafe.Sizeof(SendWR{})},
	{"offsetof(struct rxe_send_wqe, wr.wr.ud.av.grh.dgid)", av + unsafe.Offsetof(AddressVector{}.DGID)},
	{"offsetof(struct rxe_send_wqe, wr.wr.ud.av.grh.flow_label)", av + unsafe.Offsetof(AddressVector{}.FlowLabel)},
	{"offsetof(struct rxe_send_wqe, wr.wr.ud.av.grh.sgid_index)", av + unsafe.Offsetof(AddressVector{}.SGIDIndex)},
	{"offsetof(struct rxe_send_wqe, wr.wr.ud.av.grh.hop_limit)", av + unsafe.Offsetof(AddressVector{}.HopLimit)},
	{"offsetof(struct rxe_send_wqe, wr.wr.ud.av.grh.traffic_class)", av + unsafe.Offsetof(AddressVector{}.TrafficClass)},
	{"offsetof(struct rxe_recv_wqe, wr_id)", unsafe.Offsetof(RecvWQE{}.WRID)},
	{"offsetof(struct rxe_recv_wqe, dma)", unsafe.Offsetof(RecvWQE{}.DMA)},
	{"offsetof(struct rxe_recv_wqe, dma.sge)", uintptr(recvLen)},
	{"sizeof(struct rxe_recv_wqe)", uintptr(recvLen)},
	{"offsetof(struct rxe_dma_info, length)", unsafe.Offsetof(DMA{}.Length)},
	{"offsetof(struct rxe_dma_info, resid)", unsafe.Offsetof(DMA{}.Resid)},
	{"offsetof(struct rxe_dma_info, num_sge)", unsafe.Offsetof(DMA{}.NumSGE)},
	{"sizeof(struct rxe_dma_info)", unsafe.Sizeof(DMA{})},
	{"sizeof(struct rxe_sge)", uintptr(sgeLen)},
	{"offsetof(struct rxe_sge, length)", unsafe.Offsetof(SGE{}.Length)},
	{"offsetof(struct rxe_sge, lkey)", unsafe.Offsetof(SGE{}.LKey)},
	{"offsetof(struct ib_uverbs_wc, wr_id)", unsafe.Offsetof(WC{}.WRID)},
	{"offsetof(struct ib_uverbs_wc, status)", unsafe.Offsetof(WC{}.Status)},
	{"offsetof(struct ib_uverbs_wc, opcode)", unsafe.Offsetof(WC{}.Opcode)},
	{"offsetof(struct ib_uverbs_wc, vendor_err)", unsafe.Offsetof(WC{}.VendorErr)},
	{"offsetof(struct ib_uverbs_wc, byte_len)", unsafe.Offsetof(WC{}.ByteLen)},
	{"offsetof(struct ib_uverbs_wc, ex)", unsafe.Offsetof(WC{}.Ex)},
	{"offsetof(struct ib_uverbs_wc, qp_num)", unsafe.Offsetof(WC{}.QPN)},
	{"offsetof(struct ib_uverbs_wc, src_qp)", unsafe.Offsetof(WC{}.SrcQP)},
	{"offsetof(struct ib_uverbs_wc, wc_flags)", unsafe.Offsetof(WC{}.Flags)},
	{"offsetof(struct ib_uverbs_wc, pkey_index)", unsafe.Offsetof(WC{}.PKeyIndex)},
	{"offsetof(struct ib_uverbs_wc, slid)", unsafe.Offsetof(WC{}.SLID)},
	{"offsetof(struct ib_uverbs_wc, sl)", unsafe.Offsetof(WC{}.SL)},
	{"offsetof(struct ib_uverbs_wc, dlid_path_bits)", unsafe.Offsetof(WC{}.DLIDPath)},
	{"offsetof(struct ib_uverbs_wc, port_num)", unsafe.Offsetof(WC{}.Port)},
	{"sizeof(struct ib_uverbs_wc)", uintptr(wcLen)},
}

func TestLayoutInC(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	src := "#include <stdio.h>\n#include <stddef.h>\n#include <rdma/ib_user_verbs.h>\n" +
		"#include <rdma/rdma_user_rxe.h>\nint main(void)\n{\n"
	want := ""
	for _, l := range layout {
		src += fmt.Sprintf("printf(\"%s %%zu\\n\", %s);\n", l.c, l.c)
		want += fmt.Sprintf("%s %d\n", l.c, l.n)
	}
	dir := t.TempDir()
	file, exe := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	if err := os.WriteFile(file, []byte(src+"return 0;\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-o", exe, file).CombinedOutput(); err != nil {
		if strings.Contains(string(out), "rdma/") && strings.Contains(string(out), "No such file") {
			t.Skip("no RDMA headers")
		}
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := exec.Command(exe).Output()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(got), want); d != "" {
		t.Errorf("C (-) and Go (+):\n%s", d)
	}
}

// TestLayoutGolden checks the most important numbers without a C compiler.
func TestLayoutGolden(t *testing.T) {
	for name, n := range map[string][2]int{
		"send WQE": {int(sendLen), 208}, "receive WQE": {int(recvLen), 40}, "completion": {int(wcLen), 48},
		"ring header": {offData, 384}, "producer": {offProducer, 128}, "consumer": {offConsumer, 256},
	} {
		if n[0] != n[1] {
			t.Errorf("%s: %d, want %d", name, n[0], n[1])
		}
	}
}

func TestShapes(t *testing.T) {
	shape := func(s Shape, err error) Shape {
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, c := range []struct {
		name       string
		s          Shape
		elem, held uint32
		inline     uint32
		size       int
	}{
		{"send 1 1 0", shape(SendShape(1, 1, 0)), 256, 1, 16, 4096},
		{"send 16 4 100", shape(SendShape(16, 4, 100)), 512, 31, 100, 20480},
		{"send 15 3 48", shape(SendShape(15, 3, 48)), 256, 15, 48, 8192},
		{"send 15 4 0", shape(SendShape(15, 4, 0)), 512, 15, 64, 12288},
		{"recv 0 0", shape(RecvShape(0, 0)), 64, 0, 0, 4096},
		{"recv 64 1", shape(RecvShape(64, 1)), 64, 127, 0, 12288},
		{"recv 64 2", shape(RecvShape(64, 2)), 128, 127, 0, 20480},
		{"cq 100", shape(CQShape(100)), 64, 127, 0, 12288},
		{"cq 127", shape(CQShape(127)), 64, 127, 0, 12288},
		{"cq 128", shape(CQShape(128)), 64, 255, 0, 20480},
	} {
		if 1<<c.s.Log2Elem != c.elem || c.s.Entries() != c.held || c.s.MaxInline != c.inline || c.s.Size() != c.size {
			t.Errorf("%s: elements of %d bytes, holds %d, inline %d, %d bytes", c.name, 1<<c.s.Log2Elem, c.s.Entries(), c.s.MaxInline, c.s.Size())
		}
	}
}

func TestShapesTooLarge(t *testing.T) {
	const big = 1<<32 - 1
	for name, f := range map[string]func() (Shape, error){
		"work requests": func() (Shape, error) { return SendShape(big, 1, 0) },
		"SGEs":          func() (Shape, error) { return SendShape(1, big, 0) },
		"inline":        func() (Shape, error) { return SendShape(1, 1, big) },
		"receives":      func() (Shape, error) { return RecvShape(1<<25, 1) },
		"completions":   func() (Shape, error) { return CQShape(1 << 24) },
	} {
		if s, err := f(); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// memory returns n bytes, aligned to 8.
func memory(n int) []byte {
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}

func TestMemoryIsChecked(t *testing.T) {
	s, err := SendShape(4, 2, 64)
	if err != nil {
		t.Fatal(err)
	}
	mem := memory(s.Size())
	bad := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, ErrMemory) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = CreateSend(mem[:len(mem)-1], s)
	bad("short", err)
	_, err = CreateSend(memory(s.Size() + 8)[4:], s)
	bad("not aligned", err)
	_, err = CreateRecv(nil, s)
	bad("none", err)
	for what, shape := range map[string]Shape{
		"mask": {Log2Elem: 9, Mask: 6}, "elements": {Log2Elem: 40, Mask: 1}, "huge": {Log2Elem: 20, Mask: 1<<20 - 1},
		"SGEs": {Log2Elem: 8, Mask: 3, MaxSGE: 4}, "inline": {Log2Elem: 8, Mask: 3, MaxInline: 49},
	} {
		_, err = CreateSend(mem, shape)
		bad(what, err)
	}
	_, err = CreateRecv(mem, Shape{Log2Elem: 6, Mask: 3, MaxSGE: 2})
	bad("receive SGEs", err)
	_, err = CreateCQ(mem, Shape{Log2Elem: 5, Mask: 3})
	bad("completions", err)
	_, err = NewCQConsumer(mem[:100])
	bad("client, short", err)
	_, err = NewSendProducer(mem, 2, 64) // header is zero
	bad("client, no ring", err)
	if _, err = CreateSend(mem, s); err != nil {
		t.Fatal(err)
	}
	_, err = NewSendProducer(mem, 40, 64)
	bad("client, SGEs", err)
	_, err = NewRecvProducer(mem, 100)
	bad("client, receive SGEs", err)
}
