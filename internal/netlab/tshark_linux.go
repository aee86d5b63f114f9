package netlab

import (
	"os"
	"os/exec"
	"syscall"
)

// Tshark is tshark with a dissector in Lua. From version 4.4 on it loads none for who is root: a process that is gets
// it in a user namespace where it has another number, and the files of its own all the same.
func Tshark(dissector string, args ...string) *exec.Cmd {
	c := exec.Command("tshark", append([]string{"-X", "lua_script:" + dissector}, args...)...)
	if os.Geteuid() != 0 {
		return c
	}
	ordinary := []syscall.SysProcIDMap{{ContainerID: 1000, HostID: 0, Size: 1}}
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ordinary, GidMappings: ordinary}
	if try := exec.Command("true"); c.Err == nil { // old versions do without, where there are no user namespaces
		try.SysProcAttr = attr
		if try.Run() != nil {
			return c
		}
	}
	c.SysProcAttr = attr
	return c
}
