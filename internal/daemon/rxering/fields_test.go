package rxering

import (
	"bytes"
	"debug/dwarf"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"roced.io/roced/internal/base/abi/rxe"
	"roced.io/roced/qp"
)

// Operations that a field of a work request concerns.
var (
	all     = []qp.WROpcode{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, qp.WRFlush, qp.WRAtomicWrite}
	rdma    = []qp.WROpcode{qp.WRWrite, qp.WRWriteImm, qp.WRRead, qp.WRAtomicWrite}
	atomics = []qp.WROpcode{qp.WRCmpSwap, qp.WRFetchAdd}
	sends   = []qp.WROpcode{qp.WRSend, qp.WRSendImm}
	data    = []qp.WROpcode{qp.WRWrite, qp.WRWriteImm, qp.WRSend, qp.WRSendImm, qp.WRRead, qp.WRCmpSwap, qp.WRFetchAdd, qp.WRSendWithInv}
	bind    = []qp.WROpcode{qp.WRBindMW}
	flush   = []qp.WROpcode{qp.WRFlush}
	keys    = []qp.WROpcode{qp.WRSendWithInv, qp.WRLocalInv}
	numbers = []qp.WROpcode{qp.WRSendImm, qp.WRWriteImm}
)

// field is a field of a structure in a ring, or some of its bits.
type field struct {
	name   string
	ops    []qp.WROpcode
	bits   uint64 // that the test changes; 0: the lowest
	inline bool   // in requests with inline data
	// effect has the fields of qp.SendWQE, qp.RecvWQE or qp.CQE that follow it; none for an ignored field, which has a reason.
	effect string
	why    string
}

