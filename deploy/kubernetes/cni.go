package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

// netConf is the plugin's entry in a CNI configuration list. It follows the plugin that sets up the pod's network.
type netConf struct {
	types.PluginConf
	Agent    string `json:"agent"`    // socket
	DeviceID string `json:"deviceID"` // from Multus, which reads it from the kubelet
}

// podArgs are the arguments in CNI_ARGS that name the pod. The field names are the argument names.
type podArgs struct {
	types.CommonArgs
	K8S_POD_NAMESPACE, K8S_POD_NAME types.UnmarshallableString
}

// call is a request from the plugin to the agent.
type call struct {
	Command   string   `json:"command"` // CNI command
	Container string   `json:"container"`
	Netns     string   `json:"netns"`
	Interface string   `json:"interface"`
	Namespace string   `json:"namespace"` // namespace of the pod
	Pod       string   `json:"pod"`
	Devices   []string `json:"devices"`
}

type answer struct {
	Error string `json:"error,omitempty"`
}

// codeFailed is the plugin's own error code; the CNI specification leaves codes from 100 on to plugins.
const codeFailed = 100

// supported are the versions of the CNI specification whose results have the same form as that of the previous
// plugin.
var supported = version.PluginSupports("0.3.1", "0.4.0", "1.0.0", "1.1.0")

// cni runs the plugin for one call from a container runtime. It reads the call from the environment and standard
// input.
func cni() {
	run := func(command string) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error { return forward(command, args) }
	}
	skel.PluginMainFuncs(skel.CNIFuncs{Add: run("ADD"), Del: run("DEL"), Check: run("CHECK"), GC: run("GC"), Status: run("STATUS")},
		supported, "roced-k8s: a NIC for each container that has roced.io/nic")
}

// forward sends a command to the agent of the node. ADD passes the previous plugins' result on unchanged.
func forward(command string, args *skel.CmdArgs) error {
	conf := netConf{Agent: defaultSocket}
	if err := json.Unmarshal(args.StdinData, &conf); err != nil {
		return types.NewError(types.ErrDecodingFailure, "roced: "+err.Error(), "")
	}
	pod := podArgs{CommonArgs: types.CommonArgs{IgnoreUnknown: true}}
	if err := types.LoadArgs(args.Args, &pod); err != nil {
		return types.NewError(types.ErrInvalidEnvironmentVariables, "roced: "+err.Error(), "")
	}
	c := call{Command: command, Container: args.ContainerID, Netns: args.Netns, Interface: args.IfName,
		Namespace: string(pod.K8S_POD_NAMESPACE), Pod: string(pod.K8S_POD_NAME)}
	if conf.DeviceID != "" {
		c.Devices = []string{conf.DeviceID}
	}
	switch err := ask(conf.Agent, &c); {
	case err != nil && command == "DEL": // an agent that starts later checks whether networks still exist
		return nil
	case errors.Is(err, errNoAgent):
		return types.NewError(types.ErrTryAgainLater, "roced: "+err.Error(), "")
	case err != nil:
		return types.NewError(codeFailed, "roced: "+err.Error(), "")
	}
	if command != "ADD" {
		return nil
	}
	if conf.RawPrevResult == nil {
		return types.PrintResult(&types100.Result{CNIVersion: types100.ImplementedSpecVersion}, conf.CNIVersion)
	}
	if err := version.ParsePrevResult(&conf.PluginConf); err != nil {
		return types.NewError(types.ErrDecodingFailure, "roced: "+err.Error(), "")
	}
	return types.PrintResult(conf.PrevResult, conf.CNIVersion)
}

var errNoAgent = errors.New("the agent of this node does not answer")

// ask sends a call to the agent and returns the error in its answer.
func ask(socket string, c *call) error {
	conn, err := net.DialTimeout("unix", socket, 5*time.Second)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoAgent, err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(90 * time.Second))
	var a answer
	if err := json.NewEncoder(conn).Encode(c); err != nil {
		return fmt.Errorf("%w: %w", errNoAgent, err)
	}
	if err := json.NewDecoder(conn).Decode(&a); err != nil {
		return fmt.Errorf("%w: %w", errNoAgent, err)
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	return nil
}

// listenCNI opens the socket for the plugin. Only root may connect to it.
func (a *Agent) listenCNI() (net.Listener, error) {
	if err := os.Remove(a.o.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	defer syscall.Umask(syscall.Umask(0o177)) // a later chmod would leave others a moment
	return net.Listen("unix", a.o.Socket)
}

const (
	maxCall  = 64 << 10 // bytes of a call
	callTime = 5 * time.Second
)

// serveCNI serves calls from the plugin until ctx ends.
func (a *Agent) serveCNI(ctx context.Context, l net.Listener) error {
	context.AfterFunc(ctx, func() { l.Close() })
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			var c call
			var out answer
			_ = conn.SetReadDeadline(time.Now().Add(callTime)) // without one, only slow plugins hold a connection
			err := json.NewDecoder(io.LimitReader(conn, maxCall)).Decode(&c)
			if err == nil {
				err = a.do(ctx, &c)
			}
			if err != nil {
				a.log.Error("CNI", "command", c.Command, "pod", c.Namespace+"/"+c.Pod, "err", err)
				out.Error = err.Error()
			}
			_ = json.NewEncoder(conn).Encode(out) // an error means that the plugin closed the connection
		}()
	}
}

// do executes a call. It ignores a pod without a slot.
func (a *Agent) do(ctx context.Context, c *call) error {
	switch c.Command {
	case "DEL":
		for _, s := range a.slots {
			s.detach(c.Container)
		}
		return nil
	case "STATUS", "GC":
		return nil
	case "ADD", "CHECK":
	default:
		return fmt.Errorf("CNI_COMMAND %q: must be ADD, DEL, CHECK, STATUS, GC or VERSION", c.Command)
	}
	if len(c.Devices) == 0 {
		ids, err := a.devicesOf(ctx, c.Namespace, c.Pod)
		if err != nil {
			return err
		}
		c.Devices = ids
	}
	if len(c.Devices) > 1 {
		return fmt.Errorf("pod %s/%s has %d of %s: at most one container of a pod may request one", c.Namespace, c.Pod, len(c.Devices), Resource)
	}
	for _, id := range c.Devices {
		s := a.slot(id)
		if s == nil {
			return fmt.Errorf("there is no %q", id)
		}
		if err := s.attach(Attachment{Container: c.Container, Netns: c.Netns, Interface: c.Interface}); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	return nil
}
