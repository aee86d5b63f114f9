// Package sysfs maintains the file tree in which programs look for verbs devices. It has the layout below /sys of a
// kernel with InfiniBand, where each NIC is a PCI device. libibverbs reads it at SYSFS_PATH. The preload library redirects
// programs that open /sys itself.
//
//	class/infiniband_verbs/abi_version
//	class/infiniband_verbs/uverbs0/{ibdev,dev,abi_version,device}
//	class/infiniband/rxe_a -> ../../devices/pci0ced:00/0ced:00:00.0/0ced:01:00.0/infiniband/rxe_a
//	class/misc/rdma_cm/{abi_version,dev}
//	bus/pci/devices/0ced:01:00.0 -> ../../../devices/pci0ced:00/0ced:00:00.0/0ced:01:00.0
//	bus/pci/devices/0000:00:00.0 -> /sys/bus/pci/devices/0000:00:00.0: the kernel's
//	devices/pci0ced:00/0ced:00:00.0/{vendor,device,class,config,...}: a bridge for each NIC
//	devices/pci0ced:00/0ced:00:00.0/0ced:01:00.0/{vendor,device,class,numa_node,max_link_speed,uevent,net/,...}
//	.../0ced:01:00.0/infiniband/rxe_a/{node_type,node_guid,fw_ver,device,...}
//	.../0ced:01:00.0/infiniband/rxe_a/ports/1/{state,gids/0,gid_attrs/types/0,counters/...}
package sysfs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"roced.io/roced/rocev2/stack"
)

// Kernel ABI versions and device numbers that user libraries compare.
const (
	verbsABI  = 6 // IB_USER_VERBS_ABI_VERSION
	RxeABI    = 2 // RXE_UVERBS_ABI_VERSION
	cmABI     = 4 // RDMA_USER_CM_ABI_VERSION
	VerbMajor = 231
	VerbMinor = 192 // of uverbs0
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
	text map[string]string // content of each file, to write only changed files; target of each link
	pci  map[string]string // folder of the PCI device of each verbs device
}

// New creates a tree at root and removes older content. Programs set SYSFS_PATH to root.
func New(root string) (*Tree, error) {
	if err := os.RemoveAll(root); err != nil {
		return nil, err
	}
	t := &Tree{root: root, text: map[string]string{}, pci: map[string]string{}}
	return t, errors.Join(
		t.write("class/infiniband_verbs/abi_version", strconv.Itoa(verbsABI)),
		t.write("class/misc/rdma_cm/abi_version", strconv.Itoa(cmABI)),
		t.write("class/misc/rdma_cm/dev", cmDev),
		t.write(nodes+"/rdma_cm", ""),
		os.MkdirAll(filepath.Join(root, "class/infiniband"), 0o755),
		os.MkdirAll(filepath.Join(root, pciBus), 0o755),
		t.ListKernel(),
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
	verbs := d.verbs()
	if t.text[verbs+"/ibdev"] != "" || t.pci[d.Name] != "" {
		return fmt.Errorf("two verbs devices have the name %s or the number %d", d.Name, d.Index)
	}
	pci, err := t.addPCI(d)
	if err != nil {
		return err
	}
	dev := pci + "/infiniband/" + d.Name
	err = t.files(map[string]string{
		d.node():                "",
		verbs + "/dev":          fmt.Sprintf("%d:%d", VerbMajor, VerbMinor+d.Index),
		verbs + "/abi_version":  strconv.Itoa(RxeABI),
		dev + "/node_type":      "1: CA",
		dev + "/node_guid":      groups(d.GUID[:]),
		dev + "/sys_image_guid": groups(d.GUID[:]),
		dev + "/node_desc":      d.Name,
		dev + "/fw_ver":         d.Firmware,
		dev + "/hw_rev":         "0",
		dev + "/hca_type":       "roced",
		dev + "/board_id":       "roced",
	})
	if err == nil {
		err = errors.Join(t.link(dev+"/device", pci), t.link(verbs+"/device", pci), t.link("class/infiniband/"+d.Name, dev),
			t.addPort(dev, d, p))
	}
	if err == nil {
		err = t.write(verbs+"/ibdev", d.Name) // last, because libibverbs reads the other files after this one
	}
	return err
}

// Remove removes devices of one port. libibverbs then no longer finds them.
func (t *Tree) Remove(devices ...*Device) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for _, d := range devices {
		pci := t.pci[d.Name]
		for _, root := range append(t.unused(pci), d.verbs(), "class/infiniband/"+d.Name, d.node(), busName(pci), pci) {
			errs = append(errs, os.RemoveAll(filepath.Join(t.root, root)))
			maps.DeleteFunc(t.text, func(name, _ string) bool { return name == root || strings.HasPrefix(name, root+"/") })
		}
	}
	for _, d := range devices {
		delete(t.pci, d.Name)
	}
	return errors.Join(errs...)
}

