package sysfs

import (
	"os"
	"path/filepath"
	"testing"
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
	p := &Port{Active: true, GIDs: gids, Counters: []Counter{{"port_xmit_data", 7}, {"sent_pkts", 8}}}
	if err := tree.Add(d, p); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"infiniband_verbs/abi_version":                     "6\n",
		"infiniband_verbs/uverbs2/ibdev":                   "rxe_a\n",
		"infiniband_verbs/uverbs2/dev":                     "231:194\n",
		"infiniband_verbs/uverbs2/abi_version":             "2\n",
		"infiniband/rxe_a/node_type":                       "1: CA\n",
		"infiniband/rxe_a/node_guid":                       "5254:00ff:fe01:0203\n",
		"infiniband/rxe_a/ports/1/state":                   "4: ACTIVE\n",
		"infiniband/rxe_a/ports/1/gids/1":                  "0000:0000:0000:0000:0000:ffff:c612:0001\n",
		"infiniband/rxe_a/ports/1/gid_attrs/types/0":       "RoCE v2\n",
		"infiniband/rxe_a/ports/1/gid_attrs/ndevs/1":       "tap_a\n",
		"infiniband/rxe_a/ports/1/counters/port_xmit_data": "7\n",
		"infiniband/rxe_a/ports/1/hw_counters/sent_pkts":   "8\n",
		"misc/rdma_cm/abi_version":                         "4\n",
	} {
		if got := read(t, tree, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "class/infiniband_verbs/uverbs9")); !os.IsNotExist(err) {
		t.Errorf("a device of a dead daemon: %v", err)
	}

	p.Active, p.GIDs, p.Counters[0].Value = false, gids[:1], 9
	if err := tree.Update(d, p); err != nil {
		t.Fatal(err)
	}
	if got := read(t, tree, "infiniband/rxe_a/ports/1/state"); got != "1: DOWN\n" {
		t.Errorf("state %q", got)
	}
	if got := read(t, tree, "infiniband/rxe_a/ports/1/counters/port_xmit_data"); got != "9\n" {
		t.Errorf("counter %q", got)
	}
	for _, gone := range []string{"gids/1", "gid_attrs/types/1", "gid_attrs/ndevs/1"} {
		if _, err := os.Stat(filepath.Join(root, "class/infiniband/rxe_a/ports/1", gone)); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", gone, err)
		}
	}
	if err := tree.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(root); !os.IsNotExist(err) {
		t.Errorf("the tree is still there: %v", err)
	}
}
