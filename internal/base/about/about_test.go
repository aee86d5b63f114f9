package about

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/version"
)

// program returns a program with every element of a manual page.
func program() *cobra.Command {
	root := &cobra.Command{Use: "prog", Short: "Do things", SilenceErrors: true, SilenceUsage: true,
		Example:           "  prog sub x   does x",
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}}
	root.PersistentFlags().String("dir", "/of/this/machine", "folder of `FILES`")
	Varies(root.PersistentFlags().Lookup("dir"), "the user's")
	sub := &cobra.Command{Use: "sub [THING]", Short: "Do one", Example: "  prog sub",
		Long: "First lines\n.that begin with a dot, or \\backslash.\n\n  indented   \"lines\"\n'with quotes", RunE: func(*cobra.Command, []string) error { return nil }}
	sub.Flags().IntP("many", "m", 7, "how many")
	sub.Flags().Bool("off", false, "says no default")
	hidden := &cobra.Command{Use: "secret", Hidden: true, RunE: sub.RunE}
	root.AddCommand(sub, hidden)
	Program{Section: 8}.Add(root)
	return root
}

func run(args ...string) (string, error) {
	var out bytes.Buffer
	c := program()
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(args)
	err := c.Execute()
	return out.String(), err
}

func TestVersion(t *testing.T) {
	want := "prog " + version.Own().String() + "\n"
	for _, args := range [][]string{{"version"}, {"--version"}} {
		if out, err := run(args...); err != nil || out != want {
			t.Errorf("%v: %q, %v, not %q", args, out, err, want)
		}
	}
	out, err := run("version", "--json")
	var v version.Info
	if jerr := json.Unmarshal([]byte(out), &v); err != nil || jerr != nil || v != version.Own() {
		t.Errorf("%s, %v, %v", out, err, jerr)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"version", "x"}, {"man", "x"}, {"completion"}, {"completion", "csh"}, {"completion", "bash", "zsh"}} {
		if out, err := run(args...); !IsUsage(err) {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
}

// TestSuggestions: errors about misspelt commands and flags name the most similar one. Hidden commands are not suggested.
func TestSuggestions(t *testing.T) {
	c := program()
	for name, want := range map[string]string{"sbu": `unknown command "sbu"; see prog --help; did you mean "sub"?`, "secre": `unknown command "secre"; see prog --help`} {
		if err := NoCommand(c, name); err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for flag, want := range map[string]string{"--mani=1": "unknown flag: --mani; did you mean \"--many\"?", "--dri=x": "unknown flag: --dri; did you mean \"--dir\"?",
		"--zzzz": "unknown flag: --zzzz", "--many=x": `invalid argument "x" for "-m, --many" flag: strconv.ParseInt: parsing "x": invalid syntax`} {
		if _, err := run("sub", flag); !IsUsage(err) || err.Error() != want {
			t.Errorf("%s: %v, want %s", flag, err, want)
		}
	}
}

func TestCompletion(t *testing.T) {
	for shell, want := range map[string]string{"bash": "complete -o default -F __start_prog prog", "zsh": "#compdef prog", "fish": "complete -c prog"} {
		if out, err := run("completion", shell); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, %.300s", shell, err, out)
		}
	}
	if out, err := run("__complete", "s"); err != nil || !strings.HasPrefix(out, "sub\tDo one\n:") {
		t.Errorf("%v, %q", err, out)
	}
}

func TestPage(t *testing.T) {
	out, err := run("man")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		".TH PROG 8 \"\" \"roced " + version.Number + "\"\n.SH NAME\nprog \\- Do things\n",
		".TP\n\\-\\-dir FILES\nfolder of FILES (default the user's)\n",
		".SS \"prog sub [THING] [flags]\"\nFirst lines\n\\&.that begin with a dot, or \\ebackslash.\n.PP\n.nf\n  indented   \\(dqlines\\(dq\n\\&'with quotes\n.fi\n",
		".TP\n\\-m, \\-\\-many int\nhow many (default 7)\n.TP\n\\-\\-off\nsays no default\n",
		".SH EXAMPLES\n.PP\n.nf\n  prog sub x   does x\n.fi\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the page lacks\n%s", want)
		}
	}
	for _, not := range []string{"secret", "/of/this/machine", "help for"} {
		if strings.Contains(out, not) {
			t.Errorf("the page says %q", not)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

// TestPageIsRead formats a page with man(1)'s formatter and all its warnings.
func TestPageIsRead(t *testing.T) {
	if _, err := exec.LookPath("groff"); err != nil {
		t.Skip("no groff")
	}
	page, err := run("man")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("groff", "-man", "-Tascii", "-ww", "-z")
	c.Stdin = strings.NewReader(page)
	if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}
