package kubernetes

import (
	"os"
	"os/exec"
	"testing"

	"roced.io/roced/internal/lab"
)

func TestMain(m *testing.M) { lab.LongMain(m, nil) }

// TestModule vets and tests the node agent. The kubelet is an imitation, and pods are namespaces. It also tests the
// manifests.
func TestModule(t *testing.T) {
	for _, args := range [][]string{{"vet", "./..."}, {"test", "-count=1", "./..."}} {
		c := exec.Command("go", args...)
		c.Dir = "../../../deploy/kubernetes"
		c.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly", "ROCED_BIN="+lab.Bin)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
}
