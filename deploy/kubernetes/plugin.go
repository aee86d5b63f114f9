package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	cdi "tags.cncf.io/container-device-interface/specs-go"
)

// Paths in a container, as in `rocectl env --container`.
const (
	containerRunDir  = "/run/roced"
	containerLibrary = "/opt/roced/libroced.so"
)

// environment holds the environment variables of programs in a container.
var environment = [][2]string{
	{"LD_PRELOAD", containerLibrary}, {"ROCED_RUN_DIR", containerRunDir}, {"ROCED_NIC", ""},
	{"SYSFS_PATH", containerRunDir + "/sysfs"}, {"ROCED_EXPLAIN", "1"},
}

// cdiKind is the kind of the devices in the CDI specification.
const cdiKind = Resource

// writeCDI writes the CDI specification: the mounts and environment variables of each slot.
func (a *Agent) writeCDI() error {
	if a.o.CDI == "" {
		return nil
	}
	spec := cdi.Spec{Version: "0.6.0", Kind: cdiKind}
	for _, v := range environment {
		spec.ContainerEdits.Env = append(spec.ContainerEdits.Env, v[0]+"="+v[1])
	}
	options := []string{"ro", "nosuid", "nodev", "bind"}
	spec.ContainerEdits.Mounts = []*cdi.Mount{{HostPath: a.o.Library, ContainerPath: containerLibrary, Options: options}}
	for _, s := range a.slots {
		spec.Devices = append(spec.Devices, cdi.Device{Name: s.id, ContainerEdits: cdi.ContainerEdits{
			Mounts: []*cdi.Mount{{HostPath: s.dir, ContainerPath: containerRunDir, Options: options}},
		}})
	}
	text, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(a.o.CDI, 0o755); err != nil {
		return err
	}
	file := filepath.Join(a.o.CDI, "roced.io-nic.json")
	if err := os.WriteFile(file+".tmp", append(text, '\n'), 0o644); err != nil { // runtimes read only *.json and *.yaml
		return err
	}
	return os.Rename(file+".tmp", file)
}

// server implements the device plugin API.
type server struct {
	plugin.UnimplementedDevicePluginServer
	*Agent
	ctx context.Context
}

// pluginSocket is the plugin's socket in the kubelet's folder.
const pluginSocket = "roced.sock"

// servePlugin runs the device plugin until ctx ends. A restarted kubelet forgets its plugins and removes their
// sockets; servePlugin then registers again.
func (a *Agent) servePlugin(ctx context.Context) error {
	socket := filepath.Join(a.o.Plugins, pluginSocket)
	for ctx.Err() == nil {
		if err := a.plugged(ctx, socket); err != nil {
			a.log.Warn("not registered with the kubelet", "err", err)
			wait(ctx, time.Second)
		}
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// plugged serves and registers once. It returns when the socket is removed.
func (a *Agent) plugged(ctx context.Context, socket string) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g := grpc.NewServer()
	plugin.RegisterDevicePluginServer(g, &server{Agent: a, ctx: ctx})
	go g.Serve(l)
	defer g.Stop()
	defer cancel() // before Stop, which waits for streams
	if err := a.register(ctx); err != nil {
		return err
	}
	a.log.Info("registered with the kubelet", "resource", Resource, "nics", len(a.slots))
	for ctx.Err() == nil {
		if _, err := os.Stat(socket); err != nil {
			return nil
		}
		wait(ctx, 200*time.Millisecond)
	}
	return nil
}

func (a *Agent) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := dial(filepath.Join(a.o.Plugins, "kubelet.sock"))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = plugin.NewRegistrationClient(conn).Register(ctx, &plugin.RegisterRequest{
		Version: plugin.Version, Endpoint: pluginSocket, ResourceName: Resource, Options: &plugin.DevicePluginOptions{},
	})
	return err
}

// GetDevicePluginOptions requests none of the optional calls.
func (s *server) GetDevicePluginOptions(context.Context, *plugin.Empty) (*plugin.DevicePluginOptions, error) {
	return &plugin.DevicePluginOptions{}, nil
}

// ListAndWatch sends the kubelet the list of slots, and sends it again whenever the health of a slot changes.
func (s *server) ListAndWatch(_ *plugin.Empty, stream plugin.DevicePlugin_ListAndWatchServer) error {
	for {
		changed := s.change() // get the channel before the list, so that no change is missed
		all := &plugin.ListAndWatchResponse{}
		for _, sl := range s.slots {
			d := &plugin.Device{ID: sl.id, Health: plugin.Healthy}
			if !sl.healthy() {
				d.Health = plugin.Unhealthy
			}
			all.Devices = append(all.Devices, d)
		}
		if err := stream.Send(all); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
			return nil
		case <-stream.Context().Done():
			return nil
		}
	}
}

// Allocate returns the container settings of its slots: as CDI names, or in full for runtimes without CDI.
func (s *server) Allocate(_ context.Context, r *plugin.AllocateRequest) (*plugin.AllocateResponse, error) {
	out := &plugin.AllocateResponse{}
	for _, c := range r.ContainerRequests {
		if len(c.DevicesIds) != 1 {
			return nil, fmt.Errorf("%s: a container may request 1, not %d; one NIC has queue pairs for all its programs", Resource, len(c.DevicesIds))
		}
		sl := s.slot(c.DevicesIds[0])
		if sl == nil {
			return nil, fmt.Errorf("%s: there is no %q", Resource, c.DevicesIds[0])
		}
		a := &plugin.ContainerAllocateResponse{}
		if s.o.CDI != "" {
			a.CdiDevices = []*plugin.CDIDevice{{Name: cdiKind + "=" + sl.id}}
		} else {
			a.Envs = map[string]string{}
			for _, v := range environment {
				a.Envs[v[0]] = v[1]
			}
			a.Mounts = []*plugin.Mount{
				{HostPath: sl.dir, ContainerPath: containerRunDir, ReadOnly: true},
				{HostPath: s.o.Library, ContainerPath: containerLibrary, ReadOnly: true},
			}
		}
		out.ContainerResponses = append(out.ContainerResponses, a)
	}
	return out, nil
}
