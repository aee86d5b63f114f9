// Package about implements the commands that every program has: version, manual page and shell completion. It also suggests names for
// misspelt commands and flags.
package about

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/base/suggest"
	"roced.io/roced/internal/base/version"
)

// Program describes the program to the commands.
type Program struct {
	Section int    // section of the manual: 1 for user commands, 8 for administration
	Pages   []Page // more manual pages
}

// Add adds the commands to a program, and makes errors of flags usage errors. Call it after the program has added its own commands.
func (p Program) Add(root *cobra.Command) {
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return Usage(flagError(c, err)) })
	root.Version = version.Own().String()
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.Flags().Bool("version", false, "show the version") // cobra's own flag takes -v
	root.AddCommand(p.version(root), p.completion(root), p.man(root))
}

// NoCommand returns an error about an unknown command of c, with the most similar one.
func NoCommand(c *cobra.Command, name string) error {
	var known []string
	for _, s := range c.Commands() {
		if s.IsAvailableCommand() {
			known = append(known, s.Name())
		}
	}
	return fmt.Errorf("unknown command %q; see %s --help%s", name, c.CommandPath(), suggest.Hint(name, known))
}

// flagError adds the most similar flag to an error about an unknown one.
func flagError(c *cobra.Command, err error) error {
	var e *pflag.NotExistError
	if !errors.As(err, &e) {
		return err
	}
	var known []string
	c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, "--"+f.Name) })
	return fmt.Errorf("%w%s", err, suggest.Hint("--"+e.GetSpecifiedName(), known))
}

func (p Program) version(root *cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: "version", Short: "Show the version of this program", Args: Words(0, 0),
		Long: `Shows the version, the revision of the source and whether that was modified, as far as
the build knew them, and what it was built with and for.`,
		Example: "  " + root.Name() + " version --json",
		RunE: func(c *cobra.Command, _ []string) error {
			asJSON, err := c.Flags().GetBool("json")
			if err != nil {
				return err
			}
			if asJSON {
				return output.JSON(c.OutOrStdout(), version.Own())
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), root.Name(), version.Own())
			return err
		},
	}
	if root.PersistentFlags().Lookup("json") == nil {
		c.Flags().Bool("json", false, "print JSON")
	}
	return c
}

// shells maps each shell to the function that generates its completion script.
var shells = map[string]func(root *cobra.Command, w io.Writer) error{
	"bash": func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, true) },
	"zsh":  func(root *cobra.Command, w io.Writer) error { return root.GenZshCompletion(w) },
	"fish": func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) },
}

func (p Program) completion(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "completion bash|zsh|fish", Short: "Generate shell completion", Args: Words(1, 1),
		ValidArgs: []string{"bash", "zsh", "fish"},
		Long: `Prints a script that makes a shell complete commands, flags and what else they know.
Packages and "make install" put it where the shell looks for it.`,
		Example: fmt.Sprintf("  %[1]s completion fish | source\n  source <(%[1]s completion bash)", root.Name()),
		RunE: func(c *cobra.Command, args []string) error {
			write, ok := shells[args[0]]
			if !ok {
				return Usage(fmt.Errorf("shell %q: must be bash, zsh or fish", args[0]))
			}
			return write(root, c.OutOrStdout())
		},
	}
}

func (p Program) man(root *cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: "man", Short: "Print the manual page", Args: Words(0, 0),
		Long:    `Prints the manual page, which has all that --help of all commands says, as man(1) reads it.`,
		Example: "  " + root.Name() + " man | man -l -",
		RunE:    func(c *cobra.Command, _ []string) error { return writePage(c.OutOrStdout(), root, p.Section) },
	}
	for _, page := range p.Pages {
		c.AddCommand(&cobra.Command{
			Use: page.Name, Short: fmt.Sprintf("Print the manual page %s(%d)", page.Name, page.Section), Args: Words(0, 0),
			Example: fmt.Sprintf("  %s man %s | man -l -", root.Name(), page.Name),
			RunE:    func(c *cobra.Command, _ []string) error { return page.write(c.OutOrStdout()) },
		})
	}
	return c
}
