package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

// netConf is the plugin's part of a CNI configuration, in a list behind the plugin that makes the pod's network.
type netConf struct {
	CNIVersion string          `json:"cniVersion"`
	Name       string          `json:"name"`
	Type       string          `json:"type"`
	Agent      string          `json:"agent"`    // socket
	DeviceID   string          `json:"deviceID"` // from Multus, which asks the kubelet itself
	PrevResult json.RawMessage `json:"prevResult"`
}

// call is what the plugin tells the agent.
type call struct {
	Command   string   `json:"command"` // of CNI
	Container string   `json:"container"`
	Netns     string   `json:"netns"`
	Interface string   `json:"interface"`
	Namespace string   `json:"namespace"` // of the pod
	Pod       string   `json:"pod"`
	Devices   []string `json:"devices"`
}

// answer is the agent's.
type answer struct {
	Error string `json:"error,omitempty"`
}

// Error codes of the specification, and one of our own.
const (
	codeDecode   = 6
	codeTryLater = 11
	codeFailed   = 100
)

var cniVersions = []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// cni is one call of the plugin; it returns the exit code.
func cni(in io.Reader, out io.Writer, env func(string) string) int {
	conf := netConf{CNIVersion: "1.0.0"}
	text, err := io.ReadAll(in)
	if err == nil {
		err = json.Unmarshal(text, &conf)
	}
	fail := func(code int, err error) int {
		_ = json.NewEncoder(out).Encode(map[string]any{"cniVersion": conf.CNIVersion, "code": code, "msg": "roced: " + err.Error()})
		return 1
	}
	if err != nil {
		return fail(codeDecode, err)
	}
	command := env("CNI_COMMAND")
	if command == "VERSION" {
		_ = json.NewEncoder(out).Encode(map[string]any{"cniVersion": conf.CNIVersion, "supportedVersions": cniVersions})
		return 0
	}
	c := call{Command: command, Container: env("CNI_CONTAINERID"), Netns: env("CNI_NETNS"), Interface: env("CNI_IFNAME")}
	for arg := range strings.SplitSeq(env("CNI_ARGS"), ";") {
		switch key, value, _ := strings.Cut(arg, "="); key {
		case "K8S_POD_NAMESPACE":
			c.Namespace = value
		case "K8S_POD_NAME":
			c.Pod = value
		}
	}
	if conf.DeviceID != "" {
		c.Devices = []string{conf.DeviceID}
	}
	if conf.Agent == "" {
		conf.Agent = defaultSocket
	}
	if err := ask(conf.Agent, &c); err != nil {
		if command == "DEL" { // nobody is there to be asked: the agent looks for networks that have gone when it starts
			return 0
		}
		if errors.Is(err, errNoAgent) {
			return fail(codeTryLater, err)
		}
		return fail(codeFailed, err)
	}
	if command == "ADD" { // what the plugins before have made stays as it is
		if len(conf.PrevResult) == 0 {
			conf.PrevResult = fmt.Appendf(nil, `{"cniVersion":%q,"interfaces":[],"ips":[]}`, conf.CNIVersion)
		}
		fmt.Fprintf(out, "%s\n", conf.PrevResult)
	}
	return 0
}

var errNoAgent = errors.New("its agent on this node does not answer")

// ask has the agent do something.
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

// listenCNI opens the socket for the plugin, which is root's.
func (a *Agent) listenCNI() (net.Listener, error) {
	if err := os.Remove(a.o.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", a.o.Socket)
	if err != nil {
		return nil, err
	}
	return l, os.Chmod(a.o.Socket, 0o600)
}

// serveCNI answers the plugin until ctx ends.
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
			err := json.NewDecoder(bufio.NewReader(conn)).Decode(&c)
			if err == nil {
				err = a.do(ctx, &c)
			}
			if err != nil {
				a.log.Error("CNI", "command", c.Command, "pod", c.Namespace+"/"+c.Pod, "err", err)
				out.Error = err.Error()
			}
			_ = json.NewEncoder(conn).Encode(out) // who has gone has no use for it
		}()
	}
}

// do carries a call out. A pod without a slot is none of our business.
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
		return fmt.Errorf("CNI_COMMAND %q", c.Command)
	}
	if len(c.Devices) == 0 {
		ids, err := a.devicesOf(ctx, c.Namespace, c.Pod)
		if err != nil {
			return err
		}
		c.Devices = ids
	}
	if len(c.Devices) > 1 {
		return fmt.Errorf("pod %s/%s has %d of %s: one container of a pod can have one", c.Namespace, c.Pod, len(c.Devices), Resource)
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
