package verbs

import (
	"net"
	"os"
	"path/filepath"

	"roced.io/roced/internal/base/abi/uverbs"
)

// reportEnv names the socket that "rocectl exec --summary" reads reports of traffic from.
const reportEnv = "ROCED_REPORT"

// requestReport makes the daemon report the traffic of the context if the environment requests it. Without a reader
// there is no report, and the program goes on.
func (d *daemon) requestReport() {
	path := os.Getenv(reportEnv)
	if path == "" {
		return
	}
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return
	}
	defer conn.Close()
	f, err := conn.File()
	if err != nil {
		return
	}
	defer f.Close()
	r := uverbs.Report{PID: uint32(os.Getpid())}
	uverbs.SetText(r.Program[:], filepath.Base(os.Args[0]))
	_, got, err := d.ctx.send("report", uverbs.Command(uverbs.ExtReport, 0, r), []int{int(f.Fd())})
	if err == nil {
		(&attached{fds: got}).close()
	}
}
