package programs

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"roced.io/roced/internal/lab"
)

var (
	update = flag.Bool("update", false, "write "+tableFile)
	all    = flag.Bool("all", false, "run the programs too that `make programs` installs")
)

func TestMain(m *testing.M) {
	flag.Parse()
	var err error
	if os.Geteuid() != nobody {
		err = readTable()
	}
	if *update && (flag.Lookup("test.run").Value.String() != "" || !*all) {
		err = errors.New("-update needs all results: with -all and without -run")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "programs:", err)
		os.Exit(1)
	}
	lab.LongMain(m, func() error {
		if *update {
			return writeTable()
		}
		return nil
	})
}
