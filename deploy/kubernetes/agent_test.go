package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	pod "k8s.io/kubelet/pkg/apis/podresources/v1"
	cdi "tags.cncf.io/container-device-interface/specs-go"
)

func TestMain(m *testing.M) {
	if os.Getenv("CNI_COMMAND") != "" { // this process is the plugin
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// programs returns the folder of roced's programs, which internal/test/kubernetes of the main module has built.
func programs(t *testing.T) string {
	t.Helper()
	bin := os.Getenv("ROCED_BIN")
	if bin == "" || os.Geteuid() != 0 {
		t.Skip("needs root, and ROCED_BIN: the folder of roced's programs")
	}
	return bin
}

// node is an agent and its environment.
type node struct {
	t   *testing.T
	o   Options
	bin string
	end func()
}

func newNode(t *testing.T) *node {
	bin := programs(t)
	dir, err := os.MkdirTemp("", "k8s") // short, because a socket path is limited
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	for _, name := range []string{"roced", "rocectl", "roceperf", "libroced.so"} { // a path that containers' users may read
		text, err := os.ReadFile(filepath.Join(bin, name))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, name), text, 0o755))
	}
	bin = dir
	n := &node{t: t, bin: bin, o: Options{Slots: 3, Dir: dir + "/run", Library: bin + "/libroced.so", Roced: bin + "/roced", Plugins: dir,
		PodResources: dir + "/pods.sock", CDI: dir + "/cdi", Socket: dir + "/agent.sock"}}
	must(t, os.Mkdir(n.o.Dir, 0o755))
	return n
}

// start starts the agent.
func (n *node) start() {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, n.o, slog.New(slog.DiscardHandler)) }()
	var once atomic.Bool
	n.end = func() {
		if once.Swap(true) {
			return
		}
		cancel()
		if err := <-done; err != nil {
			n.t.Error(err)
		}
	}
	n.t.Cleanup(n.end)
}

// serves reports whether a slot has a daemon.
func (n *node) serves(slot string) bool {
	c, err := net.Dial("unix", filepath.Join(n.o.Dir, slot, "roced.sock"))
	if err == nil {
		c.Close()
	}
	return err == nil
}

// health waits until the plugin reports the wanted health of a slot to the kubelet.
func health(t *testing.T, p plugin.DevicePluginClient, slot, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	stream, err := p.ListAndWatch(ctx, &plugin.Empty{})
	must(t, err)
	for {
		all, err := stream.Recv()
		must(t, err)
		if len(all.Devices) != 3 {
			t.Fatalf("%v", all)
		}
		if slices.ContainsFunc(all.Devices, func(d *plugin.Device) bool { return d.ID == slot && d.Health == want }) {
			return
		}
	}
}

func allocate(t *testing.T, p plugin.DevicePluginClient, ids ...string) (*plugin.ContainerAllocateResponse, error) {
	t.Helper()
	r, err := p.Allocate(context.Background(), &plugin.AllocateRequest{ContainerRequests: []*plugin.ContainerAllocateRequest{{DevicesIds: ids}}})
	if err != nil {
		return nil, err
	}
	return r.ContainerResponses[0], nil
}

