package sysfs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"roced.io/roced/rocev2/stack"
)

func read(t *testing.T, tree *Tree, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tree.Root(), "class", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTree(t *testing.T) {
	root := filepath.Join(t.TempDir(), "sysfs")
	if err := os.MkdirAll(filepath.Join(root, "class/infiniband_verbs/uverbs9"), 0o755); err != nil {
		t.Fatal(err) // left by a daemon that died
	}
	tree, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	d := &Device{Name: "rxe_a", Index: 2, GUID: [8]byte{0x52, 0x54, 0, 0xff, 0xfe, 1, 2, 3}, Firmware: "1.0.0", Netdev: "tap_a"}
	gids := [][16]byte{{0xfe, 0x80, 15: 1}, {10: 0xff, 11: 0xff, 12: 198, 13: 18, 15: 1}}
	p := &Port{Active: true, GIDs: gids, Counters: []Counter{{"port_xmit_data", 7}, {"sent_pkts", 8}, {"cm_tx_msgs_sidr_req", 3}, {"cm_stale", 4}}}
	if err := tree.Add(d, p); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"infiniband_verbs/abi_version":                           "6\n",
		"infiniband_verbs/uverbs2/ibdev":                         "rxe_a\n",
		"infiniband_verbs/uverbs2/dev":                           "231:194\n",
		"infiniband_verbs/uverbs2/abi_version":                   "2\n",
		"infiniband/rxe_a/node_type":                             "1: CA\n",
		"infiniband/rxe_a/node_guid":                             "5254:00ff:fe01:0203\n",
		"infiniband/rxe_a/ports/1/state":                         "4: ACTIVE\n",
		"infiniband/rxe_a/ports/1/phys_state":                    "5: LinkUp\n",
		"infiniband/rxe_a/ports/1/gids/1":                        "0000:0000:0000:0000:0000:ffff:c612:0001\n",
		"infiniband/rxe_a/ports/1/gid_attrs/types/0":             "RoCE v2\n",
		"infiniband/rxe_a/ports/1/gid_attrs/ndevs/1":             "tap_a\n",
		"infiniband/rxe_a/ports/1/counters/port_xmit_data":       "7\n",
		"infiniband/rxe_a/ports/1/hw_counters/sent_pkts":         "8\n",
		"infiniband/rxe_a/ports/1/hw_counters/cm_stale":          "4\n",
		"infiniband/rxe_a/ports/1/cm_tx_msgs/sidr_req":           "3\n",
		"misc/rdma_cm/abi_version":                               "4\n",
		"infiniband/rxe_a/device/vendor":                         "0x0ced\n",
		"infiniband_verbs/uverbs2/device/device":                 "0x0001\n",
		"../bus/pci/devices/0ced:03:00.0/numa_node":              "-1\n",
		"../bus/pci/devices/0ced:03:00.0/max_link_width":         "16\n",
		"../bus/pci/devices/0ced:03:00.0/subsystem_device":       "0x0001\n",
		"../bus/pci/devices/0ced:00:00.2/class":                  "0x060400\n",
		"../devices/pci0ced:00/0ced:00:00.2/device":              "0x0002\n",
		"../devices/pci0ced:00/0ced:00:00.2/0ced:03:00.0/uevent": "PCI_CLASS=20000\nPCI_ID=0CED:0001\nPCI_SUBSYS_ID=0CED:0001\nPCI_SLOT_NAME=0ced:03:00.0\n",
	} {
		if got := read(t, tree, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "class/infiniband_verbs/uverbs9")); !os.IsNotExist(err) {
		t.Errorf("a device of a dead daemon: %v", err)
	}

	for name, want := range map[string]string{
		"class/infiniband/rxe_a": "../../devices/pci0ced:00/0ced:00:00.2/0ced:03:00.0/infiniband/rxe_a",
		"devices/pci0ced:00/0ced:00:00.2/0ced:03:00.0/infiniband/rxe_a/device": "../../../0ced:03:00.0",
		"devices/pci0ced:00/0ced:00:00.2/0ced:03:00.0/net/tap_a":               "/sys/class/net/tap_a",
	} {
		if got, err := os.Readlink(filepath.Join(root, name)); got != want {
			t.Errorf("%s: %q, want %q (%v)", name, got, want, err)
		}
	}

	p.Active, p.GIDs, p.Counters[0].Value = false, [][16]byte{gids[0], {}}, 9
	if err := tree.Update(d, p); err != nil {
		t.Fatal(err)
	}
	if got := read(t, tree, "infiniband/rxe_a/ports/1/state"); got != "1: DOWN\n" {
		t.Errorf("state %q", got)
	}
	if got := read(t, tree, "infiniband/rxe_a/ports/1/counters/port_xmit_data"); got != "9\n" {
		t.Errorf("counter %q", got)
	}
	// As in Linux, a table has files for all its entries, also for those of removed addresses.
	const empty = "0000:0000:0000:0000:0000:0000:0000:0000\n"
	for i := 1; i < stack.GIDTableLen; i++ {
		if got := read(t, tree, fmt.Sprintf("infiniband/rxe_a/ports/1/gids/%d", i)); got != empty {
			t.Errorf("GID %d: %q", i, got)
		}
	}
	for _, folder := range []string{"gids", "gid_attrs/types", "gid_attrs/ndevs"} {
		if list, err := os.ReadDir(filepath.Join(root, "class/infiniband/rxe_a/ports/1", folder)); len(list) != stack.GIDTableLen {
			t.Errorf("%s has %d files (%v)", folder, len(list), err)
		}
	}
	if err := tree.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(root); !os.IsNotExist(err) {
		t.Errorf("the tree is still there: %v", err)
	}
}