// requestFields are the fields of struct rxe_send_wqe. The comments on the right say what writes them.
var requestFields = []field{
	{name: "wr.wr_id", ops: all, effect: "WRID"},    // all
	{name: "wr.reserved", ops: all, why: "padding"}, // none; num_sge of old kernels
	{name: "wr.opcode", ops: sends, bits: 1, effect: "Opcode"},
	{name: "wr.opcode", ops: sends, bits: 1 << 9, effect: "Opcode"}, // invalid, which the queue pair refuses
	{name: "wr.send_flags", ops: all, bits: uint64(qp.SendFence | qp.SendSignaled | qp.SendSolicited), effect: "Flags"},
	{name: "wr.send_flags", ops: data, bits: uint64(qp.SendInline), effect: "Flags SGEs Inline"}, // post_send; of builders hidden by preload/provider.c
	{name: "wr.send_flags", ops: all, bits: 1 << 4, why: "IBV_SEND_IP_CSUM requests checksums that the device does not announce; rxe ignores it, too"},
	{name: "wr.send_flags", ops: all, bits: 0xffffffe0, why: "undefined"},
	{name: "wr.ex.imm_data", ops: numbers, effect: "Imm"},
	{name: "wr.ex.imm_data", ops: []qp.WROpcode{qp.WRSend, qp.WRWrite, qp.WRRead}, effect: "Imm"}, // post_send copies it; the opcode decides
	{name: "wr.ex.invalidate_rkey", ops: keys, effect: "Imm"},
	{name: "wr.wr.rdma.remote_addr", ops: rdma, effect: "RemoteVA"},
	{name: "wr.wr.rdma.rkey", ops: rdma, effect: "RKey"},
	{name: "wr.wr.rdma.reserved", ops: rdma, why: "padding"},
	{name: "wr.wr.atomic.remote_addr", ops: atomics, effect: "RemoteVA"},
	{name: "wr.wr.atomic.compare_add", ops: atomics, effect: "CompareAdd"},
	{name: "wr.wr.atomic.swap", ops: atomics, effect: "Swap"}, // 0 in fetch_add
	{name: "wr.wr.atomic.rkey", ops: atomics, effect: "RKey"},
	{name: "wr.wr.atomic.reserved", ops: atomics, why: "padding"},
	{name: "wr.wr.flush.remote_addr", ops: flush, effect: "RemoteVA"},
	{name: "wr.wr.flush.length", ops: flush, why: "wr_flush() puts the length into dma"},
	{name: "wr.wr.flush.rkey", ops: flush, effect: "RKey"},
	{name: "wr.wr.flush.type", ops: flush, effect: "Flush.FETH.Type"},
	{name: "wr.wr.flush.level", ops: flush, effect: "Flush.FETH.Level"},
	{name: "wr.wr.ud.remote_qpn", ops: sends, effect: "RemoteQPN"},
	{name: "wr.wr.ud.remote_qkey", ops: sends, effect: "RemoteQKey"},
	{name: "wr.wr.ud.pkey_index", ops: sends, why: "no provider writes it: for QP 1 of the kernel"},
	{name: "wr.wr.ud.reserved", ops: sends, why: "padding"},
	{name: "wr.wr.ud.ah_num", ops: sends, effect: "AH"},
	{name: "wr.wr.ud.pad", ops: sends, why: "padding"},
	{name: "wr.wr.ud.av.port_num", ops: sends, why: "the NIC has one port"},
	{name: "wr.wr.ud.av.network_type", ops: sends, why: "follows from the GIDs"},
	{name: "wr.wr.ud.av.dmac", ops: sends, effect: "AH"}, // the last two bytes: TestSendVector
	{name: "wr.wr.ud.av.grh.dgid", ops: sends, effect: "AH"},
	{name: "wr.wr.ud.av.grh.flow_label", ops: sends, effect: "AH"},
	{name: "wr.wr.ud.av.grh.sgid_index", ops: sends, effect: "AH"},
	{name: "wr.wr.ud.av.grh.hop_limit", ops: sends, effect: "AH"},
	{name: "wr.wr.ud.av.grh.traffic_class", ops: sends, effect: "AH"},
	{name: "wr.wr.ud.av.sgid_addr", ops: sends, why: "the address of the GID"},
	{name: "wr.wr.ud.av.dgid_addr", ops: sends, why: "the address of the GID"},
	{name: "wr.wr.mw.addr", ops: bind, effect: "Bind.Addr"},
	{name: "wr.wr.mw.length", ops: bind, effect: "Bind.Length"},
	{name: "wr.wr.mw.mr_lkey", ops: bind, effect: "Bind.MRLKey"},
	{name: "wr.wr.mw.mw_rkey", ops: bind, effect: "Bind.MWRKey"},
	{name: "wr.wr.mw.rkey", ops: bind, effect: "Bind.RKey"},
	{name: "wr.wr.mw.access", ops: bind, effect: "Bind.Access"},
	{name: "status", ops: all, why: "belongs to the kernel"},
	{name: "state", ops: all, why: "belongs to the kernel"}, // post_send clears it
	{name: "iova", ops: all, why: "the remote address once more"},
	{name: "mask", ops: all, why: "belongs to the kernel"},
	{name: "first_psn", ops: all, why: "belongs to the kernel"},
	{name: "last_psn", ops: all, why: "belongs to the kernel"},
	{name: "ack_length", ops: all, why: "belongs to the kernel"},
	{name: "ssn", ops: all, why: "belongs to the kernel"},
	{name: "has_rd_atomic", ops: all, why: "belongs to the kernel"},
	{name: "dma.length", ops: data, why: "the sum of the SGEs; ibv_wr_set_sge_list() of old providers writes a wrong one"},
	{name: "dma.length", ops: data, inline: true, effect: "Length Inline"},
	{name: "dma.length", ops: flush, effect: "Flush.Length"},
	{name: "dma.length", ops: []qp.WROpcode{qp.WRAtomicWrite}, effect: "Length Inline"},
	{name: "dma.resid", ops: all, why: "the length once more"},
	{name: "dma.cur_sge", ops: all, why: "belongs to the kernel"},
	{name: "dma.num_sge", ops: data, bits: 3, effect: "SGEs"},
	{name: "dma.num_sge", ops: data, inline: true, why: "post_send counts the elements that it has copied"},
	{name: "dma.sge_offset", ops: all, why: "belongs to the kernel"},
	{name: "dma.reserved", ops: all, why: "padding"},
	{name: "dma.inline_data", ops: data, inline: true, effect: "Inline"},
	{name: "dma.atomic_wr", ops: []qp.WROpcode{qp.WRAtomicWrite}, effect: "Inline"},
	{name: "dma.sge", ops: data, effect: "SGEs"},
}

