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
	pciDomain = "0ced"
	pciRoot   = "devices/pci" + pciDomain + ":00"
	pciVendor = "0ced"
	pciDevice = "0001"
	pciClass  = "020000" // Ethernet controller
)

// pciSlots is the number of devices on a PCI bus.
const pciSlots = 32

// addPCI returns the folder of the PCI device of a verbs device, and creates it for the first verbs device of a port.
func (t *Tree) addPCI(d *Device) (string, error) {
	if d.PortOf != "" {
		t.pci[d.Name] = t.pci[d.PortOf]
		return t.pci[d.Name], nil
	}
	address := fmt.Sprintf("%s:%02x:%02x.0", pciDomain, d.Index/pciSlots, d.Index%pciSlots)
	pci := pciRoot + "/" + address
	t.pci[d.Name] = pci
	return pci, errors.Join(t.linkBus(pci), t.addNet(pci, d.Netdev), t.link(pci+"/subsystem", "bus/pci"), t.files(map[string]string{
		pci + "/vendor":    "0x" + pciVendor,
		pci + "/device":    "0x" + pciDevice,
		pci + "/class":     "0x" + pciClass,
		pci + "/numa_node": "-1",
		pci + "/uevent":    fmt.Sprintf("PCI_CLASS=%s\nPCI_ID=%s:%s\nPCI_SLOT_NAME=%s", pciClass[1:], strings.ToUpper(pciVendor), pciDevice, address),
	}))
}

// linkBus adds a PCI device to the bus, unless it is there.
func (t *Tree) linkBus(pci string) error {
	name := "bus/pci/devices/" + filepath.Base(pci)
	if t.text[name] != "" {
		return nil
	}
	return t.link(name, pci)
}

// addNet creates the folder of a PCI device's network devices. The kernel has the files of the network device itself.
func (t *Tree) addNet(pci, netdev string) error {
	net := filepath.Join(t.root, pci, "net")
	if err := os.MkdirAll(net, 0o755); err != nil || netdev == "" {
		return err
	}
	return os.Symlink("/sys/class/net/"+netdev, filepath.Join(net, netdev))
}
