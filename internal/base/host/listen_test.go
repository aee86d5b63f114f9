package host

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// TestListen listens where the loopback interface has addresses of one family only. Package net examines that once in the
// life of a process.
func TestListen(t *testing.T) {
	const family = "TEST_LISTEN"
	to := os.Getenv(family)
	if to == "" {
		for to, without := range map[string]string{"::1": "-4", "127.0.0.1": "-6"} {
			c := exec.Command("unshare", "--map-root-user", "--net", "sh", "-c",
				"ip link set lo up && ip "+without+" addr flush dev lo && exec \"$0\" -test.run='^TestListen$'", os.Args[0])
			c.Env = append(os.Environ(), family+"="+to)
			if text, err := c.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", to, err, text)
			}
		}
		return
	}
	for _, address := range []string{":0", net.JoinHostPort(to, "0")} {
		ln, err := Listen(address)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		c, err := net.Dial("tcp", net.JoinHostPort(to, strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)))
		if err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		c.Close()
	}
}
