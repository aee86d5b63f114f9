package test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/lab"
)

// differences are the attributes of ibv_devinfo -v that may differ from those of rdma_rxe, with the reason.
var differences = map[string]string{
	"fw_ver": "a version of roced", "node_guid": "from the MAC", "sys_image_guid": "from the MAC", "board_id": "a file that rxe lacks",
	"max_mr_size": "63 bits", "max_qp": "limit", "max_qp_wr": "limit of a ring", "max_cq": "limit", "max_cqe": "limit of a ring",
	"max_mr": "limit", "max_pd": "limit", "max_mw": "limit", "max_ah": "limit", "max_srq": "limit", "max_srq_wr": "limit of a ring",
	"max_srq_sge": "receives of an SRQ have as many elements as others", "max_qp_rd_atom": "limit", "max_qp_init_rd_atom": "limit",
	"max_res_rd_atom": "limit", "max_mcast_grp": "limit", "max_mcast_qp_attach": "limit", "max_total_mcast_qp_attach": "limit",
	"device_cap_flags": "the names below", "device_cap_flags_ex": "the names below",
	"AUTO_PATH_MIG":             "rxe announces it without alternate paths",
	"CHANGE_PHY_PORT":           "rxe announces it with one port",
	"CURR_QP_STATE_MOD":         "IBV_QP_CUR_STATE works",
	"Unknown flags":             "FLUSH and ATOMIC WRITE, which this release does not name",
	"max_pkeys":                 "one, as pkey_tbl_len",
	"completion timestamp_mask": "time stamps, which rxe lacks", "completion_timestamp_mask not supported": "see above",
	"hca_core_clock": "time stamps", "core clock not supported": "see above",
	"cq moderation caps": "moderation, which rxe lacks", "max_cq_count": "see above", "max_cq_period": "see above",
	"active_mtu": "that of the link", "port_lid": "lower half of the IPv4 address, for programs without GIDs", "max_msg_sz": "2 GiB, as adapters",
	"port_cap_flags": "IP-based GIDs, as mlx5", "gid_tbl_len": "an index is a byte", "active_width": "100 Gb/s", "active_speed": "100 Gb/s",
	"GID[  0]": "IPv4 first", "GID[  1]": "IPv4 first", "GID[  2]": "IPv6 address of the lab",
}

// attributes returns the lines of ibv_devinfo -v by their names.
func attributes(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "" {
			all[name] = strings.TrimSpace(value)
		}
	}
	return all
}

// TestAttributes compares all attributes of ibv_devinfo -v with those of rdma_rxe of Linux 6.1, which testdata has. A
// difference without a reason is an error, and so is a reason without a difference.
func TestAttributes(t *testing.T) {
	needDebian12(t)
	run := newLab(t).Host[0].RunDir
	var out []byte
	lab.Eventually(t, lab.Limit, "an active port", func() bool {
		var err error
		out, err = preloaded(t, run, run+"/sysfs", "ibv_devinfo", "-v").CombinedOutput()
		return err == nil && strings.Contains(string(out), "PORT_ACTIVE (4)")
	})
	text, err := os.ReadFile("testdata/rxe.devinfo")
	lab.Must(t, err)
	ours, theirs := attributes(string(out)), attributes(string(text))
	delete(ours, "hca_id")
	delete(theirs, "hca_id")
	compare(t, ours, theirs, differences, func(name string) string { return name })
}

func needDebian12(t *testing.T) {
	t.Helper()
	if release, err := os.ReadFile("/etc/debian_version"); err != nil || !strings.HasPrefix(string(release), "12.") {
		t.Skip("testdata has the output of Debian 12; others name other attributes")
	}
}

// compare compares all attributes. of returns the key of an attribute in the list of differences, all of which must occur.
func compare(t *testing.T, ours, theirs, differences map[string]string, of func(name string) string) {
	t.Helper()
	names := maps.Clone(ours)
	maps.Copy(names, theirs)
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a, own := ours[name]
		b, its := theirs[name]
		if a == b && own == its {
			continue
		}
		seen[of(name)] = true
		if differences[of(name)] == "" {
			t.Errorf("%s: %q (present: %v), rdma_rxe %q (%v)", name, a, own, b, its)
		}
	}
	for key, why := range differences {
		if !seen[key] {
			t.Errorf("%s has no difference: %s", key, why)
		}
	}
}

// queryDifferences are the attributes in testdata/query.c that may differ, without the type and state of the queue pair.
var queryDifferences = map[string]string{
	"created max_send_wr": "a ring has one entry less than a power of two; rxe tells the requested number",
	"gid 510":             "the table has 256 entries, as an index is a byte; that of rxe has 1024", "gid 765": "see above", "gid 1020": "see above",
	"a.cap.max_send_sge":      "as requested; rxe tells those that fit where inline data would be",
	"a.path_mtu":              "0 before RTR; rxe has the smallest one",
	"a.cur_qp_state":          "the state; rxe tells that of the last IBV_QP_CUR_STATE",
	"a.ah_attr.is_global":     "0 without an address vector",
	"a.ah_attr.sl":            "the service level of the program, which becomes a priority; rxe has none",
	"a.ah_attr.grh.hop_limit": "that of the program; rxe takes the default of IP",
	"a.max_rd_atomic":         "that of the program; rxe rounds it up to a power of two",
}

