// Command roced-k8s gives pods NICs. In a DaemonSet it is the agent of a node: a device plugin of the kubelet, which hands out
// roced.io/nic, writes the CDI specification of these devices, and runs a daemon for each that a pod has. Called by a container
// runtime, with CNI_COMMAND in its environment, it is a CNI plugin, which tells the agent the pod's network.
//
// It is a module of its own: roced does not need Kubernetes' packages.
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

// defaultSocket is where the CNI plugin finds the agent.
const defaultSocket = "/run/roced/agent.sock"

func main() {
	if os.Getenv("CNI_COMMAND") != "" {
		cni()
		return
	}
	o := defaults()
	flag.IntVar(&o.Slots, "nics", o.Slots, "NICs that the node has to give")
	flag.StringVar(&o.Dir, "dir", o.Dir, "folder of the NICs' run directories, the same on the node and here")
	flag.StringVar(&o.Library, "library", o.Library, "the preload library, on the node")
	flag.StringVar(&o.Roced, "roced", o.Roced, "the daemon's program")
	flag.StringVar(&o.Plugins, "plugins", o.Plugins, "the kubelet's folder of device plugins")
	flag.StringVar(&o.PodResources, "pod-resources", o.PodResources, "the kubelet's socket for who has what")
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

// defaults are the places on a node, which daemonset.yaml mounts.
func defaults() Options {
	return Options{Slots: 16, Dir: "/run/roced", Library: "/var/lib/roced/libroced.so", Roced: "roced", Plugins: "/var/lib/kubelet/device-plugins",
		PodResources: "/var/lib/kubelet/pod-resources/kubelet.sock", CDI: "/var/run/cdi", Socket: defaultSocket}
}