func (t *Tree) addPort(dev string, d *Device, p *Port) error {
	if d.PortOf != "" {
		return t.link(dev+"/ports", filepath.Join(filepath.Dir(dev), d.PortOf, "ports"))
	}
	port := dev + "/ports/1"
	return errors.Join(t.addGIDs(port, d.Netdev), t.update(port, d.Netdev, p), t.files(map[string]string{
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
	t.mu.Lock()
	defer t.mu.Unlock()
	pci := of.pci[d.Name]
	bridge := filepath.Dir(pci)
	for _, name := range []string{bridge, d.verbs()} {
		to, err := filepath.Rel(t.root, filepath.Join(of.root, name))
		if err == nil && t.text[name] == "" {
			err = t.link(name, to)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(t.linkBus(bridge), t.linkBus(pci), t.link("class/infiniband/"+d.Name, pci+"/infiniband/"+d.Name), t.write(d.node(), ""))
}

// nodes is the folder that the preload library shows as /dev/infiniband. It has a placeholder for each device node,
// so programs can list the nodes.
const nodes = "dev/infiniband"

// node returns the path of a device node's placeholder.
func (d *Device) node() string { return fmt.Sprintf("%s/uverbs%d", nodes, d.Index) }

// verbs returns the folder of a device's node.
func (d *Device) verbs() string { return fmt.Sprintf("class/infiniband_verbs/uverbs%d", d.Index) }

// Update writes the variable files of a device's own port.
func (t *Tree) Update(d *Device, p *Port) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.update(t.pci[d.Name]+"/infiniband/"+d.Name+"/ports/1", d.Netdev, p)
}

func (t *Tree) update(port, netdev string, p *Port) error {
	state, phys := "1: DOWN", "2: Polling"
	if p.Active {
		state, phys = "4: ACTIVE", "5: LinkUp"
	}
	files := map[string]string{port + "/state": state, port + "/phys_state": phys,
		port + "/lid": fmt.Sprintf("%#x", p.LID)}
	for i, g := range p.GIDs {
		maps.Copy(files, gidFiles(port, strconv.Itoa(i), groups(g[:]), netdev))
	}
	for _, c := range p.Counters {
		files[filepath.Join(port, counterFile(c.Name))] = strconv.FormatUint(c.Value, 10)
	}
	return t.files(files)
}

// loopback is the network device of GIDs whose port has none: programs that ask for one find a device that exists.
const loopback = "lo"

// gidFiles returns the files of an entry of the GID table.
func gidFiles(port, entry, gid, netdev string) map[string]string {
	return map[string]string{port + "/gids/" + entry: gid, port + "/gid_attrs/types/" + entry: "RoCE v2",
		port + "/gid_attrs/ndevs/" + entry: cmp.Or(netdev, loopback)}
}

// addGIDs creates the files of all entries of a GID table, which are empty at first, as links to those of entry 0. As in
// Linux, an entry has its files before and after it has an address.
func (t *Tree) addGIDs(port, netdev string) error {
	err := t.files(gidFiles(port, "0", groups(make([]byte, 16)), netdev))
	for name, text := range gidFiles(port, "", groups(make([]byte, 16)), netdev) {
		first := filepath.Join(t.root, name, "0")
		for i := 1; i < stack.GIDTableLen && err == nil; i++ {
			entry := strconv.Itoa(i)
			t.text[name+entry] = text + "\n"
			err = os.Link(first, filepath.Join(t.root, name, entry))
		}
	}
	return err
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
