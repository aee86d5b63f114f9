package programs

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"roced/internal/test/lab"
)

var update = flag.Bool("update", false, "write "+tableFile)

func TestMain(m *testing.M) {
	flag.Parse()
	err := readTable()
	if *update && flag.Lookup("test.run").Value.String() != "" {
		err = errors.New("-update needs all results: not with -run")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "programs:", err)
		os.Exit(1)
	}
	lab.Main(m, func() error {
		if *update {
			return writeTable()
		}
		return nil
	})
}