// receiveFields are those of struct rxe_recv_wqe.
var receiveFields = []field{
	{name: "wr_id", effect: "WRID"},
	{name: "reserved", why: "padding; num_sge of old kernels"},
	{name: "padding", why: "padding"},
	{name: "dma.length", why: "the sum of the SGEs"},
	{name: "dma.resid", why: "the length once more"},
	{name: "dma.cur_sge", why: "belongs to the kernel"},
	{name: "dma.num_sge", bits: 3, effect: "SGEs"},
	{name: "dma.sge_offset", why: "belongs to the kernel"},
	{name: "dma.reserved", why: "padding"},
	{name: "dma.inline_data", effect: "SGEs"}, // a union with sge
	{name: "dma.sge", effect: "SGEs"},
}

// elementFields are those of struct rxe_sge.
var elementFields = []field{
	{name: "addr", effect: "SGEs"}, {name: "length", bits: 4, effect: "Length SGEs"}, {name: "lkey", effect: "SGEs"},
}

// completionFields are those of struct ib_uverbs_wc. Here effect has the field of qp.CQE from which it comes.
var completionFields = []field{
	{name: "wr_id", effect: "WRID"},
	{name: "status", effect: "Status"},
	{name: "opcode", effect: "Opcode"},
	{name: "vendor_err", effect: "VendorErr"},
	{name: "byte_len", effect: "ByteLen"},
	{name: "ex.imm_data", effect: "Imm"},
	{name: "ex.invalidate_rkey", effect: "Imm"},
	{name: "qp_num", effect: "QPN"},
	{name: "src_qp", effect: "SrcQP"},
	{name: "wc_flags", effect: "Flags"},
	{name: "pkey_index", effect: "PKeyIndex"},
	{name: "slid", why: "RoCE has no LIDs: 0"},
	{name: "sl", effect: "SL"},
	{name: "dlid_path_bits", why: "RoCE has no LIDs: 0"},
	{name: "port_num", why: "the only port: 1"},
	{name: "reserved", why: "padding: 0"},
}

// ringFields are those of struct rxe_queue_buf, in a send ring.
var ringFields = []field{
	{name: "log2_elem_size", why: "the daemon writes it and uses its own copy"},
	{name: "index_mask", why: "the daemon writes it and uses its own copy"},
	{name: "pad_1", why: "padding"},
	{name: "producer_index", effect: "Pending"},
	{name: "pad_2", why: "padding"},
	{name: "consumer_index", why: "the daemon writes it and uses its own copy"},
	{name: "pad_3", why: "padding; in completion rings the word for arming (TestArmLayout)"},
	{name: "data", effect: "the elements"},
}

// place is where a field lies.
type place struct{ off, size int64 }

// newer are the fields of struct rxe_send_wqe that headers before Linux 6.8 lack.
var newer = map[string]place{
	"wr.wr.flush.remote_addr": {24, 8}, "wr.wr.flush.length": {32, 4}, "wr.wr.flush.rkey": {36, 4},
	"wr.wr.flush.type": {40, 1}, "wr.wr.flush.level": {41, 1}, "dma.atomic_wr": {208, 0},
}

// places returns the fields of a C structure, by their names in C. A name of rows is not divided.
func places(d *dwarf.Data, name string, rows []field) map[string]place {
	out := map[string]place{}
	var walk func(prefix string, at int64, t dwarf.Type)
	walk = func(prefix string, at int64, t dwarf.Type) {
		for typedef, ok := t.(*dwarf.TypedefType); ok; typedef, ok = t.(*dwarf.TypedefType) {
			t = typedef.Type
		}
		s, ok := t.(*dwarf.StructType)
		if known := slices.ContainsFunc(rows, func(r field) bool { return r.name == prefix }); !ok || known {
			out[prefix] = place{at, t.Size()}
			return
		}
		for _, f := range s.Field {
			if f.Type.Size() == 0 && strings.HasPrefix(f.Name, "__empty") || f.Name == "atomic_wr" && name == "rxe_recv_wqe" {
				continue // parts of flexible arrays; a union of both structures
			}
			walk(strings.TrimPrefix(strings.TrimSuffix(prefix+"."+f.Name, "."), "."), at+f.ByteOffset, f.Type)
		}
	}
	for r := d.Reader(); ; {
		e, err := r.Next()
		if err != nil || e == nil {
			return out
		}
		if e.Tag != dwarf.TagStructType || e.Val(dwarf.AttrName) != name {
			continue
		}
		t, err := d.Type(e.Offset)
		if err != nil {
			return nil
		}
		walk("", 0, t)
	}
}

