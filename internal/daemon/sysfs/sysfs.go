// Package sysfs maintains the file tree in which programs look for verbs devices. It has the layout below /sys/class
// of a kernel with InfiniBand. libibverbs reads it at SYSFS_PATH. The preload library redirects programs that open
// /sys itself.
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
	"strings"
	"sync"
)

// Kernel ABI versions and device numbers that user libraries compare.
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
	Name     string // for example rxe_a
	Index    int    // N of uverbsN
	GUID     [8]byte
	Firmware string
	// PortOf names an earlier device with the same port; empty: the device has its own port.
	PortOf string
	// Netdev is the network device of the port; empty: none.
	Netdev string
}

// Port is the variable state of a device.
type Port struct {
	Active   bool
	LID      uint16
	GIDs     [][16]byte
	Counters []Counter // standard counters and counters of the device
}

// Counter is a counter of the port.
type Counter struct {
	Name  string
	Value uint64
}

// Tree is a tree of files.
type Tree struct {
	root string
	mu   sync.Mutex
	text map[string]string // content of each file, to write only changed files
}

// New creates a tree at root and removes older content. Programs set SYSFS_PATH to root.
func New(root string) (*Tree, error) {
	if err := os.RemoveAll(root); err != nil {
		return nil, err
	}
	t := &Tree{root: root, text: map[string]string{}}
	return t, errors.Join(
		t.write("class/infiniband_verbs/abi_version", strconv.Itoa(verbsABI)),
		t.write("class/misc/rdma_cm/abi_version", strconv.Itoa(cmABI)),
		t.write("class/misc/rdma_cm/dev", cmDev),
		t.write(nodes+"/rdma_cm", ""),
		os.MkdirAll(filepath.Join(root, "class/infiniband"), 0o755),
	)
}

// Root returns the path of the tree.
func (t *Tree) Root() string { return t.root }

// Close removes the tree.
func (t *Tree) Close() error { return os.RemoveAll(t.root) }

// Add adds a device. Its name and index must be unique. Add ignores p if the port belongs to another device.
func (t *Tree) Add(d *Device, p *Port) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	verbs, dev := d.paths()
	if t.text[verbs+"/ibdev"] != "" || t.text[dev+"/node_type"] != "" {
		return fmt.Errorf("two verbs devices are called %s or have the number %d", d.Name, d.Index)
	}
	err := t.files(map[string]string{
		d.node():                  "",
		verbs + "/dev":            fmt.Sprintf("%d:%d", verbMajor, verbMinor+d.Index),
		verbs + "/abi_version":    strconv.Itoa(rxeABI),
		dev + "/node_type":        "1: CA",
		dev + "/node_guid":        groups(d.GUID[:]),
		dev + "/sys_image_guid":   groups(d.GUID[:]),
		dev + "/node_desc":        d.Name,
		dev + "/fw_ver":           d.Firmware,
		dev + "/hca_type":         "roced",
		dev + "/board_id":         "roced",
		dev + "/device/numa_node": "-1",
	})
	if err == nil {
		err = t.addPort(dev, d, p)
	}
	if err == nil {
		err = t.write(verbs+"/ibdev", d.Name) // last, because libibverbs reads the other files after this one
	}
	return err
}

func (t *Tree) addPort(dev string, d *Device, p *Port) error {
	if d.PortOf != "" {
		return os.Symlink(filepath.Join("..", d.PortOf, "ports"), filepath.Join(t.root, dev, "ports"))
	}
	port := dev + "/ports/1"
	return errors.Join(t.update(port, d.Netdev, p), t.files(map[string]string{
		port + "/sm_lid":         "0x0",
		port + "/sm_sl":          "0",
		port + "/lid_mask_count": "0",
		port + "/cap_mask":       "0x00010000", // IB_PORT_CM_SUP, as in QUERY_PORT
		port + "/link_layer":     "Ethernet",
		port + "/rate":           "100 Gb/sec (4X EDR)",
		port + "/pkeys/0":        "0xffff",
	}))
}

// Alias adds a device of another tree with symbolic links. It serves trees for programs that see only some devices.
func (t *Tree) Alias(of *Tree, d *Device) error {
	verbs, dev := d.paths()
	for _, name := range []string{dev, verbs} {
		path := filepath.Join(t.root, name)
		to, err := filepath.Rel(filepath.Dir(path), filepath.Join(of.root, name))
		if err != nil {
			return err
		}
		if err := os.Symlink(to, path); err != nil {
			return err
		}
	}
	return t.write(d.node(), "")
}

