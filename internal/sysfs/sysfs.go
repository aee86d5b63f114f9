// Package sysfs keeps the tree of files in which programs look for verbs devices:
// what a kernel with InfiniBand shows below /sys/class. libibverbs reads it at
// SYSFS_PATH; the preload library sends those there who ask for /sys itself.
//
//	class/infiniband_verbs/abi_version
//	class/infiniband_verbs/uverbs0/{ibdev,dev,abi_version}
//	class/infiniband/rxe_a/{node_type,node_guid,fw_ver,...}
//	class/infiniband/rxe_a/ports/1/{state,gids/0,gid_attrs/types/0,counters/...}
//	class/misc/rdma_cm/{abi_version,dev}
package sysfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// Numbers of the kernel that user libraries compare.
const (
	verbsABI  = 6 // IB_USER_VERBS_ABI_VERSION
	rxeABI    = 2 // RXE_UVERBS_ABI_VERSION
	cmABI     = 4 // RDMA_USER_CM_ABI_VERSION
	verbMajor = 231
	verbMinor = 192 // of uverbs0
	cmDev     = "10:58"
)

// Device is a verbs device.
type Device struct {
	Name     string // such as rxe_a
	Index    int    // N of uverbsN
	GUID     [8]byte
	Firmware string
	// Netdev is the network device of the port; empty if it has none.
	Netdev string
}

// Port is what changes in a device.
type Port struct {
	Active   bool
	GIDs     [][16]byte
	Counters []Counter // standard ones and those of the device
}

// Counter is a counter of the port.
type Counter struct {
	Name  string
	Value uint64
}

// Tree is a tree of files.
type Tree struct {
	root string
	mu   sync.Mutex // one writer at a time
}

// New makes a tree at root and removes what was there. Root is what SYSFS_PATH is
// to be.
func New(root string) (*Tree, error) {
	if err := os.RemoveAll(root); err != nil {
		return nil, err
	}
	t := &Tree{root: root}
	return t, errors.Join(
		t.write("class/infiniband_verbs/abi_version", strconv.Itoa(verbsABI)),
		t.write("class/misc/rdma_cm/abi_version", strconv.Itoa(cmABI)),
		t.write("class/misc/rdma_cm/dev", cmDev),
		os.MkdirAll(filepath.Join(root, "class/infiniband"), 0o755),
	)
}

// Root is the path of the tree.
func (t *Tree) Root() string { return t.root }

// Close removes the tree.
func (t *Tree) Close() error { return os.RemoveAll(t.root) }

// Add shows a device.
func (t *Tree) Add(d *Device, p *Port) error {
	verbs := fmt.Sprintf("class/infiniband_verbs/uverbs%d", d.Index)
	dev := filepath.Join("class/infiniband", d.Name)
	err := t.files(map[string]string{
		verbs + "/dev":                  fmt.Sprintf("%d:%d", verbMajor, verbMinor+d.Index),
		verbs + "/abi_version":          strconv.Itoa(rxeABI),
		dev + "/node_type":              "1: CA",
		dev + "/node_guid":              groups(d.GUID[:]),
		dev + "/sys_image_guid":         groups(d.GUID[:]),
		dev + "/node_desc":              d.Name,
		dev + "/fw_ver":                 d.Firmware,
		dev + "/hca_type":               "roced",
		dev + "/device/numa_node":       "-1",
		dev + "/ports/1/lid":            "0x0",
		dev + "/ports/1/sm_lid":         "0x0",
		dev + "/ports/1/sm_sl":          "0",
		dev + "/ports/1/lid_mask_count": "0",
		dev + "/ports/1/cap_mask":       "0x00890000",
		dev + "/ports/1/link_layer":     "Ethernet",
		dev + "/ports/1/rate":           "100 Gb/sec (4X EDR)",
		dev + "/ports/1/pkeys/0":        "0xffff",
	})
	if err == nil {
		err = t.Update(d, p)
	}
	// Last what makes libibverbs look at the rest.
	return errors.Join(err, t.files(map[string]string{verbs + "/ibdev": d.Name}))
}

// Update brings the changing files of a device up to date.
func (t *Tree) Update(d *Device, p *Port) error {
	port := filepath.Join("class/infiniband", d.Name, "ports/1")
	state, phys := "1: DOWN", "3: Disabled"
	if p.Active {
		state, phys = "4: ACTIVE", "5: LinkUp"
	}
	files := map[string]string{port + "/state": state, port + "/phys_state": phys}
	for i, g := range p.GIDs {
		n := strconv.Itoa(i)
		files[port+"/gids/"+n] = groups(g[:])
		files[port+"/gid_attrs/types/"+n] = "RoCE v2"
		files[port+"/gid_attrs/ndevs/"+n] = d.Netdev
	}
	for _, c := range p.Counters {
		files[filepath.Join(port, folder(c.Name), c.Name)] = strconv.FormatUint(c.Value, 10)
	}
	return errors.Join(t.files(files), t.trimGIDs(port, len(p.GIDs)))
}

// trimGIDs removes the GIDs from number n on.
func (t *Tree) trimGIDs(port string, n int) error {
	for ; ; n++ {
		err := os.Remove(filepath.Join(t.root, port, "gids", strconv.Itoa(n)))
		if err != nil {
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			return err
		}
		for _, attr := range []string{"types", "ndevs"} {
			err = errors.Join(err, os.Remove(filepath.Join(t.root, port, "gid_attrs", attr, strconv.Itoa(n))))
		}
		if err != nil {
			return err
		}
	}
}

// standard are the counters of IBTA vol.1 16.1.4.5 as Linux names them; others
// belong to the device.
var standard = map[string]bool{
	"port_xmit_data": true, "port_rcv_data": true, "port_xmit_packets": true, "port_rcv_packets": true,
	"unicast_xmit_packets": true, "unicast_rcv_packets": true, "multicast_xmit_packets": true,
	"multicast_rcv_packets": true, "port_rcv_errors": true, "port_xmit_discards": true, "link_downed": true,
}

func folder(counter string) string {
	if standard[counter] {
		return "counters"
	}
	return "hw_counters"
}

// groups writes a GUID or GID as sysfs does: fours of hexadecimal digits.
func groups(b []byte) string {
	var s []byte
	for i := 0; i < len(b); i += 2 {
		s = fmt.Appendf(s, ":%02x%02x", b[i], b[i+1])
	}
	return string(s[1:])
}

func (t *Tree) files(files map[string]string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for name, text := range files {
		errs = append(errs, t.write(name, text))
	}
	return errors.Join(errs...)
}

// write replaces a file in one step, if its text has changed.
func (t *Tree) write(name, text string) error {
	path := filepath.Join(t.root, name)
	text += "\n"
	if old, err := os.ReadFile(path); err == nil && string(old) == text {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp := filepath.Join(t.root, ".new")
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
