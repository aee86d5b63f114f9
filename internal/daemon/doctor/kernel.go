package doctor

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/host"
	"roced.io/roced/port"
)

// probes are the checks, in the order of the report.
var probes = []func() []Finding{kernel, memfd, sharing, namespaces, tun, sockets, udpPort, capabilities, limits, library, rdmaCore, others}

func one(name string, s Status, found, do string) []Finding { return []Finding{{name, s, found, do}} }

// kernel reports the super-frames that the kernel supports. Without them the CPU cost of a byte is two to three times
// as high (docs/reference/ports.md).
func kernel() []Finding {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return one("kernel", Limited, err.Error(), "")
	}
	release := unix.ByteSliceToString(u.Release[:])
	status, found := judgeKernel(release)
	do := ""
	if status != OK {
		do = "a newer kernel is faster; everything works"
	}
	return one("kernel", status, found, do)
}

// judgeKernel rates a kernel release.
func judgeKernel(release string) (Status, string) {
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n < 2 {
		return Limited, release + ": of no kind that is known"
	}
	since := func(a, b int) bool { return major > a || major == a && minor >= b }
	var lacks []string
	if !since(5, 0) {
		lacks = append(lacks, "received super-frames on udp (5.0)")
	}
	if !since(4, 18) {
		lacks = append(lacks, "sent ones (4.18)")
	}
	if !since(6, 2) {
		lacks = append(lacks, "super-frames on packet and tap (6.2)")
	}
	if !since(6, 6) {
		lacks = append(lacks, "path MTU 4096 on xdp (6.6)")
	}
	if lacks == nil {
		return OK, release + ": super-frames on udp, packet and tap, path MTU 4096 on xdp"
	}
	return Limited, release + " lacks " + strings.Join(lacks, ", ")
}

// memfd checks for the memory in which programs and the daemon share rings.
func memfd() []Finding {
	fd, err := unix.MemfdCreate("roced-doctor", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err == nil {
		defer unix.Close(fd)
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	}
	if err != nil {
		return one("memfd", Missing, "memfd_create and its seals: "+err.Error(), "allow memfd_create in the container's seccomp profile")
	}
	return one("memfd", OK, "memory can be shared with the daemon", "")
}

// userModeOnly is UFFD_USER_MODE_ONLY (linux/userfaultfd.h).
const userModeOnly = 1

// sharing checks how the daemon accesses registered memory. Without userfaultfd each access costs a system call.
func sharing() []Finding {
	var out []Finding
	if err := userfaultfd(0); err == nil {
		out = one("userfaultfd", OK, "private memory of all programs is shared", "")
	} else if err := userfaultfd(userModeOnly); err == nil {
		out = one("userfaultfd", Limited, "private memory of programs with one thread is shared, that of others is copied",
			"sysctl vm.unprivileged_userfaultfd=1, for speed")
	} else {
		out = one("userfaultfd", Limited, fmt.Sprintf("private memory of programs is copied by system calls; their sparse memory "+
			"can count as memory of the daemon: userfaultfd: %v", err), "allow userfaultfd in the container's seccomp profile")
	}
	return append(out, Finding{"yama", OK, yama(), ""})
}

func userfaultfd(flags int) error {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, uintptr(flags|unix.O_CLOEXEC), 0, 0)
	if errno != 0 {
		return errno
	}
	return unix.Close(int(fd))
}

// yama reports the ptrace restriction. It is no obstacle: programs pass their memory to the daemon themselves.
func yama() string {
	text, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if err != nil {
		return "not in this kernel"
	}
	return fmt.Sprintf("ptrace_scope %s, which is no obstacle: programs pass their memory on", strings.TrimSpace(string(text)))
}

// namespaces checks for the namespaces in which tests create their hosts.
func namespaces() []Finding {
	self, err := os.Executable()
	if err != nil {
		return one("namespaces", Limited, err.Error(), "")
	}
	c := exec.Command(self, "version")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
	if err := c.Run(); err == nil {
		return one("namespaces", OK, "any user can make user and network namespaces", "")
	}
	if host.RequireCaps(host.CapSysAdmin|host.CapNetAdmin) == nil {
		return one("namespaces", OK, "this user can make network namespaces, others cannot", "")
	}
	return one("namespaces", Missing, "no user namespaces for this user",
		"sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns; or be root")
}

func tun() []Finding {
	const device = "/dev/net/tun"
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return one("tun", Missing, device+": "+err.Error(), "modprobe tun; a container gets it by --device /dev/net/tun")
	}
	_ = unix.Close(fd)
	return one("tun", OK, device+" can be opened", "")
}