// nodes is the folder that the preload library shows as /dev/infiniband. It has a placeholder for each device node,
// so programs can list the nodes.
const nodes = "dev/infiniband"

// node returns the path of a device node's placeholder.
func (d *Device) node() string { return fmt.Sprintf("%s/uverbs%d", nodes, d.Index) }

// paths returns the folders of a device.
func (d *Device) paths() (verbs, dev string) {
	return fmt.Sprintf("class/infiniband_verbs/uverbs%d", d.Index), filepath.Join("class/infiniband", d.Name)
}

// Update writes the variable files of a device's own port.
func (t *Tree) Update(d *Device, p *Port) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, dev := d.paths()
	return t.update(dev+"/ports/1", d.Netdev, p)
}

func (t *Tree) update(port, netdev string, p *Port) error {
	state, phys := "1: DOWN", "2: Polling"
	if p.Active {
		state, phys = "4: ACTIVE", "5: LinkUp"
	}
	files := map[string]string{port + "/state": state, port + "/phys_state": phys,
		port + "/lid": fmt.Sprintf("%#x", p.LID)}
	for i, g := range p.GIDs {
		n := strconv.Itoa(i)
		files[port+"/gids/"+n] = groups(g[:])
		files[port+"/gid_attrs/types/"+n] = "RoCE v2"
		files[port+"/gid_attrs/ndevs/"+n] = netdev
	}
	for _, c := range p.Counters {
		files[filepath.Join(port, counterFile(c.Name))] = strconv.FormatUint(c.Value, 10)
	}
	return errors.Join(t.files(files), t.trimGIDs(port, len(p.GIDs)))
}

// trimGIDs removes the GIDs from index n on.
func (t *Tree) trimGIDs(port string, n int) error {
	for ; ; n++ {
		for _, folder := range []string{"/gids/", "/gid_attrs/types/", "/gid_attrs/ndevs/"} {
			name := port + folder + strconv.Itoa(n)
			if t.text[name] == "" {
				return nil
			}
			if err := os.Remove(filepath.Join(t.root, name)); err != nil {
				return err
			}
			delete(t.text, name)
		}
	}
}

// standard lists the counters of IBTA vol.1 16.1.4.5 by their Linux names. All other counters belong to the device.
var standard = map[string]bool{
	"port_xmit_data": true, "port_rcv_data": true, "port_xmit_packets": true, "port_rcv_packets": true,
	"unicast_xmit_packets": true, "unicast_rcv_packets": true, "multicast_xmit_packets": true,
	"multicast_rcv_packets": true, "port_rcv_errors": true, "port_xmit_discards": true, "link_downed": true,
}

// groupsOfCM lists the folders of the connection manager's counters. Each folder has a counter for each message type,
// for example cm_tx_msgs/req.
var groupsOfCM = []string{"cm_tx_msgs", "cm_tx_retries", "cm_rx_msgs", "cm_rx_duplicates"}

// counterFile returns the path of a port counter in Linux.
func counterFile(counter string) string {
	if standard[counter] {
		return "counters/" + counter
	}
	for _, g := range groupsOfCM {
		if kind, ok := strings.CutPrefix(counter, g+"_"); ok {
			return g + "/" + kind
		}
	}
	return "hw_counters/" + counter
}

// groups formats a GUID or GID as sysfs does: groups of four hexadecimal digits.
func groups(b []byte) string {
	var s []byte
	for i := 0; i < len(b); i += 2 {
		s = fmt.Appendf(s, ":%02x%02x", b[i], b[i+1])
	}
	return string(s[1:])
}

// files writes files by name.
func (t *Tree) files(files map[string]string) error {
	var errs []error
	for name, text := range files {
		errs = append(errs, t.write(name, text))
	}
	return errors.Join(errs...)
}

// write replaces a file atomically if its content has changed.
func (t *Tree) write(name, text string) error {
	text += "\n"
	if t.text[name] == text {
		return nil
	}
	path := filepath.Join(t.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp := filepath.Join(t.root, ".new")
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	t.text[name] = text
	return nil
}
