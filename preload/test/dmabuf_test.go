package test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/vm"
)

// TestDMABufs registers dma-bufs in a virtual machine. Debian's kernels have /dev/udmabuf and /dev/dma_heap since 13.
func TestDMABufs(t *testing.T) {
	lab.Long(t)
	const bootLimit, limit = 5 * time.Minute, 2 * time.Minute // QEMU emulates
	var programs []string
	for _, name := range []string{"roced", "rocectl", "libroced.so"} {
		programs = append(programs, filepath.Join(lab.Bin, name))
	}
	im, err := vm.Make("trixie", "dmabuf", t.Output(), append(programs, compile(t, "dmabuf", "-libverbs"))...)
	if errors.Is(err, vm.ErrSkip) {
		t.Skip(err)
	}
	lab.Must(t, err)
	m, err := vm.Start(vm.Options{Image: im, Dir: t.TempDir(), CPUs: 2}, bootLimit)
	lab.Must(t, err)
	defer m.Close()
	daemon, err := m.Begin(`cat >/tmp/roced.yaml <<EOT
run_dir: /run/roced
nics: [{name: rxe0, addresses: [198.18.0.1/24], port: {type: unix, local: /run/a, remote: /run/b}}]
EOT
chmod 755 /run; exec roced run --config /tmp/roced.yaml`)
	lab.Must(t, err)
	if err := daemon.Until("rocectl --run-dir /run/roced link >/dev/null 2>&1", limit); err != nil {
		t.Fatal(err)
	}
	for user, want := range map[string]string{"0": "4 dma-buf (", "65534": ""} {
		out, err := m.Shell("rocectl --run-dir /run/roced exec --summary -- dmabuf "+user+" 2>&1", limit)
		if err != nil || !strings.Contains(out, want) {
			text, _ := daemon.End()
			t.Errorf("user %s: %v\n%s\n%s", user, err, out, text)
		}
	}
}
