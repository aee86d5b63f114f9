package test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"roced.io/roced/internal/lab"
)

// TestForeignDevices runs programs on a machine that seems to have RDMA devices of its kernel. With "rocectl exec" they
// find only the daemon's.
func TestForeignDevices(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a changed /sys/class and /dev")
	}
	lab.Need(t, "ucx_info")
	l := newLab(t)
	h := l.Host[0]
	foreign := compile(t, "foreign", "-libverbs")
	among := func(args ...string) string {
		t.Helper()
		line := append([]string{"-m", "sh", "testdata/foreign_device.sh", t.TempDir()}, args...)
		out, err := exec.Command("unshare", line...).CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	among(foreign) // it finds those of the kernel
	run := func(args ...string) string {
		t.Helper()
		return among(append([]string{lab.Program("rocectl"), "--run-dir", h.RunDir, "exec", "--"}, args...)...)
	}
	run(foreign, h.Device)
	for _, c := range [][]string{{"ibv_devices"}, {"ibv_devinfo"}, {"ucx_info", "-d"}} {
		if out := run(c...); !strings.Contains(out, h.Device) || strings.Contains(out, "mlx5") {
			t.Errorf("%v finds other devices than %s:\n%s", c, h.Device, out)
		}
	}
}
