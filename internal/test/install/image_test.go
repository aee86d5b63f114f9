package install

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"roced.io/roced/internal/base/version"
	"roced.io/roced/internal/lab"
)

// image builds the container image of two checkouts, checks that both are equal, and runs it from its archive without
// any right. A container runtime need not be the image's builder.
func image(t *testing.T, dirs []string, head string) {
	for _, program := range []string{"buildah", "runc", "setpriv"} {
		lab.Need(t, program)
	}
	for _, dir := range dirs {
		command(t, []string{"SOURCE_DATE_EPOCH="}, filepath.Join(dir, "tools/scripts/image"), filepath.Join(dir, "bin"), filepath.Join(dir, "out"))
	}
	archive := sameFile(t, dirs, "out/roced.oci.tar")
	if left, err := os.ReadDir(filepath.Join(dirs[0], "out/store")); !os.IsNotExist(err) {
		t.Errorf("buildah's files are left: %v, %v", left, err)
	}
	i := readImage(t, archive)
	for label, want := range map[string]string{"version": version.Number, "revision": head, "licenses": "Apache-2.0"} {
		if got := i.Config.Labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("%s: %q, not %q", label, got, want)
		}
	}
	if i.Created != when || i.OS != "linux" || i.Config.User != "" {
		t.Errorf("created at %s, for %s, user %q", i.Created, i.OS, i.Config.User)
	}
	b := i.unpack(t)
	b.version(t)
	b.daemon(t)
}

// ociImage has an image's metadata (OCI image specification) and its files.
type ociImage struct {
	Created, OS string
	Config      struct {
		User                 string
		Env, Entrypoint, Cmd []string
		Labels               map[string]string
	}
	layers [][]byte
}

type descriptor struct{ Digest string }

func readImage(t *testing.T, archive []byte) *ociImage {
	t.Helper()
	blobs := map[string][]byte{}
	for tr := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		lab.Must(t, err)
		text, err := io.ReadAll(tr)
		lab.Must(t, err)
		blobs[h.Name] = text
	}
	get := func(d descriptor, v any) []byte {
		text := blobs["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
		if v != nil {
			lab.Must(t, json.Unmarshal(text, v))
		}
		return text
	}
	var index struct{ Manifests []descriptor }
	lab.Must(t, json.Unmarshal(blobs["index.json"], &index))
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	get(index.Manifests[0], &manifest)
	i := &ociImage{}
	get(manifest.Config, i)
	for _, l := range manifest.Layers {
		i.layers = append(i.layers, get(l, nil))
	}
	return i
}

// UID 65534 runs containers. Inside, a user namespace maps it to root.
const nobody = 65534

// bundle is a folder from which runc runs a container as an unprivileged user.
type bundle struct {
	image *ociImage
	dir   string
	spec  map[string]any
}

// unpack makes a bundle with runc's configuration for rootless containers.
func (i *ociImage) unpack(t *testing.T) *bundle {
	t.Helper()
	dir := lab.Dir(t)
	b := &bundle{image: i, dir: dir}
	for _, layer := range i.layers {
		zipped, err := gzip.NewReader(bytes.NewReader(layer))
		lab.Must(t, err)
		lab.Must(t, extract(tar.NewReader(zipped), filepath.Join(dir, "rootfs")))
	}
	if os.Geteuid() == 0 {
		lab.Must(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, nobody, nobody))
		}))
	}
	if out, err := b.runc("spec", "--rootless").CombinedOutput(); err != nil {
		t.Fatalf("runc spec: %v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	lab.Must(t, err)
	lab.Must(t, json.Unmarshal(text, &b.spec))
	return b
}

// extract unpacks a layer of folders and files.
func extract(tr *tar.Reader, to string) error {
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(to, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, 0o755)
		case tar.TypeReg:
			var text []byte
			if text, err = io.ReadAll(tr); err == nil {
				err = os.WriteFile(path, text, 0o600)
			}
		case tar.TypeSymlink:
			if err = os.Symlink(h.Linkname, path); err == nil {
				continue // it has no mode of its own
			}
		default:
			err = fmt.Errorf("%s is of type %c", h.Name, h.Typeflag)
		}
		// The header's mode encodes the sticky bit differently from os.FileMode.
		if err = errors.Join(err, os.Chmod(path, h.FileInfo().Mode())); err != nil {
			return err
		}
	}
}