// fileDifferences are the files of a device in sysfs that may differ, and the folders with files that rxe lacks.
var fileDifferences = map[string]string{
	"board_id": "as of adapters, for ibstat", "hca_type": "as of adapters, for ibstat", "hw_rev": "as of adapters, for ibstat",
	"fw_ver": "a version of roced", "node_desc": "the device's name", "node_guid": "from the MAC", "sys_image_guid": "from the MAC",
	"parent":                          "rxe's own file; the net device is below device/net",
	"uevent":                          "the tree is no driver model",
	"ports/1/lid":                     "lower half of the IPv4 address, for programs without GIDs",
	"ports/1/rate":                    "100 Gb/s",
	"counters":                        "of IBTA, as of adapters; rxe has none",
	"hw_counters":                     "of mlx5 and of roced",
	"ports/1/hw_counters/lifespan":    "the age of cached values; a read returns the current value",
	"ports/1/hw_counters/link_downed": "among the counters of IBTA",
}

// queried returns the key of a line of testdata/query.c.
func queried(name string) string {
	f := strings.SplitN(name, " ", 4)
	switch {
	case f[0] != "qp":
		return name
	case f[2] == "created":
		return "created " + f[3]
	}
	return f[3]
}

// TestQueries compares ibv_query_qp() in each state, ibv_query_srq(), ibv_query_gid() and ibv_query_pkey() with those of
// rdma_rxe of Linux 6.1: testdata has the output of query.c in the virtual machine (internal/lab/vm).
func TestQueries(t *testing.T) {
	c := verbs(t, newLab(t), "query")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile("testdata/rxe.query")
	lab.Must(t, err)
	compare(t, attributes(string(out)), attributes(string(text)), queryDifferences, queried)
}

// filesOf returns the contents of the files of a device, except the entries of the GID table.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	lab.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, dir)
		if err != nil || !d.Type().IsRegular() || strings.Contains(name, "/gid") {
			return err
		}
		text, err := os.ReadFile(path)
		all[name] = strings.TrimSpace(string(text))
		if strings.Contains(name, "counters/") {
			all[name] = "0" // traffic of the network
		}
		return err
	}))
	return all
}

// TestFiles compares the files of a device in sysfs, and their contents, with those of rdma_rxe of Linux 6.1, except the entries
// of the GID table, which TestGIDTable reads.
func TestFiles(t *testing.T) {
	h := newLab(t).Host[0]
	text, err := os.ReadFile("testdata/rxe.sysfs")
	lab.Must(t, err)
	theirs := attributes(string(text))
	var ours map[string]string
	lab.Eventually(t, lab.Limit, "an active port with all counters", func() bool {
		ours = filesOf(t, filepath.Join(h.RunDir, "sysfs/class/infiniband", h.Device)+"/")
		for name := range theirs {
			if _, ok := ours[name]; !ok && fileDifferences[name] == "" {
				return false
			}
		}
		return ours["ports/1/counters/port_xmit_data"] != "" && ours["ports/1/state"] == theirs["ports/1/state"]
	})
	compare(t, ours, theirs, fileDifferences, func(name string) string {
		if _, both := theirs[name]; both || !strings.Contains(name, "/") {
			return name
		}
		return filepath.Base(filepath.Dir(name))
	})
}

// rdmaDifferences are the words in the output of "rdma -d" that may differ.
var rdmaDifferences = map[string]string{
	"dev fw": "rxe has no version", "dev 1.0.0": "see above",
	"dev adaptive-moderation": "the NIC delays no event", "dev off": "see above",
	"dev AUTO_PATH_MIG": "rxe announces it without alternate paths", "dev CHANGE_PHY_PORT": "rxe announces it with one port",
	"dev CURR_QP_STATE_MOD": "IBV_QP_CUR_STATE works",
	"link netdev":           "the NIC of the test has none", "link eth0": "see above", "link netdev_index": "see above",
	"resource ctx": "kept in the kernel; rocectl show has them", "resource srq": "rocectl show has them",
	"statistic": "refused; hw_counters in sysfs and rocectl stat have the counters",
}

// wordsOf returns the words in the output of "rdma -d COMMAND", but no numbers, addresses and names of devices.
func wordsOf(command, text string) map[string]string {
	all := map[string]string{}
	for _, w := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \n,<>", r) }) {
		if number := strings.Trim(w, "0123456789abcdef:") == ""; !number && !strings.HasPrefix(w, "rxe0") {
			all[command+" "+w] = ""
		}
	}
	return all
}

// TestRDMATool compares the words of "rdma -d" with those on rdma_rxe of Linux 6.1.
func TestRDMATool(t *testing.T) {
	needDebian12(t)
	l := newLab(t)
	linkUp(t, l)
	run := l.Host[0].RunDir
	text, err := os.ReadFile("testdata/rxe.rdma")
	lab.Must(t, err)
	ours, theirs := map[string]string{}, map[string]string{}
	for part := range strings.SplitSeq(strings.TrimPrefix(string(text), "# rdma -d "), "# rdma -d ") {
		command, was, _ := strings.Cut(part, "\n")
		out, err := preloaded(t, run, filepath.Join(run, "sysfs"), "rdma", "-d", command).CombinedOutput()
		if err != nil {
			if ours["statistic"] = string(out); command != "statistic" {
				t.Errorf("%s: %v\n%s", command, err, out)
			}
			continue
		}
		maps.Copy(ours, wordsOf(command, string(out)))
		maps.Copy(theirs, wordsOf(command, was))
	}
	compare(t, ours, theirs, rdmaDifferences, func(name string) string { return name })
}
