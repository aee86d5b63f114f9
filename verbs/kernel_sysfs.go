package verbs

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelSysfs is the mount point of sysfs.
const kernelSysfs = "/sys"

// kernelDevice is a device in sysfs.
type kernelDevice struct {
	name string // for example rxe0
	dir  string // path of the device in sysfs
}

// rxeABI is RXE_UVERBS_ABI_VERSION.
const rxeABI = "2"

// findKernelDevice finds the device of a path such as /dev/infiniband/uverbs0. It must be one of rdma_rxe, because
// its ring layout is needed. Only rdma_rxe has the attribute `parent`.
func findKernelDevice(sysfs, path string) (d kernelDevice, err error) {
	verbs := filepath.Join(sysfs, "class/infiniband_verbs", filepath.Base(path))
	if d.name, err = readWord(filepath.Join(verbs, "ibdev")); err != nil {
		return d, err
	}
	d.dir = filepath.Join(sysfs, "class/infiniband", d.name)
	abi, err := readWord(filepath.Join(verbs, "abi_version"))
	if err != nil {
		return d, err
	}
	if _, err := readWord(filepath.Join(d.dir, "parent")); err != nil || abi != rxeABI {
		return d, fmt.Errorf("%s is not a device of rdma_rxe: %w", d.name, unix.EOPNOTSUPP)
	}
	return d, nil
}

// readWord reads a file of one line.
func readWord(path string) (string, error) {
	b, err := os.ReadFile(path)
	return strings.TrimSpace(string(b)), err
}

// typeRoCEv2 is the type of GIDs in sysfs that are IP addresses.
const typeRoCEv2 = "RoCE v2"

// gid reads an entry of the table. Empty entries, and GIDs of other types, are zero.
func (d *kernelDevice) gid(port, index int) (g GID, err error) {
	const verb = "query_gid"
	detail := fmt.Sprintf("port %d, index %d", port, index)
	dir := filepath.Join(d.dir, "ports", strconv.Itoa(port))
	text, err := readWord(filepath.Join(dir, "gids", strconv.Itoa(index)))
	if errors.Is(err, fs.ErrNotExist) {
		err = unix.EINVAL // as roced returns
	}
	if err != nil {
		return g, fail(verb, detail, bare(err))
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return g, fail(verb, detail, ErrProtocol)
	}
	if a.IsUnspecified() {
		return g, nil
	}
	if typ, err := readWord(filepath.Join(dir, "gid_attrs/types", strconv.Itoa(index))); err != nil || typ != typeRoCEv2 {
		return g, nil // of another type, or removed meanwhile
	}
	return a.As16(), nil
}

// stats reads the counters of the port.
func (d *kernelDevice) stats() ([]Stat, error) {
	const verb = "query_stats"
	dir := filepath.Join(d.dir, "ports/1/hw_counters")
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fail(verb, "", err)
	}
	var out []Stat
	for _, f := range files {
		if f.Name() == "lifespan" { // not a counter
			continue
		}
		text, err := readWord(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, fail(verb, f.Name(), err)
		}
		v, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, fail(verb, f.Name(), ErrProtocol)
		}
		out = append(out, Stat{Name: f.Name(), Value: v})
	}
	return out, nil
}