// header compiles the structures of Linux.
func header(t *testing.T) *dwarf.Data {
	t.Helper()
	obj := filepath.Join(t.TempDir(), "fields.o")
	c := exec.Command("cc", "-c", "-g", "-x", "c", "-", "-o", obj)
	c.Stdin = strings.NewReader("#include <rdma/ib_user_verbs.h>\n#include <rdma/rdma_user_rxe.h>\n" +
		"struct rxe_send_wqe s; struct rxe_recv_wqe r; struct ib_uverbs_wc w; struct rxe_queue_buf q;\n")
	if out, err := c.CombinedOutput(); err != nil {
		if _, gone := os.Stat("/usr/include/rdma/rdma_user_rxe.h"); gone != nil || c.ProcessState == nil {
			t.Skip("no C compiler or no headers of Linux")
		}
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := elf.Open(obj)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := f.DWARF()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestFieldsOfRings changes each field of Linux' structures in a ring, and compares what the daemon reads with the tables
// above. Each field needs a row.
func TestFieldsOfRings(t *testing.T) {
	d := header(t)
	for _, c := range []struct {
		name string
		rows []field
		try  func(*testing.T, *field, place)
	}{
		{"rxe_send_wqe", requestFields, tryRequest},
		{"rxe_recv_wqe", receiveFields, tryReceive},
		{"rxe_sge", elementFields, tryElement},
		{"ib_uverbs_wc", completionFields, tryCompletion},
		{"rxe_queue_buf", ringFields, tryRing},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := places(d, c.name, c.rows)
			for name := range at {
				if !slices.ContainsFunc(c.rows, func(r field) bool { return r.name == name }) {
					t.Errorf("%s has no row", name)
				}
			}
			for _, r := range c.rows {
				p, ok := at[r.name]
				if late, known := newer[r.name]; known && !ok {
					p, ok = late, true
				}
				if !ok || (r.effect == "") == (r.why == "") {
					t.Errorf("%s: in the header: %v, effect %q, reason %q", r.name, ok, r.effect, r.why)
					continue
				}
				c.try(t, &r, p)
			}
		})
	}
}

// flip changes a field in an element.
func flip(r *field, p place, elem []byte) {
	b := elem[p.off:]
	if p.size == 4 && r.bits > 1 {
		binary.NativeEndian.PutUint32(b, binary.NativeEndian.Uint32(b)^uint32(r.bits))
		return
	}
	for i := range min(max(p.size, 1), 8) { // all bytes: rows need no byte order
		b[i] ^= byte(max(r.bits, 1))
	}
}

// changed returns the names of the fields that differ.
func changed(prefix string, a, b reflect.Value) (names []string) {
	for i := range a.NumField() {
		name := prefix + a.Type().Field(i).Name
		if a.Field(i).Kind() == reflect.Struct {
			names = append(names, changed(name+".", a.Field(i), b.Field(i))...)
		} else if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			names = append(names, name)
		}
	}
	return names
}

// check compares the effect of a change with the row.
func check(t *testing.T, r *field, before, after any, context ...any) {
	t.Helper()
	got := changed("", reflect.ValueOf(before), reflect.ValueOf(after))
	if want := strings.Fields(r.effect); !slices.Equal(got, want) {
		t.Errorf("%s, bits %#x %v: changes %v, want %v", r.name, r.bits, context, got, want)
	}
}

