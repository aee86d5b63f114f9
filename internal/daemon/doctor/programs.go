package doctor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"roced.io/roced/internal/daemon/environment"
)

// rocePort is the UDP port of RoCEv2 (IBTA annex A17.5).
const rocePort = 4791

// udpPort checks whether another socket holds the port on all addresses, as the kernel's Soft-RoCE does. A socket on
// one address leaves the other addresses free.
func udpPort() []Finding {
	const name = "udp port 4791"
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 91, 47, 91), Port: rocePort})
	switch {
	case err == nil:
		_ = c.Close()
		return one(name, OK, "free", "")
	case errors.Is(err, syscall.EADDRINUSE):
		do := "ss -lunp sport = 4791 says who"
		if text, err := os.ReadFile("/proc/modules"); err == nil && strings.Contains(string(text), "rdma_rxe ") {
			do = "the kernel's Soft-RoCE has it: rdma link delete, modprobe -r rdma_rxe"
		}
		return one(name, Missing, "somebody has it, at all addresses", do)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return one(name, Limited, "no address of 127.0.0.0/8: the loopback interface is down, or has IPv6 only", "ip link set lo up, ip address add 127.0.0.1/8 dev lo")
	}
	return one(name, Missing, err.Error(), "")
}

// library checks whether the dynamic linker accepts the preload library.
func library() []Finding {
	const name = "library"
	lib, err := environment.Library()
	if err != nil {
		return one(name, Missing, err.Error(), "make build with a C compiler (Debian: gcc), or install the package")
	}
	program, err := exec.LookPath("true")
	if err != nil {
		return one(name, Limited, lib+": not tried, for there is no program true", "")
	}
	c := exec.Command(program)
	c.Env = append(os.Environ(), "LD_PRELOAD="+lib)
	said, err := c.CombinedOutput()
	if text := strings.TrimSpace(string(said)); err != nil || text != "" {
		return one(name, Missing, fmt.Sprintf("%s cannot be loaded: %s", lib, strings.Join([]string{text, errText(err)}, " ")),
			"build it on this system (make build): it wants this processor and a glibc that is not older than its own")
	}
	return one(name, OK, lib, "")
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// folders are the directories of C libraries.
var folders = []string{"/usr/lib/*", "/usr/lib64", "/usr/lib", "/lib/*", "/lib64", "/usr/local/lib", "/usr/local/lib/*"}

// find returns the first file with this name in folders.
func find(name string) string {
	for _, dir := range folders {
		if found, err := filepath.Glob(filepath.Join(dir, name)); err == nil && len(found) > 0 {
			return found[0]
		}
	}
	return ""
}

// rdmaCore checks for the libraries to which unmodified programs link.
func rdmaCore() []Finding {
	const name = "rdma-core"
	var lacks, debian []string
	for _, part := range []struct{ what, pkg, found string }{
		{"libibverbs", "libibverbs1", find("libibverbs.so.1")},
		{"its provider rxe", "ibverbs-providers", find("libibverbs/librxe-rdmav*.so")},
		{"the provider's name in /etc/libibverbs.d", "ibverbs-providers", driver()},
	} {
		if part.found == "" {
			lacks, debian = append(lacks, part.what), append(debian, part.pkg)
		}
	}
	if lacks != nil {
		return one(name, Missing, "there is no "+strings.Join(lacks, ", no "), "Debian: apt install "+debian[0]+"; programs in Go need none")
	}
	if find("librdmacm.so.1") == "" {
		return one(name, Limited, "no librdmacm, for programs that connect by addresses", "Debian: apt install librdmacm1")
	}
	return one(name, OK, "libibverbs, librdmacm and the provider rxe", "")
}

func driver() string {
	const file = "/etc/libibverbs.d/rxe.driver"
	if _, err := os.Stat(file); err != nil {
		return ""
	}
	return file
}

// others lists the kernel's RDMA devices. The preload library hides them from programs.
func others() []Finding {
	const name = "other devices"
	entries, err := os.ReadDir("/sys/class/infiniband")
	if err != nil || len(entries) == 0 {
		return one(name, OK, "none", "")
	}
	return one(name, OK, fmt.Sprintf("%d of the kernel, which programs under rocectl exec do not see", len(entries)), "")
}
