package about

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

type usageError struct{ error }

// Usage marks an error as one in the command line, or in a file that it names.
func Usage(err error) error { return usageError{err} }

// IsUsage reports whether Usage has marked an error.
func IsUsage(err error) bool { return errors.As(err, new(usageError)) }

// NoArgs rejects arguments, including misspelt commands.
func NoArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage(NoCommand(c, args[0]))
	}
	return nil
}

// Words accepts low to high arguments.
func Words(low, high int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < low || len(args) > high {
			return Usage(fmt.Errorf("usage: %s", c.UseLine()))
		}
		return nil
	}
}
