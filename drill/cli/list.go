package cli

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"roced.io/roced/drill/model"
	"roced.io/roced/drill/script"
	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/output"
)

// section is the coverage of a section of a specification.
type section struct {
	Spec    string   `json:"spec"`
	Must    int      `json:"must"`
	Policy  int      `json:"policy"`
	Scripts []string `json:"scripts"`
	Rules   []string `json:"rules"` // of the model
}

// listed is a script in a list.
type listed struct {
	Script string   `json:"script"`
	Spec   string   `json:"spec"`
	Must   bool     `json:"must"`
	Need   []string `json:"need"`
	About  string   `json:"about"`
}

func (a *app) list() *cobra.Command {
	var bySpec bool
	c := &cobra.Command{
		Use: "list SCRIPT|FOLDER...", Short: "List scripts, or the sections that they cover",
		Long: `Lists scripts with the section of the specification and the rule that each tests. must is
a demand of the specification, policy the device's choice. --spec lists the sections
with the numbers of scripts and of rules of rocedrill model.`,
		Example: `  rocedrill list drill/suite
  rocedrill list --spec drill/suite
  rocedrill list drill/suite --json`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return about.Usage(errors.New("usage: rocedrill list SCRIPT|FOLDER... [--spec]"))
			}
			scripts, err := load(args)
			if err != nil {
				return err
			}
			if bySpec {
				return a.listSections(sections(scripts))
			}
			return a.listScripts(scripts)
		},
	}
	c.Flags().BoolVar(&bySpec, "spec", false, "list sections instead of scripts")
	return c
}

func (a *app) lint() *cobra.Command {
	return &cobra.Command{
		Use: "lint SCRIPT|FOLDER...", Short: "Check scripts without a device",
		Long: `Checks scripts without a device: unknown capabilities, packets, fields, verbs, keys, words and
names, fields with two values, and values that do not fit their field. run does the same
before the first script. The exit code is 2 if a script is wrong.`,
		Example: `  rocedrill lint drill/suite
  rocedrill lint new.drill --json  # the errors with their places`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return about.Usage(errors.New("no script: name scripts or folders, as in \"rocedrill lint drill/suite\""))
			}
			scripts, err := load(args)
			errs := append([]*script.Error{}, lintAll(scripts)...)
			if bad := (*script.Error)(nil); errors.As(err, &bad) {
				errs = append(errs, bad)
			} else if err != nil {
				return err
			}
			if a.json {
				err = output.JSON(a.out, errs)
			}
			return cmp.Or(a.refuse(errs), err)
		},
	}
}

// sections counts the scripts of each section, in the order of their numbers.
func sections(scripts []*script.Script) []section {
	var list []section
	for _, s := range scripts {
		i := slices.IndexFunc(list, func(x section) bool { return x.Spec == s.Spec })
		if i < 0 {
			i, list = len(list), append(list, section{Spec: s.Spec, Rules: model.Citing(s.Spec)})
		}
		if s.Must {
			list[i].Must++
		} else {
			list[i].Policy++
		}
		list[i].Scripts = append(list[i].Scripts, s.Path)
	}
	slices.SortFunc(list, func(x, y section) int { return compareSections(x.Spec, y.Spec) })
	return list
}

// compareSections compares "IBTA 9.7.5" with "IBTA 10.2": numbers count, not digits.
func compareSections(x, y string) int {
	split := func(s string) []string {
		return strings.FieldsFunc(s, func(r rune) bool { return r == '.' || r == ' ' })
	}
	return slices.CompareFunc(split(x), split(y), func(a, b string) int {
		if len(a) != len(b) && a[0] >= '0' && a[0] <= '9' && b[0] >= '0' && b[0] <= '9' {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
}

func (a *app) listSections(list []section) error {
	if a.json {
		return output.JSON(a.out, list)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "section\tmust\tpolicy\tmodel")
	must, policy, rules := 0, 0, 0
	for _, s := range list {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\n", s.Spec, s.Must, s.Policy, len(s.Rules))
		must, policy, rules = must+s.Must, policy+s.Policy, rules+len(s.Rules)
	}
	fmt.Fprintf(w, "%d sections\t%d\t%d\t%d\n", len(list), must, policy, rules)
	return w.Flush()
}

func (a *app) listScripts(scripts []*script.Script) error {
	list := make([]listed, len(scripts))
	for i, s := range scripts {
		list[i] = listed{s.Path, s.Spec, s.Must, s.Need, s.About}
	}
	if a.json {
		return output.JSON(a.out, list)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, s := range list {
		kind := map[bool]string{true: "must", false: "policy"}[s.Must]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", output.Line(filepath.Clean(s.Script)), output.Line(s.Spec), kind, output.Line(s.About))
	}
	return w.Flush()
}
