package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
)

// exampleFolders are the folders that documents name: configurations with scenarios of the simulator, scripts of rocedrill,
// and captures of Linux' rdma_rxe.
var exampleFolders = []string{"configs", "drill/suite", "bth/testdata"}

// examples returns the command examples.
func examples() *cobra.Command {
	return &cobra.Command{
		Use: "examples [FOLDER]", Short: "Print or copy configurations, scripts and captures",
		Long: `Prints the folder with configs (configurations, and scenarios of rocesim in configs/sim),
drill/suite (scripts of rocedrill) and bth/testdata (captures of Linux' rdma_rxe): the clone,
or the folder of the installation. With FOLDER it copies them there, so that the documents'
commands work in FOLDER. It overwrites no file.`,
		Example: "  roced examples\n  roced examples try && cd try && rocesim run configs/sim/incast.yaml",
		Args:    about.Words(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			program, err := os.Executable()
			if err != nil {
				return err
			}
			from, err := exampleFolder(filepath.Dir(program))
			if err != nil {
				return err
			}
			if len(args) == 0 {
				_, err = fmt.Fprintln(c.OutOrStdout(), from)
				return err
			}
			for _, folder := range exampleFolders {
				if err := os.CopyFS(filepath.Join(args[0], folder), os.DirFS(filepath.Join(from, folder))); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// exampleFolder finds the folder of the examples from that of the program: in a clone, or installed.
func exampleFolder(bin string) (string, error) {
	for _, at := range []string{filepath.Join(bin, ".."), filepath.Join(bin, "../share/roced")} {
		if _, err := os.Stat(filepath.Join(at, "configs/sim")); err == nil {
			return filepath.Abs(at)
		}
	}
	return "", errors.New("the examples are not installed: they are in the folders configs, drill/suite and bth/testdata of a clone")
}
