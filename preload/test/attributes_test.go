package test

import (
	"maps"
	"os"
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
	if release, err := os.ReadFile("/etc/debian_version"); err != nil || !strings.HasPrefix(string(release), "12.") {
		t.Skip("testdata has the output of Debian 12; others name other attributes")
	}
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
	names := maps.Clone(ours)
	maps.Copy(names, theirs)
	delete(names, "hca_id")
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a, own := ours[name]
		b, its := theirs[name]
		if same, why := a == b && own == its, differences[name]; same == (why != "") {
			t.Errorf("%s: %q (present: %v), rdma_rxe %q (%v); reason for a difference: %q", name, a, own, b, its, why)
		}
	}
}