// runc prepares a command of runc.
func (b *bundle) runc(args ...string) *exec.Cmd {
	c := exec.Command("runc", append([]string{"--root", filepath.Join(b.dir, "runc")}, args...)...)
	c.Dir, c.Env = b.dir, append(os.Environ(), "XDG_RUNTIME_DIR="+b.dir)
	if os.Geteuid() == 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return c
}

// run prepares a container that runs the image's entry point. Empty args are the image's own. file, if any, is mounted
// from outside.
func (b *bundle) run(t *testing.T, id string, args []string, file, inside string) *exec.Cmd {
	t.Helper()
	config := &b.image.Config
	if args == nil {
		args = config.Cmd
	}
	process := b.spec["process"].(map[string]any)
	process["args"], process["env"], process["terminal"] = slices.Concat(config.Entrypoint, args), config.Env, false
	b.spec["root"] = map[string]any{"path": "rootfs", "readonly": false}
	mounts := b.spec["mounts"].([]any)
	if file != "" {
		mounts = append(mounts, map[string]any{"destination": inside, "type": "bind", "source": file, "options": []string{"bind", "ro"}})
	}
	spec := map[string]any{}
	for k, v := range b.spec {
		spec[k] = v
	}
	spec["mounts"] = mounts
	text, err := json.Marshal(spec)
	lab.Must(t, err)
	lab.Must(t, os.WriteFile(filepath.Join(b.dir, "config.json"), text, 0o644))
	return b.runc("run", id)
}

// version: the image contains the built programs.
func (b *bundle) version(t *testing.T) {
	t.Helper()
	out, err := b.run(t, "version", []string{"version"}, "", "").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "roced "+version.Number) {
		t.Errorf("%v: %s", err, out)
	}
	info, err := os.Stat(filepath.Join(b.dir, "rootfs/run/roced"))
	if err != nil || info.Mode() != os.ModeDir|os.ModeSticky|0o777 {
		t.Errorf("/run/roced: %v, %v", info, err)
	}
}

// daemon: the image's own command serves a NIC over which the image's roceperf moves memory. The container shares the
// test's network namespace without rights over it, and uses a loopback address.
func (b *bundle) daemon(t *testing.T) {
	t.Helper()
	file := filepath.Join(lab.Dir(t), "roced.yaml")
	own, err := os.ReadFile(filepath.Join(b.dir, "rootfs/etc/roced.yaml"))
	lab.Must(t, err)
	pid := os.Getpid() // other tests may run at the same time
	address := fmt.Sprintf("address: 127.78.%d.%d", pid>>8&0xff, max(pid&0xff, 1))
	lab.Must(t, os.WriteFile(file, []byte(strings.Replace(string(own), "interface: eth0", address, 1)), 0o644))
	lab.Must(t, os.Chmod(filepath.Dir(file), 0o755))
	daemon := lab.LaunchCmd(t, (*exec.Cmd).Start, b.run(t, "daemon", nil, file, "/etc/roced.yaml"))
	t.Cleanup(func() { _ = b.runc("delete", "--force", "daemon").Run() })
	lab.Eventually(t, lab.Limit, "a NIC in the container", func() bool {
		if !daemon.Running() {
			t.Fatal(daemon.Said())
		}
		out, err := b.runc("exec", "daemon", "rocectl", "link").Output()
		return err == nil && strings.Contains(string(out), "ACTIVE")
	})
	perf := []string{"exec", "daemon", "roceperf", "write-bw", "-n", "16", "--verify", "--oob", "unix:/run/roced/oob"}
	server := lab.LaunchCmd(t, (*exec.Cmd).Start, b.runc(perf...))
	lab.Must(t, server.Ready("it listens", func() (bool, error) {
		_, err := os.Stat(filepath.Join(b.dir, "rootfs/run/roced/oob"))
		return err == nil, nil
	}))
	client := lab.LaunchCmd(t, (*exec.Cmd).Start, b.runc(append(perf, "peer")...))
	lab.Must(t, client.Wait(lab.Limit))
	lab.Must(t, server.Wait(lab.Limit))
	if out, err := b.runc("kill", "daemon", "TERM").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	lab.Must(t, daemon.Wait(lab.Limit))
}
