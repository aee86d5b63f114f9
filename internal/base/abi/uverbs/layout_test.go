package uverbs

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// describe renders the layout of a structure as encoding/binary packs it: its size
// and the offset of each field that is not reserved.
func describe(t *testing.T, v any, c, fields string) string {
	t.Helper()
	names := strings.Fields(fields)
	out := fmt.Sprintf("%s %d", c, binary.Size(v))
	typ := reflect.TypeOf(v)
	off, n := 0, 0
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Name != "_" {
			if n == len(names) {
				t.Fatalf("%s has more fields than %s", typ, c)
			}
			if plain(names[n]) != plain(f.Name) && names[n] != "ex" {
				t.Errorf("%s.%s stands where %s has %s", typ, f.Name, c, names[n])
			}
			out += fmt.Sprintf(" %s=%d", names[n], off)
			n++
		}
		off += binary.Size(reflect.New(f.Type).Interface())
	}
	if n != len(names) {
		t.Fatalf("%s has fewer fields than %s", typ, c)
	}
	return out
}

// plain reduces names of both languages to their common part.
func plain(name string) string {
	name = name[strings.LastIndexByte(name, '.')+1:]
	return strings.TrimSuffix(strings.ToLower(strings.ReplaceAll(name, "_", "")), "mi")
}

func TestSizes(t *testing.T) {
	for _, l := range layouts {
		if got := binary.Size(l.v); got != l.size {
			t.Errorf("%T has %d bytes, %s %d", l.v, got, l.c, l.size)
		}
		if err := trailing(l.v); err != "" {
			t.Errorf("%T: %s", l.v, err)
		}
	}
}

// trailing checks that Go's memory layout equals encoding/binary's packed form, so that there is no implicit padding.
func trailing(v any) string {
	if got, want := int(reflect.TypeOf(v).Size()), binary.Size(v); got != want {
		return fmt.Sprintf("%d bytes in memory, %d packed", got, want)
	}
	return ""
}

// TestLayoutInC compares sizes and offsets with those that a C compiler finds in the kernel's headers.
func TestLayoutInC(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	var src strings.Builder
	src.WriteString("#include <stdio.h>\n#include <stddef.h>\n#include <rdma/ib_user_verbs.h>\n" +
		"#include <rdma/rdma_user_rxe.h>\nint main(void)\n{\n")
	var want []string
	for _, l := range layouts {
		want = append(want, describe(t, l.v, l.c, l.fields))
		fmt.Fprintf(&src, "printf(\"%s %%zu\", sizeof(struct %s));\n", l.c, l.c)
		for _, f := range strings.Fields(l.fields) {
			fmt.Fprintf(&src, "printf(\" %s=%%zu\", offsetof(struct %s, %s));\n", f, l.c, f)
		}
		src.WriteString("puts(\"\");\n")
	}
	src.WriteString("return 0;\n}\n")
	got := runC(t, cc, src.String())
	if d := cmp.Diff(strings.Split(strings.TrimSpace(got), "\n"), want); d != "" {
		t.Errorf("C (-) and Go (+):\n%s", d)
	}
}

func runC(t *testing.T, cc, src string) string {
	t.Helper()
	dir := t.TempDir()
	file, exe := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-o", exe, file).CombinedOutput(); err != nil {
		if strings.Contains(string(out), "rdma/") && strings.Contains(string(out), "No such file") {
			t.Skip("no RDMA headers")
		}
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(exe).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestExtensionSizes checks the sizes of the structures in docs/reference/control-protocol.md.
func TestExtensionSizes(t *testing.T) {
	for _, c := range []struct {
		v    any
		size int
	}{
		{Hello{}, 4}, {HelloResp{}, 264}, {DoorbellResp{}, 16}, {MapMemory{}, 32}, {MapMemoryResp{}, 8},
		{UnmapMemory{}, 8}, {SetProfile{}, 64}, {QueryGID{}, 8}, {QueryGIDResp{}, 24}, {QueryStats{}, 4},
		{QueryStatsResp{}, 8}, {Stat{}, 64}, {answerHdr{}, AnswerLen}, {Hdr{}, HdrLen}, {ExHdr{}, ExHdrLen},
		{AsyncEvent{}, AsyncEventLen}, {CompEvent{}, CompEventLen},
		{MRCAttr{}, 32}, {ModifyMRC{}, 48}, {QueryMRC{}, 16}, {MRCDevice{}, 8}, {MRCDeviceResp{}, 20},
	} {
		if got := binary.Size(c.v); got != c.size {
			t.Errorf("%T has %d bytes, not %d", c.v, got, c.size)
		}
		if err := trailing(c.v); err != "" {
			t.Errorf("%T: %s", c.v, err)
		}
	}
}

func TestCommandNumbersInC(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	numbers := []struct {
		c string
		n uint32
	}{
		{"CMD_GET_CONTEXT", CmdGetContext}, {"CMD_DESTROY_AH", CmdDestroyAH}, {"CMD_REG_MR", CmdRegMR},
		{"CMD_REREG_MR", CmdReregMR}, {"CMD_DEREG_MR", CmdDeregMR}, {"CMD_ALLOC_MW", CmdAllocMW},
		{"CMD_DEALLOC_MW", CmdDeallocMW}, {"CMD_CREATE_COMP_CHANNEL", CmdCreateCompChannel},
		{"CMD_CREATE_CQ", CmdCreateCQ}, {"CMD_DESTROY_CQ", CmdDestroyCQ}, {"CMD_REQ_NOTIFY_CQ", CmdReqNotifyCQ},
		{"CMD_CREATE_QP", CmdCreateQP}, {"CMD_DESTROY_QP", CmdDestroyQP}, {"CMD_POST_SEND", CmdPostSend},
		{"CMD_ATTACH_MCAST", CmdAttachMcast}, {"CMD_CREATE_SRQ", CmdCreateSRQ}, {"CMD_DESTROY_SRQ", CmdDestroySRQ},
		{"CMD_POST_SRQ_RECV", CmdPostSRQRecv}, {"CMD_CREATE_XSRQ", CmdCreateXSRQ},
		{"ABI_VERSION", ABIVersion},
		{"CMD_COMMAND_MASK", CommandMask}, {"CMD_FLAG_EXTENDED", FlagExtended},
	}
	src := "#include <stdio.h>\n#include <rdma/ib_user_verbs.h>\nint main(void)\n{\n"
	want := ""
	for _, n := range numbers {
		src += fmt.Sprintf("printf(\"%s %%u\\n\", (unsigned)IB_USER_VERBS_%s);\n", n.c, n.c)
		want += fmt.Sprintf("%s %d\n", n.c, n.n)
	}
	if d := cmp.Diff(runC(t, cc, src+"return 0;\n}\n"), want); d != "" {
		t.Errorf("C (-) and Go (+):\n%s", d)
	}
}
