package captures

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/observe/check"
	"roced.io/roced/internal/observe/dissect"
	"roced.io/roced/internal/observe/pcapng"
)

// frames returns a conversation in an encapsulation.
func (e *encapsulation) frames(v6 bool) (all [][]byte) {
	for _, p := range conversation(v6) {
		all = append(all, e.frame(p))
	}
	return all
}

// TestWhole: the answers about whole frames are the same in each encapsulation and each format of files.
func TestWhole(t *testing.T) {
	for i := range encapsulations {
		e := &encapsulations[i]
		for _, v6 := range []bool{false, true} {
			for j := range formats {
				if i > 0 && j != i%len(formats) {
					continue // each format once in a while
				}
				f := &formats[j]
				a := ask(t, f.file(e.link, e.frames(v6), math.MaxInt, false), false)
				n, again := a.messages()
				where := fmt.Sprintf("%s, v6 %t, %s", e.name, v6, f.name)
				if a.decoded.RoCE != 7 || a.decoded.Malformed+a.decoded.BadICRC+a.decoded.Truncated != 0 || n != 3 || again != 0 || a.watched.Packets != 7 || a.flows[0].MTU != 1024 ||
					a.flows[0].Bytes != 2048+100+1000 || a.analyzed.Checks[0].Verdict != check.OK || a.analyzed.Violated() || a.refusal != nil || !strings.Contains(a.script, " mtu=1024 ") {
					t.Errorf("%s:\n%v", where, a)
				}
			}
		}
	}
}

// TestSnapLengths: frames that tcpdump or a mirror has cut are truncated for all programs, and neither malformed nor violations. The
// IP header tells MTU and lengths.
func TestSnapLengths(t *testing.T) {
	for i := range encapsulations {
		e := &encapsulations[i]
		for _, v6 := range []bool{false, true} {
			whole := e.frames(v6)
			headers := len(whole[2]) - 4 // of an acknowledgement: the transport headers take 16 bytes
			for snap := 0; snap < 260; snap++ {
				if !slices.Contains([]int{0, 14, 42, 64, 68, 96, 128, 256}, snap) && testing.Short() {
					continue
				}
				f := &formats[(i+snap)%len(formats)]
				a := ask(t, f.file(e.link, whole, snap, snap%2 == 1), false)
				cut := 0
				for _, frame := range whole {
					if len(frame) > snap {
						cut++
					}
				}
				d, w := &a.decoded, &a.watched
				where := fmt.Sprintf("%s, v6 %t, snap %d, %s", e.name, v6, snap, f.name)
				if d.Malformed+d.BadICRC+int(d.Others[dissect.Malformed]) != 0 || w.Malformed+w.BadICRC != 0 || a.analyzed.Violated() || d.RoCE != int(w.Packets) || d.Truncated != int(w.Cut) || !cmp.Equal(d.Others, w.Others) {
					t.Errorf("%s:\n%v", where, a)
					break
				}
				n, again := a.messages()
				if seen := snap >= headers-16; seen != (d.RoCE == 7) || seen && d.Truncated != cut {
					t.Fatalf("%s: %d of 7 are RoCEv2, %d of %d truncated\n%v", where, d.RoCE, d.Truncated, cut, a)
				}
				if snap >= headers && (n != 3 || again != 0 || a.flows[0].MTU != 1024 || a.flows[0].Joined == "") {
					t.Fatalf("%s: %+v\n%v", where, a.flows, a)
				}
				known := snap >= headers-4+16 // the longest transport headers: BTH and RETH
				if refused := a.refusal != nil; refused == known || known && (!strings.Contains(a.script, " mtu=1024 ") || !strings.Contains(a.script, "payload=count(100)")) {
					t.Fatalf("%s: %v", where, a)
				}
			}
		}
	}
}

const page = "../../../docs/reference/captures.md"

// TestPage: the page lists the encapsulations and formats that are tested here.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([^|]+?) \|`).FindAllStringSubmatch(string(text), -1) {
		rows[m[1]] = true
	}
	for _, e := range encapsulations {
		if !rows[e.name] {
			t.Errorf("%s lacks a row for %s", page, e.name)
		}
	}
}

// TestTshark: tshark finds the same addresses, opcodes and PSNs in each encapsulation.
func TestTshark(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("tshark is not installed: make setup")
	}
	byLink := map[pcapng.LinkType][]int{}
	for i := range encapsulations {
		byLink[encapsulations[i].link] = append(byLink[encapsulations[i].link], i)
	}
	for link, list := range byLink {
		file := filepath.Join(t.TempDir(), "capture")
		var all [][]byte
		var want []string
		for _, i := range list {
			for _, v6 := range []bool{false, true} {
				all = append(all, encapsulations[i].frames(v6)...)
				for _, p := range conversation(v6) {
					want = append(want, fmt.Sprintf("%s: %d\t%d\t0x%06x", encapsulations[i].name, p.packet.Opcode, p.packet.PSN.Uint32(), uint32(p.packet.DestQP)))
				}
			}
		}
		if err := os.WriteFile(file, formats[int(link)%len(formats)].file(link, all, math.MaxInt, false), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := netlab.Tshark("../../../configs/wireshark/roced.lua", "-r", file, "-d", "udp.port==8472,vxlan", "-T", "fields", "-E", "occurrence=l",
			"-e", "infiniband.bth.opcode", "-e", "infiniband.bth.psn", "-e", "infiniband.bth.destqp").Output()
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
		for i := range got {
			got[i] = encapsulations[list[min(i/14, len(list)-1)]].name + ": " + got[i]
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("link type %d (-ours +tshark)\n%s", link, d)
		}
	}
}
