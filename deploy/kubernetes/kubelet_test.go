package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	pod "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const limit = 60 * time.Second

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// kubelet imitates the kubelet towards device plugins. It accepts registrations and lists the devices of pods.
type kubelet struct {
	plugin.UnimplementedRegistrationServer
	pod.UnimplementedPodResourcesListerServer
	dir        string
	servers    []*grpc.Server
	registered chan *plugin.RegisterRequest
	pods       []*pod.PodResources
}

func startKubelet(t *testing.T, dir string, pods []*pod.PodResources) *kubelet {
	t.Helper()
	k := &kubelet{dir: dir, registered: make(chan *plugin.RegisterRequest, 10), pods: pods}
	for name, register := range map[string]func(*grpc.Server){
		"kubelet.sock": func(g *grpc.Server) { plugin.RegisterRegistrationServer(g, k) },
		"pods.sock":    func(g *grpc.Server) { pod.RegisterPodResourcesListerServer(g, k) },
	} {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		must(t, err)
		g := grpc.NewServer()
		register(g)
		k.servers = append(k.servers, g)
		go g.Serve(l)
	}
	t.Cleanup(k.stop)
	return k
}

// stop stops the kubelet. A starting kubelet removes all sockets in the folder.
func (k *kubelet) stop() {
	for _, g := range k.servers {
		g.Stop()
	}
	sockets, _ := filepath.Glob(filepath.Join(k.dir, "*.sock"))
	for _, s := range sockets {
		os.Remove(s)
	}
}

func (k *kubelet) Register(_ context.Context, r *plugin.RegisterRequest) (*plugin.Empty, error) {
	k.registered <- r
	return &plugin.Empty{}, nil
}

func (k *kubelet) List(context.Context, *pod.ListPodResourcesRequest) (*pod.ListPodResourcesResponse, error) {
	return &pod.ListPodResourcesResponse{PodResources: k.pods}, nil
}

// plugin waits for a registration and returns a client of the registered plugin.
func (k *kubelet) plugin(t *testing.T) plugin.DevicePluginClient {
	t.Helper()
	select {
	case r := <-k.registered:
		if r.Version != "v1beta1" || r.ResourceName != "roced.io/nic" || filepath.Base(r.Endpoint) != r.Endpoint {
			t.Fatalf("%v", r)
		}
		conn, err := dial(filepath.Join(k.dir, r.Endpoint))
		must(t, err)
		t.Cleanup(func() { conn.Close() })
		return plugin.NewDevicePluginClient(conn)
	case <-time.After(limit):
		t.Fatal("nobody registers")
	}
	return nil
}

// has returns a pod with these devices.
func has(name string, ids ...string) *pod.PodResources {
	return &pod.PodResources{Namespace: "tests", Name: name, Containers: []*pod.ContainerResources{
		{Name: "other"}, {Name: "program", Devices: []*pod.ContainerDevices{{ResourceName: "example.com/x", DeviceIds: []string{"nic7"}}, {ResourceName: Resource, DeviceIds: ids}}}}}
}
