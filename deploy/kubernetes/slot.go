package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Names that programs see.
const nicName = "rxe0" // the same in all pods: UCX requires one name on both sides

const (
	startLimit = 20 * time.Second
	stopLimit  = 15 * time.Second
	look       = 20 * time.Millisecond
)

// Attachment is the location of a slot's NIC. It is stored on disk, so that the next agent can restore it.
type Attachment struct {
	Container string `json:"container"` // sandbox of the pod
	Netns     string `json:"netns"`     // path
	Interface string `json:"interface"` // name inside the namespace
}

// slot is one NIC that the node can assign to a pod.
type slot struct {
	id, dir string // dir is the run directory; containers mount it before the daemon starts
	agent   *Agent

	mu      sync.Mutex
	at      *Attachment
	cmd     *exec.Cmd
	ended   chan struct{}
	ailing  bool // the daemon ended unexpectedly
	stopped bool
}

// file is the path of the stored attachment. It is beside the run directory, because containers see that directory.
func (s *slot) file() string { return s.dir + ".json" }
func (s *slot) log() string  { return s.dir + ".log" }

// restore restarts the daemon of a pod that a previous agent attached, if the pod's network still exists.
func (s *slot) restore() {
	text, err := os.ReadFile(s.file())
	if err != nil {
		return
	}
	var at Attachment
	if err = json.Unmarshal(text, &at); err == nil {
		_, err = os.Stat(at.Netns)
	}
	if err == nil {
		err = s.attach(at)
	}
	if err != nil {
		s.agent.log.Warn("a pod's NIC has not come back", "slot", s.id, "err", err)
		os.Remove(s.file())
	}
}

// attach puts the slot's NIC into a pod's network. It is idempotent.
func (s *slot) attach(at Attachment) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at != nil && *s.at == at && !s.ailing {
		return nil
	}
	if s.at != nil {
		s.end() // the previous pod ended without a DEL, or its daemon ended
	}
	if s.ailing {
		defer s.agent.tell()
	}
	config := fmt.Sprintf("run_dir: %q\nnics:\n  - {name: %s, port: {type: udp, netns: %q, interface: %q}}\n", s.dir, nicName, at.Netns, at.Interface)
	log, err := os.Create(s.log())
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.Command(s.agent.o.Roced, "run", "--config", "/dev/stdin")
	c.Stdin, c.Stderr = strings.NewReader(config), log
	if err := c.Start(); err != nil {
		return err
	}
	s.at, s.cmd, s.ended, s.ailing, s.stopped = &at, c, make(chan struct{}), false, false
	go s.watch(c, s.ended)
	if err := s.ready(); err != nil {
		s.end()
		return err
	}
	text, err := json.Marshal(at)
	if err == nil {
		err = os.WriteFile(s.file(), text, 0o600)
	}
	s.agent.log.Info("a pod has its NIC", "slot", s.id, "netns", at.Netns)
	return err
}

// ready blocks until the daemon answers.
func (s *slot) ready() error {
	for deadline := time.Now().Add(startLimit); time.Now().Before(deadline); {
		if c, err := net.Dial("unix", filepath.Join(s.dir, "roced.sock")); err == nil {
			return c.Close()
		}
		select {
		case <-s.ended:
			text, err := os.ReadFile(s.log())
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			return errors.Join(errors.New(lines[len(lines)-1]), err)
		case <-time.After(look):
		}
	}
	return fmt.Errorf("roced does not answer within %v", startLimit)
}

// watch waits for the daemon to end. After an unexpected end it marks the slot as unhealthy for the kubelet.
func (s *slot) watch(c *exec.Cmd, ended chan struct{}) {
	err := c.Wait()
	close(ended)
	s.mu.Lock()
	unasked := s.cmd == c && !s.stopped
	if unasked {
		s.ailing = true
	}
	s.mu.Unlock()
	if unasked {
		s.agent.log.Error("a pod's daemon has ended", "slot", s.id, "err", err)
		s.agent.tell()
	}
}

// end terminates the daemon. The caller holds the lock.
func (s *slot) end() {
	if s.cmd == nil {
		return
	}
	s.stopped = true
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // the process may already have ended
	select {
	case <-s.ended:
	case <-time.After(stopLimit):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
	s.at, s.cmd = nil, nil
}

// stop terminates the daemon when the agent ends. It keeps the stored attachment.
func (s *slot) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
}

// detach removes the NIC from a pod. It is idempotent.
func (s *slot) detach(container string) {
	s.mu.Lock()
	if s.at == nil || s.at.Container != container {
		s.mu.Unlock()
		return
	}
	s.end()
	was := s.ailing
	s.ailing = false
	os.Remove(s.file())
	s.mu.Unlock()
	s.agent.log.Info("a pod's NIC is free", "slot", s.id)
	if was {
		s.agent.tell()
	}
}

// healthy reports the slot's state for the kubelet.
func (s *slot) healthy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.ailing
}