// sockets checks for the socket types that need a capability or a recent kernel.
func sockets() []Finding {
	try := func(name string, domain int, right string) Finding {
		fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		switch err {
		case nil:
			_ = unix.Close(fd)
			return Finding{name, OK, "can be made", ""}
		case unix.EAFNOSUPPORT:
			return Finding{name, Missing, "the kernel has none", "a kernel with " + right}
		}
		return Finding{name, Missing, err.Error(), "CAP_NET_RAW: be root, or setcap cap_net_raw+ep on roced"}
	}
	return []Finding{try("packet sockets", unix.AF_PACKET, "CONFIG_PACKET"), try("xdp sockets", unix.AF_XDP, "CONFIG_XDP_SOCKETS")}
}

// capabilities reports the capabilities of this process. A daemon that it starts inherits them.
func capabilities() (out []Finding) {
	for _, c := range []host.Caps{host.CapNetAdmin, host.CapBPF} {
		if err := host.RequireCaps(c); err != nil {
			out = append(out, Finding{c.String(), Missing, "this user has it not", "be root; in a container --cap-add " + strings.TrimPrefix(c.String(), "CAP_")})
		} else {
			out = append(out, Finding{c.String(), OK, "this user has it", ""})
		}
	}
	return out
}

// limits checks the limits that are sometimes too small.
func limits() []Finding {
	return []Finding{memlock(), sharedMemory(), receiveBuffer(), portOfDaemon()}
}

// memlockXDP is the memory in bytes that an XDP port locks. The limit does not apply to a process with CAP_IPC_LOCK.
const memlockXDP = 64 << 20

func memlock() Finding {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return Finding{"memlock", Limited, err.Error(), ""}
	}
	if r.Cur < memlockXDP {
		return Finding{"memlock", Limited, fmt.Sprintf("%d KiB may be locked: enough for all but ports of type xdp without CAP_IPC_LOCK", r.Cur>>10),
			"ulimit -l unlimited"}
	}
	return Finding{"memlock", OK, "enough memory may be locked", ""}
}

// shmWanted is the approximate space in bytes that MPI and others use in /dev/shm.
const shmWanted = 64 << 20

func sharedMemory() Finding {
	var s unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &s); err != nil {
		return Finding{"/dev/shm", Limited, err.Error() + ": roced does without, MPI does not", "mount a tmpfs there"}
	}
	free := s.Bavail * uint64(s.Bsize)
	if free < shmWanted {
		return Finding{"/dev/shm", Limited, fmt.Sprintf("%d MiB are free: roced does without, MPI does not", free>>20), "--shm-size 1g of a container"}
	}
	return Finding{"/dev/shm", OK, fmt.Sprintf("%d MiB are free", free>>20), ""}
}

func receiveBuffer() Finding {
	text, err := os.ReadFile("/proc/sys/net/core/rmem_max")
	if err != nil {
		return Finding{"rmem_max", OK, "unknown: /proc/sys is not readable", ""}
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return Finding{"rmem_max", Limited, err.Error(), ""}
	}
	return judgeBuffer(n, host.RequireCaps(host.CapNetAdmin) == nil)
}

// judgeBuffer rates the limit of receive buffers in bytes, which CAP_NET_ADMIN overrides.
func judgeBuffer(limit int, admin bool) Finding {
	switch {
	case admin:
		return Finding{"rmem_max", OK, "does not limit this user", ""}
	case limit < port.ReceiveBuffer:
		return Finding{"rmem_max", Limited, fmt.Sprintf("%d KiB of the %d KiB that a NIC of type udp requests: it may lose frames under load",
			limit>>10, port.ReceiveBuffer>>10), port.RaiseReceiveBuffer}
	}
	return Finding{"rmem_max", OK, "sockets can have large buffers", ""}
}

// portOfDaemon reports whether ordinary users can bind the RoCEv2 port of a daemon that is down.
func portOfDaemon() Finding {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start")
	if err != nil {
		return Finding{"UDP port 4791", OK, "unknown who may bind it: /proc/sys is not readable", ""}
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return Finding{"UDP port 4791", Limited, err.Error(), ""}
	}
	return judgePort(n, os.Geteuid() == 0)
}

// judgePort rates the first port that ordinary users may bind. A daemon of an ordinary user has to bind it.
func judgePort(first int, root bool) Finding {
	const name = "UDP port 4791"
	switch {
	case first > bth.UDPPort && !root:
		return Finding{name, Limited, "ordinary users may not bind it: no NICs of type udp", "sysctl net.ipv4.ip_unprivileged_port_start=1024"}
	case first <= bth.UDPPort && root:
		return Finding{name, OK, "any user may bind it while a daemon of root is down, and get the packets of its peers " +
			"(sysctl net.ipv4.ip_unprivileged_port_start=4792 reserves it)", ""}
	}
	return Finding{name, OK, "reserved for root, or bound by daemons of any user", ""}
}
