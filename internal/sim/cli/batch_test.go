package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"roced.io/roced/internal/lab"
)

// wrapper writes a program that acts as rocesim: this test binary in another role.
func wrapper(t *testing.T, dir string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "a program")
	if err := os.WriteFile(file, []byte("#!/bin/sh\nexec env "+asRocesim+"=1 "+quote(self)+` "$@"`+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// namespaced returns a command in its own namespaces; all its processes end with it.
func namespaced(args ...string) *exec.Cmd {
	flags := []string{"--net", "--uts", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if os.Getuid() != 0 {
		flags = append(flags, "--user", "--map-root-user")
	}
	return exec.Command("unshare", append(flags, args...)...)
}

// TestSlurm: a real cluster of one machine runs a sweep as a job array. Each job runs a part and repeats no finished
// run. The result equals that of a sweep without Slurm.
func TestSlurm(t *testing.T) {
	lab.Long(t)
	withoutRaces(t)
	for _, p := range []string{"munged", "slurmctld", "slurmd", "sbatch", "unshare"} {
		lab.Need(t, p)
	}
	dir, cluster := t.TempDir(), t.TempDir()
	sweepDir := filepath.Join(dir, "it's a sweep")
	args := append([]string{"sweep", scenarios + "incast.yaml", "-q", "--vary", "transport.profile=rc,irn,eunomia", "--seeds", "1..2"}, small...)
	code, out, diag := rocesim(append(args, "-o", sweepDir, "--slurm", "--jobs", "3", "--at-once", "2", "--program", wrapper(t, dir))...)
	if code != 0 || !strings.Contains(out, "sbatch --wait") {
		t.Fatalf("code %d: %s%s", code, out, diag)
	}
	if code, _, diag := rocesim("work", sweepDir, "--shard", "1/6", "-q"); code != 0 {
		t.Fatal(diag)
	}
	before, err := os.Stat(filepath.Join(sweepDir, "runs", "0001"))
	if err != nil {
		t.Fatal(err)
	}
	c := namespaced("bash", "testdata/slurm.sh", cluster, filepath.Join(sweepDir, "slurm.sh"))
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(2*time.Minute, func() { _ = c.Process.Kill() })
	err = c.Wait()
	if limit.Stop(); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	if after, err := os.Stat(filepath.Join(sweepDir, "runs", "0001")); err != nil || !os.SameFile(before, after) {
		t.Errorf("a run that was done has been done again: %v", err)
	}
	for job := range 3 {
		if b, err := os.ReadFile(filepath.Join(sweepDir, fmt.Sprintf("slurm-%d.log", job))); err != nil || !strings.Contains(string(b), "2 of 2 runs done") {
			t.Errorf("job %d: %v, %s", job, err, b)
		}
	}
	code, collected, diag := rocesim("collect", sweepDir)
	if code != 0 {
		t.Fatal(diag)
	}
	if code, local, diag := rocesim(append(args, "-o", filepath.Join(dir, "local"))...); code != 0 || local != collected {
		t.Errorf("code %d: %s%swith Slurm:\n%s", code, diag, local, collected)
	}
}

// TestKubernetes: the manifest has the fields and types that Kubernetes publishes for a Job, with the required values.
func TestKubernetes(t *testing.T) {
	lab.Long(t)
	withoutRaces(t)
	dir := filepath.Join(t.TempDir(), "s")
	args := append([]string{"sweep", scenarios + "incast.yaml", "-o", dir, "--vary", "transport.profile=rc,irn", "--seeds", "1..100",
		"--kubernetes", "--image", "registry.example/rocesim:1", "--claim", "sweeps", "--jobs", "80", "--at-once", "7"}, small...)
	if code, out, diag := rocesim(args...); code != 0 || !strings.Contains(out, "kubectl") {
		t.Fatalf("code %d: %s%s", code, out, diag)
	}
	text, err := os.ReadFile(filepath.Join(dir, "job.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(t.TempDir(), "kubernetes")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Dir = "testdata/kubernetes"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	understood := func(manifest string) (string, error) {
		c := exec.Command(bin)
		c.Stdin = strings.NewReader(manifest)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	for old, with := range map[string]string{"completionMode": "completingMode", "completions: 80": "completions: many", "mountPath": "path", "claimName": "name"} {
		if out, err := understood(strings.Replace(string(text), old, with, 1)); err == nil {
			t.Errorf("%s is accepted: %s", with, out)
		}
	}
	out, err := understood(string(text))
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var got, want any
	const job = `{"kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": "rocesim-incast"}, "status": {},
		"spec": {"completionMode": "Indexed", "completions": 80, "parallelism": 7, "backoffLimit": 8, "template": {"metadata": {}, "spec": {
			"restartPolicy": "Never", "volumes": [{"name": "sweep", "persistentVolumeClaim": {"claimName": "sweeps"}}],
			"containers": [{"name": "rocesim", "image": "registry.example/rocesim:1", "resources": {"requests": {"cpu": "1"}},
				"command": ["rocesim", "work", "/sweep", "--shard", "$(JOB_COMPLETION_INDEX)/80", "--parallel", "1"],
				"volumeMounts": [{"name": "sweep", "mountPath": "/sweep"}]}]}}}}`
	if err := json.Unmarshal([]byte(job), &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v\ngot  %v\nwant %v", err, got, want)
	}
	command := []string{"work", dir, "--shard", "79/80", "--parallel", "1"} // the command of the last pod
	if code, _, diag := rocesim(command...); code != 0 || !strings.Contains(diag, "2 of 2 runs done") {
		t.Errorf("code %d: %s", code, diag)
	}
}

// TestJobNames: both engines accept any title.
func TestJobNames(t *testing.T) {
	for title, want := range map[string]string{
		"incast": "rocesim-incast", "": "rocesim", "Incast 30 → 1 / DCQCN!": "rocesim-incast-30-1-dcqcn",
		strings.Repeat("ab-", 40): "rocesim-" + strings.Repeat("ab-", 13) + "ab",
	} {
		if got := jobName(title); got != want || len(got) > 50 {
			t.Errorf("%q: %q, want %q", title, got, want)
		}
	}
}
