// Package vm builds and runs the virtual machine for tests of the NIC. The machine has a stock Debian kernel with
// rdma_rxe and tc netem, under QEMU's emulation. It has the distribution's RDMA programs, and runs shell scripts by
// command. It needs nothing of the host's kernel beyond QEMU's own needs, and no KVM.
package vm

import (
	"bytes"
	"debug/elf"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed guest
var guest embed.FS

// programs are the host's own programs for the image. Their libraries are added, too.
var programs = []string{
	"bash", "ip", "tc", "rdma", "tcpdump",
	"ibv_devices", "ibv_devinfo", "ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong",
	"ib_write_bw", "ib_write_lat", "ib_send_bw", "ib_send_lat", "ib_read_bw", "ib_read_lat", "ib_atomic_bw", "ib_atomic_lat",
	"rping", "ucmatose", "udaddy", "rdma_server", "rdma_client",
}

// files are files that programs open by name.
var files = []string{"/etc/libibverbs.d/rxe.driver", "/etc/protocols", "/etc/services", "/usr/lib/tc/normal.dist"}

// Image is a bootable pair of files.
type Image struct {
	Kernel string // an ELF file, which starts without unpacking itself
	Initrd string
}

// build builds an image in dir, where setup.sh has unpacked a kernel. extra are our programs to copy into /usr/bin.
func build(dir, image string, extra ...string) (Image, error) {
	im := Image{Kernel: filepath.Join(dir, "vmlinux"), Initrd: filepath.Join(dir, "initrd-"+image)}
	tree := filepath.Join(dir, "kernel")
	if err := unpackKernel(tree, im.Kernel); err != nil {
		return im, fmt.Errorf("vm: kernel: %w", err)
	}
	speed, err := compile(dir)
	if err != nil {
		return im, fmt.Errorf("vm: %w", err)
	}
	extra = append(slices.Clip(extra), speed)
	f, err := os.Create(im.Initrd + ".new") // a machine may be booting from the old file
	if err != nil {
		return im, err
	}
	a := newArchive(f)
	err = errors.Join(addModules(a, tree), addSystem(a, extra), a.Close(), f.Close())
	if err != nil {
		return im, fmt.Errorf("vm: initrd: %w", err)
	}
	return im, os.Rename(f.Name(), im.Initrd)
}

// unpackKernel extracts the ELF file from the bzImage of a kernel package. QEMU boots it seconds faster, because the
// emulated machine has nothing to decompress.
func unpackKernel(tree, to string) error {
	found, err := filepath.Glob(filepath.Join(tree, "boot/vmlinuz-*"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("%d kernels in %s", len(found), tree)
	}
	if isNewer(to, filepath.Join(tree, "done")) {
		return nil
	}
	image, err := os.ReadFile(found[0])
	if err != nil {
		return err
	}
	out, err := decompress(image)
	if err != nil {
		return fmt.Errorf("%s: %w", found[0], err)
	}
	if err := os.WriteFile(to+".new", out, 0o600); err != nil {
		return err
	}
	return os.Rename(to+".new", to)
}

// compressions are the formats of Debian's kernels: xz until 12, zstd since 13.
var compressions = []struct {
	magic   string
	command []string
}{
	{"\xfd7zXZ\x00", []string{"xz", "-dc", "--single-stream"}},
	{"\x28\xb5\x2f\xfd", []string{"zstd", "-dc"}},
}

// decompress finds the compressed ELF file in a bzImage. A matching signature may be chance. Trailing data make the
// programs complain.
func decompress(image []byte) ([]byte, error) {
	for _, c := range compressions {
		for at := 0; ; at++ {
			next := bytes.Index(image[at:], []byte(c.magic))
			if next < 0 {
				break
			}
			at += next
			program := exec.Command(c.command[0], c.command[1:]...)
			program.Stdin = bytes.NewReader(image[at:])
			out, err := program.Output()
			if errors.Is(err, exec.ErrNotFound) {
				return nil, err
			}
			if _, bad := elf.NewFile(bytes.NewReader(out)); bad == nil {
				return out, nil
			}
		}
	}
	return nil, errors.New("contains no ELF file compressed by xz or zstd")
}

// isNewer reports whether the file a exists and is not older than b.
func isNewer(a, b string) bool {
	sa, errA := os.Stat(a)
	sb, errB := os.Stat(b)
	return errA == nil && errB == nil && !sa.ModTime().Before(sb.ModTime())
}

// compile compiles rxespeed and returns its path.
func compile(dir string) (to string, err error) {
	text, err := guest.ReadFile("guest/rxespeed.c")
	if err != nil {
		return "", err
	}
	to = filepath.Join(dir, "rxespeed")
	if err := os.WriteFile(to+".c", text, 0o600); err != nil {
		return "", err
	}
	c := exec.Command("cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", to, to+".c", "-libverbs")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("rxespeed: %w\n%s", err, out)
	}
	return to, nil
}

// addSystem adds everything except the modules.
func addSystem(a *archive, extra []string) error {
	text, err := guest.ReadFile("guest/init.sh")
	if err != nil {
		return err
	}
	a.file("init", 0o755, text)
	for _, dir := range []string{"proc", "sys", "dev", "tmp", "run", "root"} {
		a.dir(dir)
	}
	a.file("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\n"))
	a.file("etc/hosts", 0o644, []byte("127.0.0.1 localhost\n"))
	a.file("etc/nsswitch.conf", 0o644, []byte("hosts: files\n"))
	a.link("bin/sh", "/usr/bin/bash")
	if err := a.copy("/bin/busybox", "bin/busybox"); err != nil {
		return err
	}
	provider, err := findOne("/usr/lib/*/libibverbs/librxe-rdmav*.so")
	if err != nil {
		return err
	}
	gcc, err := findOne("/lib/*/libgcc_s.so.1") // libgcc is dlopened when a thread is cancelled
	if err != nil {
		return err
	}
	paths := slices.Clone(extra)
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err != nil {
			return err
		}
		paths = append(paths, path)
	}
	return addPrograms(a, paths, append(slices.Clone(files), provider, gcc))
}

// addPrograms adds programs to /usr/bin, and their libraries and other needed files to their own paths.
func addPrograms(a *archive, paths, needed []string) error {
	for _, path := range paths {
		if err := a.copy(path, filepath.Join("usr/bin", filepath.Base(path))); err != nil {
			return err
		}
		libs, err := libraries(path)
		if err != nil {
			return err
		}
		needed = append(needed, libs...)
	}
	slices.Sort(needed)
	for _, path := range slices.Compact(needed) {
		if err := a.copy(path, strings.TrimPrefix(path, "/")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// libraries lists the libraries of a dynamically linked program.
func libraries(path string) ([]string, error) {
	out, err := exec.Command("ldd", path).CombinedOutput()
	if err != nil {
		if bytes.Contains(out, []byte("not a dynamic executable")) {
			return nil, nil
		}
		return nil, fmt.Errorf("ldd %s: %w\n%s", path, err, out)
	}
	var list []string
	for _, word := range strings.Fields(string(out)) {
		if strings.HasPrefix(word, "/") && strings.Contains(word, ".so") {
			list = append(list, word)
		}
	}
	return list, nil
}

func findOne(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("nothing matches %s", pattern)
	}
	return found[0], nil
}
