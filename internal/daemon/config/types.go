package config

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"roced.io/roced/internal/base/quantity"
)

// Mode is the permission bits of a socket, written in octal.
type Mode os.FileMode

// Bytes is an amount of memory, such as 512M.
type Bytes int64

// String formats the amount with the largest suffix that fits.
func (b Bytes) String() string {
	n, suffix := int64(b), ""
	for _, s := range "KMGT" {
		if n == 0 || n%1024 != 0 {
			break
		}
		n, suffix = n/1024, string(s)
	}
	return strconv.FormatInt(n, 10) + suffix
}

// MAC is an Ethernet address.
type MAC [6]byte

// String formats the address.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// Poll is the time that an idle NIC polls before it sleeps.
type Poll time.Duration

const (
	// DefaultPoll covers the gaps within a conversation; an idle NIC sleeps.
	DefaultPoll = Poll(50 * time.Microsecond)
	// SleepAtOnce is the setting 0. It differs from the zero value, which means that nothing is set.
	SleepAtOnce = Poll(-1)
	// Busy never sleeps. The NIC needs its own core.
	Busy = Poll(1<<63 - 1)
)

// ParsePoll parses a poll setting: a duration, 0, or busy.
func ParsePoll(s string) (Poll, error) {
	switch s {
	case "0":
		return SleepAtOnce, nil
	case "busy":
		return Busy, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is neither a duration such as 50us nor 0 nor busy", s)
	}
	if d == 0 {
		return SleepAtOnce, nil
	}
	return Poll(d), nil
}

// Duration returns the polling time: 0 sleeps at once, a negative value polls forever.
func (p Poll) Duration() time.Duration {
	switch p {
	case SleepAtOnce:
		return 0
	case Busy:
		return -1
	}
	return time.Duration(p)
}

// String formats the setting as ParsePoll accepts it.
func (p Poll) String() string {
	switch p {
	case SleepAtOnce:
		return "0"
	case Busy:
		return "busy"
	}
	return time.Duration(p).String()
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (p *Poll) UnmarshalYAML(n *yaml.Node) (err error) { *p, err = ParsePoll(n.Value); return err }

// UnmarshalYAML implements yaml.Unmarshaler.
func (b *Bytes) UnmarshalYAML(n *yaml.Node) (err error) { *b, err = parseBytes(n.Value); return err }

// UnmarshalYAML implements yaml.Unmarshaler.
func (m *Mode) UnmarshalYAML(n *yaml.Node) (err error) { *m, err = parseMode(n.Value); return err }

// UnmarshalYAML implements yaml.Unmarshaler.
func (m *MAC) UnmarshalYAML(n *yaml.Node) (err error) { *m, err = parseMAC(n.Value); return err }

func parseMAC(s string) (MAC, error) {
	hw, err := net.ParseMAC(s)
	if err != nil || len(hw) != 6 {
		return MAC{}, fmt.Errorf("%q is not an Ethernet address", s)
	}
	m := MAC(hw)
	if m[0]&1 != 0 {
		return MAC{}, fmt.Errorf("%s is a multicast address", s)
	}
	if m == (MAC{}) {
		return MAC{}, fmt.Errorf("%s is the zero address: leave mac out, or set one such as 02:00:00:00:00:01", s)
	}
	return m, nil
}

func parseMode(s string) (Mode, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0o"), 8, 32)
	if err != nil || n == 0 || n > 0o777 {
		return 0, fmt.Errorf("%q is not an octal file mode between 0001 and 0777", s)
	}
	return Mode(n), nil
}

func parseBytes(s string) (Bytes, error) {
	n, err := quantity.ParseBytes(s)
	if err == nil && n == 0 {
		err = fmt.Errorf("%s: must be at least 1 byte", s)
	}
	return Bytes(n), err
}

// deriveMAC derives a locally administered address that is the same at every start and differs between machines,
// daemons and NICs. The machine ID alone is not sufficient: a container has none, or that of its image, but has its
// own host name.
func deriveMAC(runDir, name string) MAC {
	id, _ := os.ReadFile("/etc/machine-id")
	host, _ := os.Hostname()
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%s", id, host, runDir, name))
	m := MAC(sum[:6])
	m[0] = m[0]&^1 | 2
	return m
}

// PollOf returns the setting with Duration d.
func PollOf(d time.Duration) Poll {
	switch {
	case d == 0:
		return SleepAtOnce
	case d < 0:
		return Busy
	}
	return Poll(d)
}
