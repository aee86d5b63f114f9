package sysfs

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The PCI domain of the NICs, and their IDs. Machines number domains from 0, and no vendor has this ID, so neither meets
// real devices.
const (
	pciDomain   = "0ced"
	pciRoot     = "devices/pci" + pciDomain + ":00"
	pciBus      = "bus/pci/devices"
	pciVendor   = "0ced"
	classNIC    = "020000" // Ethernet controller
	classBridge = "060400"
)

// pciBuses is the number of buses behind bridges of bus 0, pciFunctions that of functions of a slot.
const (
	pciBuses     = 255
	pciFunctions = 8
	pciResources = 7 // base addresses and ROM
)

// addPCI returns the folder of the PCI device of a verbs device, and creates it for the first verbs device of a port. Each
// NIC has a bus and a bridge of its own: programs such as NCCL take all functions and slots of a bus for one card. Only more
// than pciBuses NICs share buses.
func (t *Tree) addPCI(d *Device) (string, error) {
	if d.PortOf != "" {
		t.pci[d.Name] = t.pci[d.PortOf]
		return t.pci[d.Name], nil
	}
	bus, slot := d.Index%pciBuses, d.Index/pciBuses
	bridge := fmt.Sprintf("%s/%s:00:%02x.%x", pciRoot, pciDomain, bus/pciFunctions, bus%pciFunctions)
	pci := fmt.Sprintf("%s/%s:%02x:%02x.0", bridge, pciDomain, bus+1, slot)
	var err error
	if t.text[busName(bridge)] == "" {
		err = t.addFunction(bridge, "0002", classBridge, bus+1)
	}
	t.pci[d.Name] = pci
	return pci, errors.Join(err, t.addFunction(pci, "0001", classNIC, 0), t.addNet(pci, d.Netdev))
}

// unused returns the bridge of a PCI device if no other NIC is behind it, for Remove.
func (t *Tree) unused(pci string) []string {
	bridge := filepath.Dir(pci)
	for _, other := range t.pci {
		if other != pci && filepath.Dir(other) == bridge {
			return nil
		}
	}
	return []string{busName(bridge), bridge}
}

// addFunction creates the files of a PCI device or bridge, whose link carries as much as the port (PCI Express 3.0, 16 lanes).
// behind is the bus behind a bridge. Programs that list the bus, such as lspci, require resource and irq.
func (t *Tree) addFunction(pci, device, class string, behind int) error {
	address := filepath.Base(pci)
	files := map[string]string{
		"vendor": "0x" + pciVendor, "device": "0x" + device, "class": "0x" + class, "revision": "0x01",
		"subsystem_vendor": "0x" + pciVendor, "subsystem_device": "0x" + device,
		"max_link_speed": "8.0 GT/s PCIe", "current_link_speed": "8.0 GT/s PCIe", "max_link_width": "16", "current_link_width": "16",
		"numa_node": "-1", "local_cpulist": onlineCPUs(), "irq": "0",
		"resource": strings.TrimSpace(strings.Repeat("0x0000000000000000 0x0000000000000000 0x0000000000000000\n", pciResources)),
		"uevent": fmt.Sprintf("PCI_CLASS=%s\nPCI_ID=%s:%s\nPCI_SUBSYS_ID=%[2]s:%[3]s\nPCI_SLOT_NAME=%[4]s", strings.TrimLeft(class, "0"),
			strings.ToUpper(pciVendor), device, address),
	}
	space, err := configSpace(device, class, behind)
	errs := []error{err, t.put(pci+"/config", space), t.linkBus(pci), t.link(pci+"/subsystem", "bus/pci")}
	for name, text := range files {
		errs = append(errs, t.write(pci+"/"+name, text))
	}
	return errors.Join(errs...)
}

// configSpace returns the header of a device's or bridge's configuration space (PCI Local Bus Specification 3.0, 6.1;
// PCI-to-PCI Bridge Architecture Specification 1.2, 3.2). The bridge forwards no addresses: its windows end before they
// begin.
func configSpace(device, class string, behind int) (string, error) {
	ids, err := hex.DecodeString(pciVendor + device + class)
	if err != nil {
		return "", err
	}
	id := []byte{ids[1], ids[0], ids[3], ids[2]}
	space := make([]byte, 256)
	copy(space, id)
	copy(space[0x08:], []byte{1, ids[6], ids[5], ids[4]}) // revision and class
	if behind == 0 {
		copy(space[0x2c:], id) // of the subsystem
		return string(space), nil
	}
	space[0x0e] = 1                                        // a bridge
	copy(space[0x19:], []byte{byte(behind), byte(behind)}) // secondary and subordinate bus
	space[0x1c] = 0xf0                                     // I/O
	copy(space[0x20:], "\xf0\xff\x00\x00\xf0\xff\x00\x00") // memory, prefetchable memory
	return string(space), nil
}

// onlineCPUs returns the processors of the machine as a list, such as 0-3: all are equally near to a NIC of the daemon.
func onlineCPUs() string {
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return "0"
	}
	return strings.TrimSpace(string(text))
}

// busName returns the path of a PCI device on its bus.
func busName(pci string) string { return pciBus + "/" + filepath.Base(pci) }

// ListKernel makes the bus list the kernel's PCI devices too, and no longer those that have left the machine.
func (t *Tree) ListKernel() error { return t.listKernel("/sys/" + pciBus) }

func (t *Tree) listKernel(folder string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	bus := filepath.Join(t.root, pciBus)
	there, err := kernelDevices(folder)
	listed, err2 := kernelDevices(bus)
	errs := []error{err, err2}
	for name := range there {
		if !listed[name] {
			errs = append(errs, os.Symlink(filepath.Join(folder, name), filepath.Join(bus, name)))
		}
	}
	for name := range listed {
		if !there[name] {
			errs = append(errs, os.Remove(filepath.Join(bus, name)))
		}
	}
	return errors.Join(errs...)
}

// kernelDevices returns the PCI devices in a folder that are not NICs of the daemon.
func kernelDevices(folder string) (map[string]bool, error) {
	list, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	names := map[string]bool{}
	for _, e := range list {
		if !strings.HasPrefix(e.Name(), pciDomain+":") {
			names[e.Name()] = true
		}
	}
	return names, err
}

// linkBus adds a PCI device to the bus, unless it is there.
func (t *Tree) linkBus(pci string) error {
	if t.text[busName(pci)] != "" {
		return nil
	}
	return t.link(busName(pci), pci)
}

// addNet creates the folder of a PCI device's network devices. The kernel has the files of the network device itself.
func (t *Tree) addNet(pci, netdev string) error {
	net := filepath.Join(t.root, pci, "net")
	if err := os.MkdirAll(net, 0o755); err != nil || netdev == "" {
		return err
	}
	return os.Symlink("/sys/class/net/"+netdev, filepath.Join(net, netdev))
}
