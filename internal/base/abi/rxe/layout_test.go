package rxe

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// layout lists our offsets with their expressions in C.
var layout = []struct {
	c string
	n int
}{
	{"offsetof(struct rxe_queue_buf, log2_elem_size)", offLog2Elem},
	{"offsetof(struct rxe_queue_buf, index_mask)", offMask},
	{"offsetof(struct rxe_queue_buf, producer_index)", offProducer},
	{"offsetof(struct rxe_queue_buf, consumer_index)", offConsumer},
	{"offsetof(struct rxe_queue_buf, data)", offData},
	{"offsetof(struct rxe_send_wqe, wr.wr_id)", sendWRID},
	{"offsetof(struct rxe_send_wqe, wr.opcode)", sendOpcode},
	{"offsetof(struct rxe_send_wqe, wr.send_flags)", sendFlags},
	{"offsetof(struct rxe_send_wqe, wr.ex)", sendEx},
	{"offsetof(struct rxe_send_wqe, wr.wr)", 24},
	{"sizeof(struct rxe_send_wr)", 144},
	{"offsetof(struct rxe_send_wqe, iova)", sendIova},
	{"offsetof(struct rxe_send_wqe, dma)", sendDMA},
	{"offsetof(struct rxe_send_wqe, dma.sge)", sendData},
	{"offsetof(struct rxe_send_wqe, dma.inline_data)", sendData},
	{"sizeof(struct rxe_send_wqe)", sendData},
	{"offsetof(struct rxe_send_wqe, wr.wr.rdma.remote_addr)", rdmaAddr},
	{"offsetof(struct rxe_send_wqe, wr.wr.rdma.rkey)", rdmaRKey},
	{"offsetof(struct rxe_send_wqe, wr.wr.atomic.remote_addr)", atomicAddr},
	{"offsetof(struct rxe_send_wqe, wr.wr.atomic.compare_add)", atomicCompareAdd},
	{"offsetof(struct rxe_send_wqe, wr.wr.atomic.swap)", atomicSwap},
	{"offsetof(struct rxe_send_wqe, wr.wr.atomic.rkey)", atomicRKey},
	{"offsetof(struct rxe_send_wqe, wr.wr.ud.remote_qpn)", udQPN},
	{"offsetof(struct rxe_send_wqe, wr.wr.ud.remote_qkey)", udQKey},
	{"offsetof(struct rxe_send_wqe, wr.wr.ud.ah_num)", udAH},
	{"offsetof(struct rxe_send_wqe, wr.wr.mw.addr)", mwAddr},
	{"offsetof(struct rxe_send_wqe, wr.wr.mw.length)", mwLength},
	{"offsetof(struct rxe_send_wqe, wr.wr.mw.mr_lkey)", mwMRLKey},
	{"offsetof(struct rxe_send_wqe, wr.wr.mw.mw_rkey)", mwMWRKey},
	{"offsetof(struct rxe_send_wqe, wr.wr.mw.rkey)", mwRKey},
	{"offsetof(struct rxe_send_wqe, wr.wr.mw.access)", mwAccess},
	{"offsetof(struct rxe_send_wqe, wr.wr.mw.access) + 4", sendTaken},
	{"offsetof(struct rxe_recv_wqe, wr_id)", recvWRID},
	{"offsetof(struct rxe_recv_wqe, dma)", recvDMA},
	{"offsetof(struct rxe_recv_wqe, dma.sge)", recvData},
	{"sizeof(struct rxe_recv_wqe)", recvData},
	{"offsetof(struct rxe_dma_info, length)", dmaLength},
	{"offsetof(struct rxe_dma_info, resid)", dmaResid},
	{"offsetof(struct rxe_dma_info, num_sge)", dmaNumSGE},
	{"sizeof(struct rxe_dma_info)", dmaLen},
	{"sizeof(struct rxe_sge)", sgeLen},
	{"offsetof(struct rxe_sge, length)", 8},
	{"offsetof(struct rxe_sge, lkey)", 12},
	{"offsetof(struct ib_uverbs_wc, wr_id)", wcWRID},
	{"offsetof(struct ib_uverbs_wc, status)", wcStatus},
	{"offsetof(struct ib_uverbs_wc, opcode)", wcOpcode},
	{"offsetof(struct ib_uverbs_wc, vendor_err)", wcVendorErr},
	{"offsetof(struct ib_uverbs_wc, byte_len)", wcByteLen},
	{"offsetof(struct ib_uverbs_wc, ex)", wcEx},
	{"offsetof(struct ib_uverbs_wc, qp_num)", wcQPNum},
	{"offsetof(struct ib_uverbs_wc, src_qp)", wcSrcQP},
	{"offsetof(struct ib_uverbs_wc, wc_flags)", wcFlags},
	{"offsetof(struct ib_uverbs_wc, pkey_index)", wcPKeyIndex},
	{"offsetof(struct ib_uverbs_wc, slid)", wcSLID},
	{"offsetof(struct ib_uverbs_wc, sl)", wcSL},
	{"offsetof(struct ib_uverbs_wc, dlid_path_bits)", wcDLIDPath},
	{"offsetof(struct ib_uverbs_wc, port_num)", wcPort},
	{"sizeof(struct ib_uverbs_wc)", wcLen},
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

// TestLayoutGolden holds the most important numbers where there is no compiler.
func TestLayoutGolden(t *testing.T) {
	for name, n := range map[string][2]int{
		"send WQE": {sendData, 208}, "receive WQE": {recvData, 40}, "completion": {wcLen, 48},
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
	_, err = NewSendRing(mem[:len(mem)-1], s)
	bad("short", err)
	_, err = NewSendRing(memory(s.Size() + 8)[4:], s)
	bad("not aligned", err)
	_, err = NewRecvRing(nil, s)
	bad("none", err)
	for what, shape := range map[string]Shape{
		"mask": {Log2Elem: 9, Mask: 6}, "elements": {Log2Elem: 40, Mask: 1}, "huge": {Log2Elem: 20, Mask: 1<<20 - 1},
		"SGEs": {Log2Elem: 8, Mask: 3, MaxSGE: 4}, "inline": {Log2Elem: 8, Mask: 3, MaxInline: 49},
	} {
		_, err = NewSendRing(mem, shape)
		bad(what, err)
	}
	_, err = NewRecvRing(mem, Shape{Log2Elem: 6, Mask: 3, MaxSGE: 2})
	bad("receive SGEs", err)
	_, err = NewCQRing(mem, Shape{Log2Elem: 5, Mask: 3})
	bad("completions", err)
	_, err = NewCQConsumer(mem[:100])
	bad("client, short", err)
	_, err = NewSendProducer(mem, 2, 64) // header is zero
	bad("client, no ring", err)
	if _, err = NewSendRing(mem, s); err != nil {
		t.Fatal(err)
	}
	_, err = NewSendProducer(mem, 40, 64)
	bad("client, SGEs", err)
	_, err = NewRecvProducer(mem, 100)
	bad("client, receive SGEs", err)
}