// TestPods assigns NICs to two pods and transfers data between programs in them.
func TestPods(t *testing.T) {
	n := newNode(t)
	k := startKubelet(t, n.o.Plugins, []*pod.PodResources{has("a", "nic0"), has("b", "nic1"), has("none"), has("greedy", "nic1", "nic2")})
	n.start()
	p := k.plugin(t)
	health(t, p, "nic2", "Healthy")
	a, b := newPod(t, "a"), newPod(t, "b")
	connect(t, a, b)
	var e [2]*cdi.ContainerEdits
	for i, q := range []*imitation{a, b} {
		r, err := allocate(t, p, fmt.Sprintf("nic%d", i))
		must(t, err)
		if len(r.CdiDevices) != 1 || len(r.Mounts) != 0 {
			t.Fatalf("%v", r)
		}
		e[i] = edits(t, n.o.CDI, r.CdiDevices[0].Name)
		for range 2 { // runtimes may repeat a call
			if out, code := plug(t, "ADD", n.o.Socket, q, "eth0"); code != 0 || !strings.Contains(fmt.Sprint(out), "198.18.5.9/24") {
				t.Fatalf("code %d: %v", code, out)
			}
		}
	}
	n.sameAsRocectl(e[0])
	talk(t, a, b, e, filepath.Join(n.bin, "roceperf"), "write-bw", "-s", "64k", "-n", "64", "--verify")
	if _, err := exec.LookPath("ib_write_bw"); err == nil || os.Getenv("CI") == "true" {
		talk(t, a, b, e, "ib_write_bw", "-d", nicName, "-n", "100")
	}
	for i := range e {
		if _, code := plug(t, "CHECK", n.o.Socket, []*imitation{a, b}[i], "eth0"); code != 0 {
			t.Errorf("CHECK: code %d", code)
		}
	}
	n.refused(p, a)
	n.survives(k, p, a)
	for range 2 { // the second call finds nothing to remove
		for _, q := range []*imitation{a, b} {
			if out, code := plug(t, "DEL", n.o.Socket, q, "eth0"); code != 0 {
				t.Errorf("DEL: code %d, %v", code, out)
			}
		}
	}
	for _, slot := range []string{"nic0", "nic1"} {
		if n.serves(slot) {
			t.Errorf("%s has a daemon", slot)
		}
	}
}

// talk runs a program's server in pod b and its client in pod a.
func talk(t *testing.T, a, b *imitation, e [2]*cdi.ContainerEdits, program ...string) {
	t.Helper()
	server, said := b.container(e[1], program...)
	eventually(t, "a server", func() bool {
		for _, name := range []string{"tcp", "tcp6"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", b.holder.Process.Pid, name))
			must(t, err)
			for line := range strings.Lines(string(text)) {
				if strings.Contains(line, ":4853 0") && strings.Contains(line, " 0A ") { // port 18515, LISTEN
					return true
				}
			}
		}
		if server.Process.Signal(syscall.Signal(0)) != nil {
			t.Fatalf("%v has ended: %s", program, said)
		}
		return false
	})
	client, out := a.container(e[0], append(program, "198.18.5.2")...)
	if err := client.Wait(); err != nil {
		t.Fatalf("%v: %v\n%s\nserver:\n%s", program, err, out, said)
	}
	if err := server.Wait(); err != nil {
		t.Fatalf("%v: %v\n%s", program, err, said)
	}
}

// sameAsRocectl checks that a container gets the settings of `rocectl env --container` for the same run directory.
func (n *node) sameAsRocectl(e *cdi.ContainerEdits) {
	n.t.Helper()
	c := exec.Command(filepath.Join(n.bin, "rocectl"), "--run-dir", filepath.Join(n.o.Dir, "nic0"), "env", "--container", "--json")
	c.Env = []string{"ROCED_LIBRARY=" + n.o.Library}
	text, err := c.Output()
	must(n.t, err)
	var said struct {
		Mounts []struct{ Source, Target string }
		Env    []struct{ Name, Value string }
	}
	must(n.t, json.Unmarshal(text, &said))
	want, got := map[string]string{}, map[string]string{}
	for _, m := range said.Mounts {
		want[m.Target] = m.Source
	}
	for _, m := range e.Mounts {
		got[m.ContainerPath] = m.HostPath
	}
	for _, v := range said.Env {
		want[v.Name] = v.Value
	}
	for _, v := range e.Env {
		name, value, _ := strings.Cut(v, "=")
		got[name] = value
	}
	if !reflect.DeepEqual(got, want) {
		n.t.Errorf("got  %v\nwant %v", got, want)
	}
}

