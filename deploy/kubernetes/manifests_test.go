package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// mpiJob holds the fields of the MPI operator's type that are not types of Kubernetes itself.
type mpiJob struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Spec       struct {
		SlotsPerWorker  int               `json:"slotsPerWorker"`
		RunPolicy       map[string]string `json:"runPolicy"`
		MPIReplicaSpecs map[string]struct {
			Replicas int                  `json:"replicas"`
			Template core.PodTemplateSpec `json:"template"`
		} `json:"mpiReplicaSpecs"`
	} `json:"spec"`
}

// documents splits a file into YAML documents.
func documents(t *testing.T, file string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	return bytes.Split(text, []byte("\n---\n"))
}

// strictly decodes a manifest like a cluster with strict field validation, into the types that Kubernetes publishes.
func strictly[T any](t *testing.T, text []byte) (v T) {
	t.Helper()
	if err := yaml.UnmarshalStrict(text, &v); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return v
}

// asks checks that a container requests one NIC. With the NIC it gets the settings for programs.
func asks(t *testing.T, s core.PodSpec) {
	t.Helper()
	for _, c := range s.Containers {
		if q := c.Resources.Limits[Resource]; q.Value() != 1 {
			t.Errorf("container %s has %v", c.Name, c.Resources)
		}
	}
}

// TestExamples decodes the examples.
func TestExamples(t *testing.T) {
	var kinds []string
	files, err := filepath.Glob("examples/*.yaml")
	must(t, err)
	for _, file := range files {
		for _, text := range documents(t, file) {
			var head struct{ Kind string }
			must(t, yaml.Unmarshal(text, &head))
			kinds = append(kinds, head.Kind)
			switch head.Kind {
			case "Service":
				if s := strictly[core.Service](t, text); s.Spec.ClusterIP != core.ClusterIPNone {
					t.Error("RDMA knows no virtual addresses")
				}
			case "Pod":
				asks(t, strictly[core.Pod](t, text).Spec)
			case "MPIJob":
				j := strictly[mpiJob](t, text)
				for _, r := range j.Spec.MPIReplicaSpecs {
					asks(t, r.Template.Spec)
				}
				for _, v := range j.Spec.MPIReplicaSpecs["Launcher"].Template.Spec.Containers[0].Env {
					if strings.HasPrefix(v.Name, "UCX_") {
						continue
					}
					if !slices.Contains(environment, [2]string{v.Name, v.Value}) {
						t.Errorf("%v is not what containers get", v)
					}
				}
			default:
				t.Errorf("%s: %s", file, head.Kind)
			}
		}
	}
	if want := []string{"MPIJob", "Service", "Pod", "Pod"}; !slices.Equal(kinds, want) {
		t.Errorf("%v", kinds)
	}
}

// TestDaemonSet checks that the agent's folders are mounted under the same names as on the node. The agent sends
// their paths to the kubelet and to runtimes.
func TestDaemonSet(t *testing.T) {
	text := documents(t, "daemonset.yaml")[0]
	for old, with := range map[string]string{"volumeMounts": "volumesMounts", "add: [SYS_ADMIN]": "add: SYS_ADMIN"} {
		if err := yaml.UnmarshalStrict(bytes.Replace(text, []byte(old), []byte(with), 1), &apps.DaemonSet{}); err == nil {
			t.Errorf("%s is good", with)
		}
	}
	d := strictly[apps.DaemonSet](t, text)
	spec := d.Spec.Template.Spec
	host := map[string]string{}
	for _, v := range spec.Volumes {
		host[v.Name] = v.HostPath.Path
	}
	places := map[string]bool{}
	for _, m := range spec.Containers[0].VolumeMounts {
		if host[m.Name] != m.MountPath {
			t.Errorf("%s is %s on the node", m.MountPath, host[m.Name])
		}
		places[m.MountPath] = true
	}
	o := defaults()
	for _, path := range []string{o.Dir, filepath.Dir(o.Library), o.Plugins, filepath.Dir(o.PodResources), o.CDI, filepath.Dir(o.Socket), "/var/run/netns"} {
		if !places[path] {
			t.Errorf("%s is not mounted", path)
		}
	}
}

// TestConflist checks the list of CNI plugins: ours follows the plugin that sets up the network.
func TestConflist(t *testing.T) {
	text, err := os.ReadFile("cni.conflist")
	must(t, err)
	var list struct {
		CNIVersion string `json:"cniVersion"`
		Plugins    []netConf
	}
	must(t, json.Unmarshal(text, &list))
	if !slices.Contains(supported.SupportedVersions(), list.CNIVersion) || len(list.Plugins) != 2 || list.Plugins[1].Type != "roced-cni" {
		t.Errorf("%+v", list)
	}
}
