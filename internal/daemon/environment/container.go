package environment

import (
	"fmt"
	"path"
	"strings"
)

// Paths in a container. They do not depend on the paths outside.
const (
	containerRunDir  = "/run/roced"
	containerLibrary = "/opt/roced/" + LibraryName
)

// Mount is a bind mount of a container.
type Mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only"`
}

// Container holds the settings of a container that runs verbs programs.
type Container struct {
	Mounts []Mount    `json:"mounts"`
	Env    []Variable `json:"env"`
}

// ForContainer translates the variables of this host for a container. It mounts the whole run directory, because a
// restarted daemon creates new sockets in it. It leaves out the library of MRC.
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
			return nil, fmt.Errorf("%q cannot be mounted: the path must not have a colon, a comma or a space", m.Source)
		}
	}
	for _, v := range vars {
		switch v.Name {
		case libraryPath: // of this host; the container may have its own
			continue
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

// Flags returns the settings as arguments of docker run and podman run.
func (s *Container) Flags() (flags []string) {
	for _, m := range s.Mounts {
		flags = append(flags, fmt.Sprintf("--volume=%s:%s:ro", m.Source, m.Target))
	}
	for _, v := range s.Env {
		flags = append(flags, fmt.Sprintf("--env=%s=%s", v.Name, v.Value))
	}
	return flags
}
