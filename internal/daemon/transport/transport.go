// Package transport has the flags that select transport profile and congestion control of NICs that a command makes.
package transport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/qp/profile"
)

// Choice is the transport of a NIC. An empty field means the default.
type Choice struct {
	Profile    string `json:"profile,omitempty"`
	Congestion string `json:"congestion,omitempty"` // algorithm
}

// Flags adds the flags.
func (c *Choice) Flags(f *pflag.FlagSet) {
	f.StringVar(&c.Profile, "profile", "", "transport profile: "+strings.Join(profile.Names(), ", ")+" (default "+profile.Names()[0]+")")
	f.StringVar(&c.Congestion, "congestion", "", "congestion control: "+strings.Join(selectable(), ", ")+" (default none)")
}

// selectable returns the congestion controls of NICs, without those of a profile and those that need telemetry.
func selectable() []string {
	return slices.DeleteFunc(ccalgo.Names(), func(name string) bool { return slices.Contains(profile.Names(), name) || ccalgo.NeedsTelemetry(name) })
}

// Validate returns an error that names the flag.
func (c *Choice) Validate() error {
	own, err := profile.Resolve(c.Profile, profile.Spec{})
	switch {
	case err != nil:
		return fmt.Errorf("--profile: %w", err)
	case c.Congestion == "":
		return nil
	case !slices.Contains(selectable(), c.Congestion):
		return fmt.Errorf("--congestion: no congestion control %q, there are %v", c.Congestion, selectable())
	case own.Congestion.Name != "none":
		return fmt.Errorf("--congestion %s: profile %s has its own congestion control; remove one of the two", c.Congestion, c.Profile)
	}
	return nil
}

// Keys returns the keys of the NIC in the daemon's configuration.
func (c *Choice) Keys() (keys []string) {
	if c.Profile != "" {
		keys = append(keys, "profile: "+c.Profile)
	}
	if c.Congestion != "" {
		keys = append(keys, "congestion: {algorithm: "+c.Congestion+"}")
	}
	return keys
}

// Suits returns an error if a running NIC has another transport.
func (c *Choice) Suits(l *api.Link) error {
	control := "none"
	if l.Congestion != nil {
		control = l.Congestion.Algorithm
	}
	switch its := cmp.Or(l.Profile, profile.Names()[0]); {
	case c.Profile != "" && c.Profile != its:
		return fmt.Errorf("%s has profile %s, not %s", l.Name, its, c.Profile)
	case c.Congestion != "" && c.Congestion != control:
		return fmt.Errorf("%s has congestion control %s, not %s", l.Name, control, c.Congestion)
	}
	return nil
}
