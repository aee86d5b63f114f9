package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/config"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
	"roced.io/roced/verbs"
)

func TestDeviceName(t *testing.T) {
	for _, c := range []struct {
		nic, profile string
		standard     bool
		want         string
	}{
		{"rxe_a", "rc", true, "rxe_a"}, {"a", "rc", true, "rxe_a"}, {"mlx5_0", "irn", false, "rxe_mlx5_0_irn"},
		{"rxe0", "mp-rdma", false, "rxe0_mp_rdma"}, {"rxe0", "irn", true, "rxe0"},
	} {
		if got := deviceName(c.nic, c.profile, c.standard); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// portFile reads a file of rxe_a's port in a tree.
func portFile(t *testing.T, tree, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tree, "class/infiniband/rxe_a/ports/1", name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// within is the timeout of an operation on a slow machine.
const within = 30 * time.Second

// TestRefresh checks that files are up to date after EXT_REFRESH_SYSFS. The file of a changing counter holds a value
// between those before and after the command.
func TestRefresh(t *testing.T) {
	d, runDir := startHere(t)
	conn := openContext(t, runDir)
	sent := func() (n uint64) {
		if err := d.nic("rxe_a").shard.Do(t.Context(), func(_ mono.Time, core *rocev2.NIC) {
			for _, c := range core.CounterSnapshot() {
				if c.Name == "port_xmit_packets" {
					n = c.Value
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	// The NIC resolves a silent neighbour.
	pd, _, err := conn.Call(uverbs.Command(uverbs.CmdAllocPD, 4, uverbs.AllocPD{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	ah := uverbs.CreateAH{PDHandle: uint32(pd[0]), Attr: uverbs.AHAttr{IsGlobal: 1, PortNum: 1,
		GRH: uverbs.GlobalRoute{DGID: [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: 77}, SGIDIndex: 0, HopLimit: 1}}}
	if _, _, err := conn.Call(uverbs.Command(uverbs.CmdCreateAH, 16, ah), nil); err != nil {
		t.Fatal(err)
	}
	start := sent()
	for deadline := time.Now().Add(within); ; {
		low := sent()
		if _, _, err := conn.Call(uverbs.Command(uverbs.ExtRefreshSysfs, 0, struct{}{}), nil); err != nil {
			t.Fatal(err)
		}
		for _, tree := range []string{"sysfs", "nic/rxe_a"} {
			text := portFile(t, filepath.Join(runDir, tree), "counters/port_xmit_packets")
			got, err := strconv.ParseUint(text, 10, 64)
			if high := sent(); err != nil || got < low || got > high {
				t.Fatalf("%s: port_xmit_packets is %s, not between %d and %d", tree, text, low, high)
			}
		}
		if low > start {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no frame is sent, so that nothing was tested")
		}
	}
}

// TestPortEventsAreShown takes the far end of a link down and up.
func TestPortEventsAreShown(t *testing.T) {
	path, runDir := configFile(t)
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Log.Level = "error"
	cfg.NICs = cfg.NICs[:1]
	d, err := Start(cfg, slog.New(newLogOutput(&cfg.Log)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	n := d.nic("rxe_a")
	states := map[bool]string{false: "1: DOWN", true: "4: ACTIVE"}
	active := func() (up bool) {
		if err := n.shard.Do(context.Background(), func(_ mono.Time, core *rocev2.NIC) {
			up = core.PortAttr().State == rocev2.PortActive
		}); err != nil {
			t.Fatal(err)
		}
		return up
	}
	shows := func(up bool) {
		t.Helper()
		for deadline := time.Now().Add(within); ; time.Sleep(time.Millisecond) {
			got := portFile(t, filepath.Join(runDir, "sysfs"), "state")
			if active() == up && got == states[up] {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("the file says %s, the port is %s", got, states[active()])
			}
		}
	}
	shows(false)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: cfg.NICs[0].Port.Remote}); err != nil {
		t.Fatal(err)
	}
	shows(true)
	if err := errors.Join(os.Remove(cfg.NICs[0].Port.Remote), unix.Close(fd)); err != nil {
		t.Fatal(err)
	}
	shows(false)
}

// TestDeviceForEachProfile checks that each NIC has a device for each transport profile. A NIC's own tree shows all
// devices of that NIC.
func TestDeviceForEachProfile(t *testing.T) {
	d, runDir := startWith(t, func(c *config.Config) {
		for i := range c.NICs {
			c.NICs[i].MoreProfiles = []string{"mp-rdma"}
		}
	})
	devices, err := verbs.Devices(runDir)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"rxe_a", "rxe_a_mp_rdma", "rxe_b", "rxe_b_mp_rdma"}
	if len(devices) != len(want) {
		t.Fatalf("%+v", devices)
	}
	for i, dev := range devices {
		text, err := os.ReadFile(filepath.Join(runDir, "sysfs/class/infiniband_verbs", filepath.Base(dev.Path), "ibdev"))
		if err != nil || dev.Name != want[i] || string(text) != want[i]+"\n" {
			t.Errorf("%s: %s, in the tree %s, %v; want %s", dev.Path, dev.Name, text, err, want[i])
		}
	}
	for tree, want := range map[string]string{"nic/rxe_a": "uverbs0 uverbs1", "nic/rxe_b": "uverbs2 uverbs3"} {
		if got := shownIn(t, filepath.Join(runDir, tree)); got != want {
			t.Errorf("%s shows %q, want %q", tree, got, want)
		}
	}
	if got := d.nic("rxe_a").devices[1].server.Profile(); got != "mp-rdma" {
		t.Errorf("the profile is %s", got)
	}
	conn, err := uverbs.Dial(devices[1].Path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, _, err := conn.Call(uverbs.Command(uverbs.ExtRefreshSysfs, 0, struct{}{}), nil); err != nil {
		t.Errorf("refresh by a device that has no port of its own: %v", err)
	}
	for _, tree := range []string{"sysfs", "nic/rxe_a"} {
		text, err := os.ReadFile(filepath.Join(runDir, tree, "class/infiniband/rxe_a_mp_rdma/ports/1/gids/0"))
		if err != nil || string(text) != "0000:0000:0000:0000:0000:ffff:0a00:0001\n" {
			t.Errorf("%s: GID %s, %v", tree, text, err)
		}
	}
}
