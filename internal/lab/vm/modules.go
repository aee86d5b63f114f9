package vm

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// modules are loaded at boot, with their dependencies. Modules that the kernel has built in are skipped.
var modules = []string{
	"virtio_pci", "virtio_net", "virtio_console", "virtio_rng", "tun", "veth", "bridge", "ifb", "dummy", "8021q", "ipv6",
	"sch_netem", "sch_ingress", "sch_prio", "sch_tbf", "cls_bpf", "cls_u32", "cls_matchall", "act_mirred",
	"crc32_generic", "crc32c_generic", "crc32_pclmul", "ib_uverbs", "rdma_cm", "rdma_ucm", "rdma_rxe",
}

// addModules adds the modules and a list of their names in load order.
func addModules(a *archive, tree string) error {
	dir := filepath.Join(tree, "usr/lib/modules") // since Debian 13
	if _, err := os.Stat(dir); err != nil {
		dir = filepath.Join(tree, "lib/modules")
	}
	paths, err := findModules(dir)
	if err != nil {
		return err
	}
	var order strings.Builder
	seen := map[string]bool{}
	var visit func(name string) error
	visit = func(name string) error {
		path, ok := paths[name]
		if !ok || seen[name] {
			return nil
		}
		seen[name] = true
		content, err := readModule(path)
		if err != nil {
			return err
		}
		for _, needed := range dependencies(content) {
			if err := visit(needed); err != nil {
				return err
			}
		}
		a.file("modules/"+name, 0o644, content)
		fmt.Fprintln(&order, name)
		return nil
	}
	for _, name := range modules {
		if err := visit(name); err != nil {
			return err
		}
	}
	if !seen["rdma_rxe"] || !seen["sch_netem"] {
		return fmt.Errorf("the kernel in %s lacks rdma_rxe or sch_netem", tree)
	}
	a.file("modules/order", 0o644, []byte(order.String()))
	return nil
}

// xzSuffix is the suffix of compressed modules, as in Debian since 13.
const xzSuffix = ".xz"

func readModule(path string) ([]byte, error) {
	if strings.HasSuffix(path, xzSuffix) {
		return exec.Command("xz", "-dc", path).Output()
	}
	return os.ReadFile(path)
}

// findModules maps module names to files.
func findModules(dir string) (map[string]string, error) {
	paths := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(strings.TrimSuffix(filepath.Base(path), xzSuffix), ".ko"); ok && err == nil {
			paths[strings.ReplaceAll(name, "-", "_")] = path
		}
		return err
	})
	return paths, err
}

// dependencies reads the dependencies of a module from the strings of its .modinfo section.
func dependencies(module []byte) []string {
	_, after, ok := bytes.Cut(module, []byte("\x00depends="))
	if !ok {
		return nil
	}
	list, _, _ := bytes.Cut(after, []byte{0})
	return strings.FieldsFunc(strings.ReplaceAll(string(list), "-", "_"), func(r rune) bool { return r == ',' })
}
