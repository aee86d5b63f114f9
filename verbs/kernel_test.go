package verbs_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/daemon/sysfs"
	"roced.io/roced/verbs"
)

// TestKernelABI repeats the device tests with the kernel's commands: one write per command, rings mapped one by one,
// sysfs, and the steps of rdma_cm from CREATE_ID on, one event after the other.
func TestKernelABI(t *testing.T) {
	direct, directCM := openDevice, openManager
	t.Cleanup(func() { openDevice, openManager = direct, directCM })
	openDevice = func(t testing.TB, h *host) (*verbs.Context, error) { return verbs.OpenBridged(h.path, shown(t, h)) }
	openManager = func(h *host) (*verbs.CM, error) { return verbs.OpenCMBridged(filepath.Join(h.dir, "rdma_cm")) }
	for _, c := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"SendRecv", TestSendRecv}, {"ServiceLevel", TestServiceLevel}, {"MemoryOperations", TestMemoryOperations}, {"Datagrams", TestDatagrams},
		{"SharedReceiveQueue", TestSharedReceiveQueue}, {"ResizeSharedReceiveQueue", TestResizeSharedReceiveQueue},
		{"Regions", TestRegions}, {"Windows", TestWindows}, {"PostErrors", TestPostErrors}, {"Reset", TestReset},
		{"CreateErrors", TestCreateErrors}, {"ResizeAndDestroyCQ", TestResizeAndDestroyCQ}, {"ConnInfo", TestConnInfoJSON},
		{"Overrun", TestOverrun}, {"Waiting", TestWaiting}, {"ManyWaiters", TestManyWaiters}, {"DaemonDies", TestDaemonDies},
		{"CloseWhileWaiting", TestCloseWhileWaiting},
		{"CM", TestCM}, {"CMDatagrams", TestCMDatagrams}, {"CMErrors", TestCMErrors}, {"Kernel", testKernelDevice},
	} {
		t.Run(c.name, c.run)
	}
}

// shown creates the sysfs files of a host's device, with holes in its GID table.
func shown(t testing.TB, h *host) string {
	t.Helper()
	tree, err := sysfs.New(filepath.Join(t.TempDir(), "sys"))
	must(t, err)
	gids := [][16]byte{h.addr.As16(), {}, netip.MustParseAddr("fe80::1").As16()}
	name := "rxe_" + filepath.Base(h.dir)
	must(t, tree.Add(&sysfs.Device{Name: name, Index: int(h.path[len(h.path)-1] - '0')},
		&sysfs.Port{Active: true, GIDs: gids, Counters: []sysfs.Counter{{Name: "sent_pkts", Value: 5}}}))
	must(t, os.WriteFile(filepath.Join(tree.Root(), "class/infiniband", name, "parent"), []byte("eth0\n"), 0o600))
	return tree.Root()
}

// testKernelDevice covers the features specific to kernel devices.
func testKernelDevice(t *testing.T) {
	h := lab(t)[0]
	root := shown(t, h)
	must(t, os.Remove(filepath.Join(root, "class/infiniband/rxe_a/parent")))
	_, err := verbs.OpenBridged(h.path, root)
	want(t, err, unix.EOPNOTSUPP) // a device of another driver, with other rings

	c := h.open(t).ctx
	if c.Name() != "rxe_a" || len(c.Profiles()) != 0 {
		t.Errorf("%q, profiles %v", c.Name(), c.Profiles())
	}
	if k, err := c.QueryClock(); err != nil || !k.Polled || k.KHz != 1e6 {
		t.Errorf("clock %+v, %v", k, err)
	}
	g, err := c.QueryGID(1, 1)
	must(t, err)
	if g != (verbs.GID{}) {
		t.Errorf("the hole is %v", g)
	}
	_, err = c.QueryGID(1, 9999)
	want(t, err, unix.EINVAL)
	must(t, c.SetProfile(""))
	want(t, c.SetProfile("rc"), unix.EOPNOTSUPP)
}