// TestOnlyOnceUnderOneName checks that a device cannot replace another one.
func TestOnlyOnceUnderOneName(t *testing.T) {
	tree, err := New(filepath.Join(t.TempDir(), "sysfs"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		d    Device
		fits bool
	}{{Device{Name: "rxe_a"}, true}, {Device{Name: "rxe_a", Index: 1}, false}, {Device{Name: "rxe_b"}, false},
		{Device{Name: "rxe_b", Index: 1}, true}} {
		if err := tree.Add(&c.d, &Port{}); (err == nil) != c.fits {
			t.Errorf("%+v: %v", c.d, err)
		}
	}
}

// TestAlias checks that a tree of some devices has the same content as the whole tree, and that devices of one port
// agree. Both hold after a move of the run directory, as into a container.
func TestAlias(t *testing.T) {
	dir := t.TempDir()
	whole, err := New(filepath.Join(dir, "run/sysfs"))
	if err != nil {
		t.Fatal(err)
	}
	some, err := New(filepath.Join(dir, "run/nic/b"))
	if err != nil {
		t.Fatal(err)
	}
	b, irn := &Device{Name: "rxe_b", Index: 1}, &Device{Name: "rxe_b_irn", Index: 2, PortOf: "rxe_b"}
	for _, d := range []*Device{{Name: "rxe_a"}, b, irn} {
		if err := whole.Add(d, &Port{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []*Device{b, irn} {
		if err := some.Alias(whole, d); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(filepath.Join(dir, "run"), filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	whole.root, some.root = filepath.Join(dir, "moved/sysfs"), filepath.Join(dir, "moved/nic/b")
	if err := whole.Update(b, &Port{Active: true}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"infiniband/rxe_b/ports/1/state": "4: ACTIVE\n", "infiniband/rxe_b_irn/ports/1/state": "4: ACTIVE\n",
		"infiniband_verbs/uverbs1/ibdev": "rxe_b\n", "infiniband_verbs/uverbs2/ibdev": "rxe_b_irn\n",
		"infiniband/rxe_b_irn/device/vendor": "0x0ced\n", "../bus/pci/devices/0ced:02:00.0/infiniband/rxe_b/node_desc": "rxe_b\n",
	} {
		if got := read(t, some, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for _, other := range []string{"infiniband/rxe_a", "infiniband_verbs/uverbs0"} {
		if _, err := os.Stat(filepath.Join(some.Root(), "class", other)); !os.IsNotExist(err) {
			t.Errorf("%s is there: %v", other, err)
		}
	}
	if err := some.Close(); err != nil {
		t.Fatal(err)
	}
	read(t, whole, "infiniband/rxe_b/ports/1/state") // still exists
}

// TestListKernel checks that the bus lists the kernel's devices as they come and go, beside the NICs.
func TestListKernel(t *testing.T) {
	tree, err := New(filepath.Join(t.TempDir(), "sysfs"))
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Add(&Device{Name: "rxe_a"}, &Port{}); err != nil {
		t.Fatal(err)
	}
	kernel := t.TempDir()
	for _, c := range []struct {
		change func(string, fs.FileMode) error
		device string
		want   string
	}{
		{os.Mkdir, "0000:00:01.0", "[0000:00:01.0 0ced:00:00.0 0ced:01:00.0]"},
		{os.Mkdir, "10000:01:00.0", "[0000:00:01.0 0ced:00:00.0 0ced:01:00.0 10000:01:00.0]"},
		{func(path string, _ fs.FileMode) error { return os.Remove(path) }, "0000:00:01.0", "[0ced:00:00.0 0ced:01:00.0 10000:01:00.0]"},
		{func(string, fs.FileMode) error { return os.RemoveAll(kernel) }, "", "[0ced:00:00.0 0ced:01:00.0]"},
	} {
		if err := c.change(filepath.Join(kernel, c.device), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := tree.listKernel(kernel); err != nil {
			t.Error(err)
		}
		bus := filepath.Join(tree.Root(), "bus/pci/devices")
		list, err := os.ReadDir(bus)
		var names []string
		for _, e := range list {
			names = append(names, e.Name())
			if _, err := os.Stat(filepath.Join(bus, e.Name())); err != nil {
				t.Error(err)
			}
		}
		if got := fmt.Sprint(names); got != c.want || err != nil {
			t.Errorf("after %s: %s, want %s (%v)", c.device, got, c.want, err)
		}
	}
}

// TestConfigSpace checks the headers of a bridge and of the NIC behind it.
func TestConfigSpace(t *testing.T) {
	tree, err := New(filepath.Join(t.TempDir(), "sysfs"))
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Add(&Device{Name: "rxe_a", Index: 4}, &Port{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]map[int]string{
		"0ced:00:00.4": {0: "ed0c0200", 8: "01000406", 0x0e: "01", 0x18: "000505", 0x1c: "f000", 0x20: "f0ff0000f0ff0000"},
		"0ced:05:00.0": {0: "ed0c0100", 8: "01000002", 0x0e: "00", 0x2c: "ed0c0100"},
	} {
		space := read(t, tree, "../bus/pci/devices/"+name+"/config")
		if len(space) != 256 {
			t.Fatalf("%s has %d bytes", name, len(space))
		}
		for at, field := range want {
			if got := fmt.Sprintf("%x", space[at:at+len(field)/2]); got != field {
				t.Errorf("%s at %#x: %s, want %s", name, at, got, field)
			}
		}
	}
}

// TestWrites checks that a reader sees a complete file, old or new, and that unchanged files are not written.
func TestWrites(t *testing.T) {
	tree, err := New(filepath.Join(t.TempDir(), "sysfs"))
	if err != nil {
		t.Fatal(err)
	}
	d, p := &Device{Name: "rxe_a"}, &Port{Counters: []Counter{{"sent_pkts", 1}, {"rcvd_pkts", 1}}}
	if err := tree.Add(d, p); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(tree.Root(), "class/infiniband/rxe_a/ports/1/hw_counters")
	open, err := os.Open(filepath.Join(folder, "sent_pkts"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	before := inodes(t, folder)
	p.Counters[0].Value = 22
	if err := tree.Update(d, p); err != nil {
		t.Fatal(err)
	}
	after := inodes(t, folder)
	if os.SameFile(before["sent_pkts"], after["sent_pkts"]) || !os.SameFile(before["rcvd_pkts"], after["rcvd_pkts"]) {
		t.Error("not the file that has changed was replaced")
	}
	text := make([]byte, 8)
	if n, err := open.Read(text); err != nil || string(text[:n]) != "1\n" {
		t.Errorf("an open file: %q, %v", text[:n], err)
	}
	if err := filepath.WalkDir(tree.Root(), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".new") {
			t.Errorf("left behind: %s", path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func inodes(t *testing.T, folder string) map[string]os.FileInfo {
	t.Helper()
	list, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]os.FileInfo{}
	for _, e := range list {
		if out[e.Name()], err = e.Info(); err != nil {
			t.Fatal(err)
		}
	}
	return out
}
