package environment

import (
	"fmt"
	"path"
	"strings"
)

// Places in a container, whatever they are outside.
const (
	containerRunDir  = "/run/roced"
	containerLibrary = "/opt/roced/" + LibraryName
)

// Mount is a part of the file system that a container sees.
type Mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only"`
}

// Container is what a container needs to run verbs programs.
type Container struct {
	Mounts []Mount    `json:"mounts"`
	Env    []Variable `json:"env"`
}

// ForContainer translates the variables for programs here into what a container needs. The
// run directory is mounted whole: a daemon that starts again makes new sockets in it.
func ForContainer(vars []Variable) (*Container, error) {
	s := &Container{}
	value := map[string]string{}
	for _, v := range vars {
		value[v.Name] = v.Value
	}
	run := value[RunDir]
	lib, _, _ := strings.Cut(value["LD_PRELOAD"], ":")
	s.Mounts = []Mount{{run, containerRunDir, true}, {lib, containerLibrary, true}}
	for _, m := range s.Mounts {
		if strings.ContainsAny(m.Source, ": \t\n,") {
			return nil, fmt.Errorf("%q cannot be mounted: it has a colon, a comma or a space", m.Source)
		}
	}
	for _, v := range vars {
		switch v.Name {
		case "LD_PRELOAD":
			v.Value = containerLibrary
		case RunDir:
			v.Value = containerRunDir
		case "SYSFS_PATH":
			v.Value = path.Join(containerRunDir, strings.TrimPrefix(v.Value, run))
		}
		s.Env = append(s.Env, v)
	}
	return s, nil
}

// Flags are the setting as arguments of docker run and podman run.
func (s *Container) Flags() (flags []string) {
	for _, m := range s.Mounts {
		flags = append(flags, fmt.Sprintf("--volume=%s:%s:ro", m.Source, m.Target))
	}
	for _, v := range s.Env {
		flags = append(flags, fmt.Sprintf("--env=%s=%s", v.Name, v.Value))
	}
	return flags
}
