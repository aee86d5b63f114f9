package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	cdi "tags.cncf.io/container-device-interface/specs-go"
)

// imitation imitates a pod. A process holds its network namespace. Each container has its own mount, PID and user
// namespaces.
type imitation struct {
	t      *testing.T
	name   string
	holder *exec.Cmd
}

func newPod(t *testing.T, name string) *imitation {
	t.Helper()
	p := &imitation{t: t, name: name, holder: exec.Command("unshare", "--net", "--ipc", "--uts", "sleep", "infinity")}
	p.holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, p.holder.Start())
	t.Cleanup(func() { p.holder.Process.Kill(); p.holder.Wait() })
	own, err := os.Readlink("/proc/self/ns/net")
	must(t, err)
	eventually(t, "a network of its own", func() bool {
		its, err := os.Readlink(p.netns())
		return err == nil && its != own
	})
	return p
}

func (p *imitation) netns() string { return fmt.Sprintf("/proc/%d/ns/net", p.holder.Process.Pid) }

// connect creates the pods' network, like the CNI plugin before ours.
func connect(t *testing.T, pods ...*imitation) {
	t.Helper()
	sh(t, "nsenter", "--net="+pods[0].netns(), "ip", "link", "add", "eth0", "mtu", "9000", "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(pods[1].holder.Process.Pid))
	for i, p := range pods {
		sh(t, "nsenter", "--net="+p.netns(), "sh", "-ec", fmt.Sprintf("ip link set lo up; ip address add 198.18.5.%d/24 dev eth0; ip link set eth0 mtu 9000 up", i+1))
	}
}

func sh(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// container starts a program in the pod as an unprivileged user, with a read-only root and the settings of the
// device's specification.
func (p *imitation) container(e *cdi.ContainerEdits, program ...string) (*exec.Cmd, *bytes.Buffer) {
	p.t.Helper()
	script := "set -e; mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /opt; mount -t proc proc /proc\n"
	for _, m := range e.Mounts {
		make := "mkdir -p " + m.ContainerPath
		if strings.HasSuffix(m.ContainerPath, ".so") {
			make = fmt.Sprintf("mkdir -p %s; : >%s", filepath.Dir(m.ContainerPath), m.ContainerPath)
		}
		script += fmt.Sprintf("%[1]s; mount --bind %[2]s %[3]s; mount -o remount,bind,ro,nosuid,nodev %[3]s\n", make, m.HostPath, m.ContainerPath)
	}
	script += "exec env -i PATH=/usr/bin:/bin " + strings.Join(e.Env, " ") + " \"$@\"\n"
	args := append([]string{"--net=" + p.netns(), "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
		"unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh"}, program...)
	c := exec.Command("nsenter", args...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	must(p.t, c.Start())
	p.t.Cleanup(func() { c.Process.Kill() })
	return c, &out
}

// edits returns a device's settings like a container runtime: it decodes the specification strictly.
func edits(t *testing.T, dir, device string) *cdi.ContainerEdits {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
	if len(files) != 1 {
		t.Fatalf("%v", files)
	}
	text, err := os.ReadFile(files[0])
	must(t, err)
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var s cdi.Spec
	must(t, d.Decode(&s))
	if err := cdi.ValidateVersion(&s); err != nil {
		t.Error(err)
	}
	e := s.ContainerEdits
	for _, dev := range s.Devices {
		if s.Kind+"="+dev.Name == device {
			e.Mounts = append(e.Mounts, dev.ContainerEdits.Mounts...)
			return &e
		}
	}
	t.Fatalf("no %s in %s", device, text)
	return nil
}

// plug calls the CNI plugin like a container runtime and returns the plugin's output.
func plug(t *testing.T, command, agent string, p *imitation, iface string) (out map[string]any, code int) {
	t.Helper()
	conf := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"pods","type":"roced-cni","agent":%q,"prevResult":{"cniVersion":"1.0.0","ips":[{"address":"198.18.5.9/24"}]}}`, agent)
	c := exec.Command(os.Args[0])
	c.Stdin = strings.NewReader(conf)
	c.Env = []string{"CNI_COMMAND=" + command, "CNI_PATH=/opt/cni/bin", "CNI_CONTAINERID=sandbox-" + p.name, "CNI_NETNS=" + p.netns(), "CNI_IFNAME=" + iface,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=tests;K8S_POD_NAME=" + p.name}
	text, err := c.Output()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	return out, c.ProcessState.ExitCode()
}