// refused checks requests that the agent must reject.
func (n *node) refused(p plugin.DevicePluginClient, a *imitation) {
	n.t.Helper()
	if _, err := allocate(n.t, p, "nic0", "nic1"); err == nil || !strings.Contains(err.Error(), "a container may request 1, not 2") {
		n.t.Errorf("two: %v", err)
	}
	if _, err := allocate(n.t, p, "nic9"); err == nil {
		n.t.Error("nic9 is there")
	}
	if out, code := plug(n.t, "ADD", n.o.Socket, newPod(n.t, "none"), "eth0"); code != 0 || out["ips"] == nil {
		n.t.Errorf("a pod without a NIC: code %d, %v", code, out)
	}
	if n.serves("nic2") {
		n.t.Error("a pod without a NIC has one")
	}
	if out, code := plug(n.t, "ADD", n.o.Socket, newPod(n.t, "greedy"), "eth0"); code != 1 || !strings.Contains(fmt.Sprint(out["msg"]), "at most one container of a pod may request one") {
		n.t.Errorf("two NICs: code %d, %v", code, out)
	}
	if out, code := plug(n.t, "ADD", filepath.Join(n.o.Plugins, "nobody"), a, "eth0"); code != 1 || out["code"] != 11.0 {
		n.t.Errorf("no agent: code %d, %v", code, out)
	}
	if out, code := plug(n.t, "FROB", n.o.Socket, a, "eth0"); code != 1 || out["code"] != 4.0 {
		n.t.Errorf("no such command: code %d, %v", code, out)
	}
	if out, code := plug(n.t, "VERSION", n.o.Socket, a, "eth0"); code != 0 || !slices.Contains(out["supportedVersions"].([]any), any("1.0.0")) {
		n.t.Errorf("code %d, %v", code, out)
	}
}

// survives checks the death of a daemon and restarts of the kubelet and the agent.
func (n *node) survives(k *kubelet, p plugin.DevicePluginClient, a *imitation) {
	n.t.Helper()
	kill(n.t, filepath.Join(n.o.Dir, "nic0"))
	health(n.t, p, "nic0", "Unhealthy")
	if out, code := plug(n.t, "ADD", n.o.Socket, a, "eth0"); code != 0 {
		n.t.Errorf("ADD anew: code %d, %v", code, out)
	}
	health(n.t, p, "nic0", "Healthy")
	k.stop()
	again := startKubelet(n.t, n.o.Plugins, k.pods)
	health(n.t, again.plugin(n.t), "nic1", "Healthy")
	n.end()
	if n.serves("nic0") {
		n.t.Error("a daemon outlives the agent")
	}
	n.start()
	again.plugin(n.t)
	if !n.serves("nic0") || !n.serves("nic1") {
		n.t.Error("pods have not got their NICs back")
	}
}

// kill kills the daemon of a run directory.
func kill(t *testing.T, dir string) {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(dir, "roced.sock")})
	must(t, err)
	defer c.Close()
	raw, err := c.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
		if err == nil && cred.Pid > 1 {
			err = syscall.Kill(int(cred.Pid), syscall.SIGKILL)
		}
		if err != nil {
			t.Error(err)
		}
	}))
}

// TestWithoutCDI checks that the kubelet gets all settings for runtimes without CDI.
func TestWithoutCDI(t *testing.T) {
	n := newNode(t)
	k := startKubelet(t, n.o.Plugins, nil)
	n.start()
	k.plugin(t)
	want := edits(t, n.o.CDI, Resource+"=nic1")
	n.end()
	n.o.CDI = ""
	n.start()
	r, err := allocate(t, k.plugin(t), "nic1")
	must(t, err)
	if len(r.CdiDevices) != 0 || len(r.Mounts) != len(want.Mounts) || len(r.Envs) != len(want.Env) {
		t.Fatalf("%v", r)
	}
	for _, v := range want.Env {
		if name, value, _ := strings.Cut(v, "="); r.Envs[name] != value {
			t.Errorf("%s is %q", v, r.Envs[name])
		}
	}
	for _, m := range want.Mounts {
		if !slices.ContainsFunc(r.Mounts, func(g *plugin.Mount) bool {
			return g.HostPath == m.HostPath && g.ContainerPath == m.ContainerPath && g.ReadOnly
		}) {
			t.Errorf("no %v in %v", m, r.Mounts)
		}
	}
}

// TestNoInterface checks the error message for a pod whose NIC cannot be created.
func TestNoInterface(t *testing.T) {
	n := newNode(t)
	startKubelet(t, n.o.Plugins, []*pod.PodResources{has("a", "nic0")})
	n.start()
	eventually(t, "an agent", func() bool { _, err := os.Stat(n.o.Socket); return err == nil })
	start := time.Now()
	out, code := plug(t, "ADD", n.o.Socket, newPod(t, "a"), "eth7")
	if code != 1 || !strings.Contains(fmt.Sprint(out["msg"]), "eth7: no such interface") || time.Since(start) > limit {
		t.Errorf("code %d, %v", code, out)
	}
}
