package sysfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The PCI domain of the NICs, and their IDs. Machines number domains from 0, and no vendor has this ID, so neither meets
// real devices.
const (
	pciDomain   = "0ced"
	pciRoot     = "devices/pci" + pciDomain + ":00"
	pciVendor   = "0ced"
	classNIC    = "020000" // Ethernet controller
	classBridge = "060400"
)

// pciBuses is the number of buses behind bridges of bus 0, pciFunctions that of functions of a slot.
const (
	pciBuses     = 255
	pciFunctions = 8
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
		err = t.addFunction(bridge, "0002", classBridge)
	}
	t.pci[d.Name] = pci
	return pci, errors.Join(err, t.addFunction(pci, "0001", classNIC), t.addNet(pci, d.Netdev))
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
func (t *Tree) addFunction(pci, device, class string) error {
	address := filepath.Base(pci)
	files := map[string]string{
		"vendor": "0x" + pciVendor, "device": "0x" + device, "class": "0x" + class, "revision": "0x01",
		"subsystem_vendor": "0x" + pciVendor, "subsystem_device": "0x" + device,
		"max_link_speed": "8.0 GT/s PCIe", "current_link_speed": "8.0 GT/s PCIe", "max_link_width": "16", "current_link_width": "16",
		"numa_node": "-1", "local_cpulist": onlineCPUs(),
		"uevent": fmt.Sprintf("PCI_CLASS=%s\nPCI_ID=%s:%s\nPCI_SUBSYS_ID=%[2]s:%[3]s\nPCI_SLOT_NAME=%[4]s", strings.TrimLeft(class, "0"),
			strings.ToUpper(pciVendor), device, address),
	}
	errs := []error{t.linkBus(pci), t.link(pci+"/subsystem", "bus/pci")}
	for name, text := range files {
		errs = append(errs, t.write(pci+"/"+name, text))
	}
	return errors.Join(errs...)
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
func busName(pci string) string { return "bus/pci/devices/" + filepath.Base(pci) }

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
