package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pod "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Resource is the extended resource that pods request.
const Resource = "roced.io/nic"

// Options of an agent.
type Options struct {
	Slots        int
	Dir          string
	Library      string
	Roced        string
	Plugins      string
	PodResources string
	CDI          string
	Socket       string
}

// Agent manages the slots of a node. Each slot is the NIC of one pod at a time.
type Agent struct {
	o     Options
	log   *slog.Logger
	slots []*slot

	mu      sync.Mutex
	changed chan struct{} // closed and replaced whenever the health of a slot changes
}

// Run runs an agent until ctx ends. Its daemons end with it; the next agent restarts them.
func Run(ctx context.Context, o Options, log *slog.Logger) error {
	if o.Slots < 1 || o.Slots > 1024 {
		return fmt.Errorf("-nics %d is not between 1 and 1024", o.Slots)
	}
	a := &Agent{o: o, log: log, changed: make(chan struct{})}
	for i := range o.Slots {
		s := &slot{id: fmt.Sprintf("nic%d", i), agent: a}
		s.dir = filepath.Join(o.Dir, s.id)
		if err := os.MkdirAll(s.dir, 0o755); err != nil {
			return err
		}
		a.slots = append(a.slots, s)
	}
	if err := a.writeCDI(); err != nil {
		return err
	}
	// Listen before the restore of NICs: a call to free a NIC blocks until then.
	l, err := a.listenCNI()
	if err != nil {
		return err
	}
	for _, s := range a.slots {
		s.restore()
	}
	defer func() {
		for _, s := range a.slots {
			s.stop()
		}
	}()
	served := make(chan error, 2)
	go func() { served <- a.serveCNI(ctx, l) }()
	go func() { served <- a.servePlugin(ctx) }()
	return errors.Join(<-served, <-served)
}

// slot returns the slot with this ID.
func (a *Agent) slot(id string) *slot {
	for _, s := range a.slots {
		if s.id == id {
			return s
		}
	}
	return nil
}

// tell makes ListAndWatch report the health of all slots to the kubelet.
func (a *Agent) tell() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *Agent) change() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed
}

// devicesOf asks the kubelet for the slots that it has assigned to a pod.
func (a *Agent) devicesOf(ctx context.Context, namespace, name string) (ids []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := dial(a.o.PodResources)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	all, err := pod.NewPodResourcesListerClient(conn).List(ctx, &pod.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("the kubelet's list of resources: %w", err)
	}
	for _, p := range all.PodResources {
		if p.Namespace != namespace || p.Name != name {
			continue
		}
		for _, c := range p.Containers {
			for _, d := range c.Devices {
				if d.ResourceName == Resource {
					ids = append(ids, d.DeviceIds...)
				}
			}
		}
	}
	return ids, nil
}

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}
