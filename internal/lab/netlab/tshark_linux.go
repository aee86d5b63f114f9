package netlab

import (
	"os"
	"os/exec"
	"syscall"
)

// Tshark returns a command that runs tshark with a dissector in Lua. tshark 4.4 and later loads no Lua scripts as root.
// For a process that is root, the command therefore runs with another UID in a user namespace, where it still owns the
// files of root.
func Tshark(dissector string, args ...string) *exec.Cmd {
	c := exec.Command("tshark", append([]string{"-X", "lua_script:" + dissector}, args...)...)
	if os.Geteuid() != 0 {
		return c
	}
	ordinary := []syscall.SysProcIDMap{{ContainerID: 1000, HostID: 0, Size: 1}}
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ordinary, GidMappings: ordinary}
	if try := exec.Command("true"); c.Err == nil { // without user namespaces only older versions work
		try.SysProcAttr = attr
		if try.Run() != nil {
			return c
		}
	}
	c.SysProcAttr = attr
	return c
}
