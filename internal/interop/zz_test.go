package main

import (
	"fmt"
	"os"
	"os/exec"
	"roced/verbs"
	"strings"
	"testing"
	"time"
)

func TestZZ(t *testing.T) {
	os.Chdir("../..")
	im, _, err := image("bin")
	if err != nil {
		t.Fatal(err)
	}
	dir, _ := os.MkdirTemp("", "interop")
	defer os.RemoveAll(dir)
	l, err := newLab("bin", dir, im, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if os.Getenv("ZZ") == "" {
		c := exec.Command("bin/rocectl", "--run-dir", l.host.RunDir, "capture", "rxe_0", "-w", "/tmp/iop/f.pcapng")
		c.Start()
		defer c.Process.Signal(os.Interrupt)
		time.Sleep(time.Second)
		for i := 0; i < 20; i++ {
			r := &report{log: os.Stdout}
			m := &matrix{seed: uint64(i) * 1000, large: true}
			m.cell(r, 0, "we request", l.ours[0], l.rxe[0], patient(verbs.RC, verbs.MTU1024, false))
			if len(r.failures) > 0 {
				t.Error(i)
				break
			}
		}
	}
	script, _ := os.ReadFile(os.Getenv("ZZ"))
	for line := range strings.Lines(string(script)) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if h, ok := strings.CutPrefix(line, "HOST "); ok {
			c := exec.Command("sh", "-c", h)
			c.Env = append(os.Environ(), "R="+l.host.RunDir)
			o, err := c.CombinedOutput()
			fmt.Println("$$", h, err)
			fmt.Println(string(o))
			continue
		}
		o, err := l.vm.Shell(line, 30*time.Second)
		fmt.Println("$", line, err)
		fmt.Println(o)
	}
}
