package perf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"roced.io/roced/internal/lab"
)

// TestLocal: both sides verify messages on NICs of their own.
func TestLocal(t *testing.T) {
	for _, test := range []string{"write-lat", "send-lat", "read-lat", "write-bw", "send-bw -e"} {
		dir := t.TempDir()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ended := make(chan error, 2)
		var out [2]bytes.Buffer
		for i, ends := range [2][2]string{{"b", "a"}, {"a", "b"}} {
			file := filepath.Join(dir, ends[0]+".yaml")
			lab.Must(t, os.WriteFile(file, fmt.Appendf(nil, "nics: [{name: rxe_%s, addresses: [198.18.0.%d/24], port: {type: unix, local: %s, remote: %s}}]",
				ends[0], i+1, filepath.Join(dir, ends[0]), filepath.Join(dir, ends[1])), 0o600))
			name, more, _ := strings.Cut(test, " ")
			o, err := options(name, more+fmt.Sprintf(" -n 300 --verify --json --quiet --local %s --oob unix:%s/oob", file, dir))
			lab.Must(t, err)
			if i == 1 {
				o.Host = "peer"
				lab.Eventually(t, lab.Limit, "the server listens", func() bool { return exists(filepath.Join(dir, "oob")) })
			}
			go func() { ended <- o.run(ctx, &out[i]) }()
		}
		lab.Must(t, errors.Join(<-ended, <-ended))
		if r := out[1].String(); !strings.Contains(r, `"verified":true`) {
			t.Errorf("%s: %s", test, r)
		}
	}
}
