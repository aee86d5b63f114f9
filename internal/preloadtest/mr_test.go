package preloadtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
)

// modes are the values of ROCED_MR: replace pages where that can be done, or never.
var modes = []string{"auto", "pvm"}

// inModes runs a program in all modes.
func inModes(t *testing.T, name string, args ...string) {
	l := newLab(t)
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			c := verbs(t, l, name)
			c.Args = append(c.Args, args...)
			c.Env = append(c.Env, "ROCED_MR="+mode)
			succeed(t, c)
		})
	}
}

const hugePages = "/proc/sys/vm/nr_hugepages"

// TestRegions needs a few huge pages, which it gives back.
func TestRegions(t *testing.T) {
	old, err := os.ReadFile(hugePages)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hugePages, []byte("4\n"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(hugePages, old, 0); err != nil {
			t.Error(err)
		}
	})
	inModes(t, "regions")
}

func TestLifecycle(t *testing.T) { inModes(t, "lifecycle") }

// TestRace registers memory while threads write to it.
func TestRace(t *testing.T) {
	seed := rand.Uint32()
	t.Log("seed", seed)
	inModes(t, "race", fmt.Sprint(seed))
}
