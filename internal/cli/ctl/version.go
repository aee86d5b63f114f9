package ctl

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is what the program says of itself.
type version struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from files that differ from Revision
	Go       string `json:"go"`
}

func ownVersion() version {
	v := version{Version: "unknown", Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version of this program", Args: between(0, 0),
		Example: "  rocectl version --json",
		RunE: func(*cobra.Command, []string) error {
			v := ownVersion()
			return a.show(v, func(w io.Writer) {
				fmt.Fprintf(w, "rocectl %s", v.Version)
				if v.Revision != "" {
					fmt.Fprintf(w, " %.12s", v.Revision)
				}
				if v.Modified {
					fmt.Fprint(w, " modified")
				}
				fmt.Fprintf(w, " %s\n", v.Go)
			})
		},
	}
}
