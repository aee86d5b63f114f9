package about

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"roced.io/roced/internal/base/version"
)

// varies is the annotation of a flag whose default depends on the machine.
const varies = "roced_default"

// Varies describes a flag's default in words. The manual page is then the same on every machine.
func Varies(f *pflag.Flag, words string) {
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[varies] = []string{words}
}

// Page is a manual page that is not a program's.
type Page struct {
	Name    string // such as roced.yaml
	Section int
	Short   string
	Parts   []Part
}

// Part is a section of a page: paragraphs, of which indented ones are verbatim, and a list of terms with their meaning.
type Part struct {
	Title, Text string
	Items       [][2]string
}

// write writes the page.
func (x *Page) write(w io.Writer) error {
	p := &page{}
	p.head(x.Name, x.Section, x.Short)
	for _, part := range x.Parts {
		p.section(part.Title)
		p.text(part.Text)
		for _, i := range part.Items {
			fmt.Fprint(p, ".TP\n")
			p.lines(i[0])
			p.lines(i[1])
		}
	}
	_, err := w.Write(p.Bytes())
	return err
}

// page builds a manual page in the man(7) language.
type page struct{ bytes.Buffer }

// writePage writes one page with all commands of a program: they are too short for a page each.
func writePage(w io.Writer, root *cobra.Command, section int) error {
	p := &page{}
	p.head(root.Name(), section, root.Short)
	p.section("SYNOPSIS")
	p.text(root.Name() + " COMMAND [ARGUMENT...]")
	p.section("DESCRIPTION")
	p.text(description(root))
	p.section("OPTIONS")
	p.flags(root)
	p.section("COMMANDS")
	for _, c := range root.Commands() {
		p.commands(c)
	}
	p.section("EXIT STATUS")
	p.text("0: it has succeeded. 1: it has failed. 2: the command line or a file that it names is wrong. What else there is, commands say.")
	p.section("EXAMPLES")
	p.verbatim(root.Example)
	_, err := w.Write(p.Bytes())
	return err
}

// commands describes a command and its subcommands.
func (p *page) commands(c *cobra.Command) {
	if !c.IsAvailableCommand() {
		return
	}
	fmt.Fprintf(p, ".SS \"%s\"\n", escape(c.UseLine()))
	p.text(description(c))
	p.flags(c)
	if c.Example != "" {
		fmt.Fprint(p, ".PP\nExamples:\n")
		p.verbatim(c.Example)
	}
	for _, sub := range c.Commands() {
		p.commands(sub)
	}
}

func description(c *cobra.Command) string {
	if c.Long != "" {
		return c.Long
	}
	return c.Short + "."
}

// head begins the page.
func (p *page) head(name string, section int, short string) {
	fmt.Fprintf(p, ".TH %s %d \"\" \"roced %s\"\n", strings.ToUpper(name), section, version.Number)
	p.section("NAME")
	p.text(name + " - " + short)
}

func (p *page) section(name string) { fmt.Fprintf(p, ".SH %s\n", name) }

// text writes paragraphs, and indented lines verbatim.
func (p *page) text(s string) {
	for i, paragraph := range strings.Split(strings.Trim(s, "\n"), "\n\n") {
		if strings.HasPrefix(paragraph, " ") {
			p.verbatim(paragraph)
			continue
		}
		if i > 0 {
			fmt.Fprint(p, ".PP\n")
		}
		p.lines(paragraph)
	}
}

// verbatim writes lines unchanged.
func (p *page) verbatim(s string) {
	fmt.Fprint(p, ".PP\n.nf\n")
	p.lines(strings.Trim(s, "\n"))
	fmt.Fprint(p, ".fi\n")
}

func (p *page) lines(s string) {
	for line := range strings.Lines(s) {
		line = escape(strings.TrimRight(line, "\n"))
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line // man would read the line as a request
		}
		fmt.Fprintln(p, line)
	}
}

// flags lists the flags that a command defines.
func (p *page) flags(c *cobra.Command) {
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		fmt.Fprint(p, ".TP\n")
		p.lines(strings.TrimSpace(name + " " + value))
		p.lines(usage + preset(f))
	})
}

// preset returns a description of a flag's default.
func preset(f *pflag.Flag) string {
	words := f.DefValue
	if v := f.Annotations[varies]; len(v) > 0 {
		words = v[0]
	}
	switch words {
	case "", "0", "0s", "false", "[]":
		return ""
	}
	return " (default " + words + ")"
}

// escape escapes the special characters of man(7).
func escape(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`).Replace(s)
}
