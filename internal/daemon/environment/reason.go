package environment

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
)

// Absent returns the reason for which no NIC in a run directory answers: no daemon runs, or its socket denies access.
func Absent(dir string) error {
	sockets, err := filepath.Glob(filepath.Join(dir, "uverbs*"))
	if err != nil {
		return err
	}
	for _, socket := range sockets {
		c, err := net.Dial("unixpacket", socket)
		if err == nil {
			_ = c.Close()
			return fmt.Errorf("the NICs in %s close the connections of this user: a limit is reached (limits in the daemon's configuration; "+
				"rocectl res show user), or nics[].access does not permit the user; see the daemon's log", dir)
		}
		if errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("this user may not use the NICs in %s: set nics[].access in the daemon's configuration, or start it with roced up --share; "+
				"\"rocectl up\" starts a daemon of your own", dir)
		}
	}
	return fmt.Errorf("no NIC in %s answers this user: is roced running? \"rocectl up\" starts one, --run-dir names another", dir)
}
