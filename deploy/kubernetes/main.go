// Command roced-k8s gives NICs to pods. In a DaemonSet it is the agent of a node and a device plugin of the kubelet.
// The agent advertises roced.io/nic, writes the CDI specification of these devices, and runs one daemon for each
// assigned device. When a container runtime calls it with CNI_COMMAND in the environment, it is a CNI plugin. The
// plugin passes the pod's network to the agent.
//
// It is a separate Go module, so that roced does not depend on Kubernetes' packages.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// defaultSocket is the agent's socket for the CNI plugin.
const defaultSocket = "/run/roced/agent.sock"

func main() {
	if os.Getenv("CNI_COMMAND") != "" {
		cni()
		return
	}
	o := defaults()
	flag.IntVar(&o.Slots, "nics", o.Slots, "number of NICs that the node offers")
	flag.StringVar(&o.Dir, "dir", o.Dir, "folder of the NICs' run directories; the same path on the node and in the container")
	flag.StringVar(&o.Library, "library", o.Library, "path of the preload library on the node")
	flag.StringVar(&o.Roced, "roced", o.Roced, "path of the daemon's program")
	flag.StringVar(&o.Plugins, "plugins", o.Plugins, "the kubelet's folder of device plugins")
	flag.StringVar(&o.PodResources, "pod-resources", o.PodResources, "the kubelet's socket that lists the devices of pods")
	flag.StringVar(&o.CDI, "cdi", o.CDI, "folder for the CDI specification; empty for runtimes without CDI")
	flag.StringVar(&o.Socket, "socket", o.Socket, "socket for the CNI plugin")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := Run(ctx, o, slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
		fmt.Fprintln(os.Stderr, "roced-k8s:", err)
		os.Exit(1)
	}
}

// defaults returns the paths on a node. daemonset.yaml mounts the same paths.
func defaults() Options {
	return Options{Slots: 16, Dir: "/run/roced", Library: "/var/lib/roced/libroced.so", Roced: "roced", Plugins: "/var/lib/kubelet/device-plugins",
		PodResources: "/var/lib/kubelet/pod-resources/kubelet.sock", CDI: "/var/run/cdi", Socket: defaultSocket}
}