// post appends a request as the provider's builders and setters write it, with a change.
func post(r *SendRing, op qp.WROpcode, inline bool, change func(elem []byte)) {
	e := r.Elem(r.next)
	clear(e)
	w := rxe.At[rxe.SendWQE](e)
	w.Opcode, w.DMA.Length = uint32(op), 8
	if op != qp.WRFlush && op != qp.WRAtomicWrite {
		w.DMA.NumSGE = 1
		*rxe.At[rxe.SGE](rxe.SendData(e)) = rxe.SGE{Addr: 1, Length: 8, LKey: 2}
	}
	if inline {
		w.Flags = uint32(qp.SendInline)
	}
	change(e)
	atomic.StoreUint32(r.Producer, (r.next+1)&r.Mask)
}

// none changes nothing.
func none([]byte) {}

func tryRequest(t *testing.T, r *field, p place) {
	t.Helper()
	for _, op := range r.ops {
		take := func(change func([]byte)) (w qp.SendWQE) {
			ring, _, _ := sendPair(t, 3, 2, 64)
			ring.AHOf = func(d Destination) uint32 { // another number for each destination
				return uint32(d.LID) + d.AV.FlowLabel<<1 + uint32(d.AV.SGIDIndex)<<2 + uint32(d.AV.HopLimit)<<3 +
					uint32(d.AV.TrafficClass)<<4 + uint32(d.AV.DGID[0])<<5 + 1
			}
			if post(ring, op, r.inline, change); !ring.Next(&w) {
				t.Fatal("no request")
			}
			return w
		}
		check(t, r, take(none), take(func(e []byte) { flip(r, p, e) }), "opcode", op)
	}
}

// tryElement changes the first SGE of a request.
func tryElement(t *testing.T, r *field, p place) {
	t.Helper()
	of := *r
	of.ops = data
	tryRequest(t, &of, place{int64(unsafe.Sizeof(rxe.SendWQE{})) + p.off, p.size})
}

func tryReceive(t *testing.T, r *field, p place) {
	t.Helper()
	take := func(change func([]byte)) (w qp.RecvWQE) {
		ring, producer, _ := recvPair(t, 3, 2)
		if err := rxe.PostRecv(producer, 0, []qp.SGE{{Addr: 1, Length: 8, LKey: 2}}); err != nil {
			t.Fatal(err)
		}
		if change(ring.Elem(0)); !ring.Next(&w) {
			t.Fatal("no request")
		}
		return w
	}
	check(t, r, take(none), take(func(e []byte) { flip(r, p, e) }))
}

// tryCompletion sets each field of a completion: only the field of r's effect may change the bytes of r.
func tryCompletion(t *testing.T, r *field, p place) {
	t.Helper()
	push := func(c qp.CQE) []byte {
		ring, _, _ := cqPair(t, 3)
		if !ring.Push(&c) {
			t.Fatal("no room")
		}
		return ring.Elem(0)[p.off : p.off+p.size]
	}
	base := qp.CQE{}
	if strings.HasSuffix(r.name, "invalidate_rkey") {
		base.Flags = qp.WCWithInv
	}
	was := push(base)
	var by []string
	for i := range reflect.TypeFor[qp.CQE]().NumField() {
		c := base
		f := reflect.ValueOf(&c).Elem().Field(i)
		switch {
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case f.CanInt():
			f.SetInt(1)
		default:
			f.SetUint(f.Uint() ^ 1)
		}
		if !bytes.Equal(was, push(c)) {
			by = append(by, reflect.TypeFor[qp.CQE]().Field(i).Name)
		}
	}
	if !slices.Equal(by, strings.Fields(r.effect)) {
		t.Errorf("%s changes with %v, want %q", r.name, by, r.effect)
	}
	if r.effect == "" && strings.Contains(r.why, ": 0") != (max(was[0], was[len(was)-1]) == 0) {
		t.Errorf("%s is %x", r.name, was)
	}
}

// tryRing changes a word of the header while a request is posted.
func tryRing(t *testing.T, r *field, p place) {
	t.Helper()
	ring, _, mem := sendPair(t, 3, 2, 64)
	post(ring, qp.WRSend, false, none)
	if r.name == "data" {
		if &mem[p.off] != &ring.Elem(0)[0] {
			t.Error("the elements begin elsewhere")
		}
		return
	}
	flip(r, p, mem)
	if ring.Pending() != (r.effect == "") {
		t.Errorf("%s: effect %q, pending: %v", r.name, r.effect, ring.Pending())
	}
}
