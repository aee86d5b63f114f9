package engine

import (
	"fmt"
	"strings"

	"roced.io/roced/bth/fields"
	"roced.io/roced/drill/frame"
)

const head = `# Verbs, fields and packets of rocedrill

For authors of [scripts](drill.md): all names. Written from the code by ` + "`go test ./drill/engine -run TestReference -update`" + `.
`

// WriteReference writes docs/reference/drill-tables.md: the names of verbs, fields and packets.
func WriteReference(w *strings.Builder) {
	fmt.Fprint(w, head, "\n## Verbs\n\nNumbers behind keys are their defaults.\n\n| verb | keys | meaning |\n|---|---|---|\n")
	others := map[string]string{} // defaults that are no numbers
	for _, name := range sortedKeys(verbs) {
		v := verbs[name]
		form := "dut." + name
		if v.creates {
			form = "NAME = " + form
		}
		if v.object {
			form += " OBJECT"
		}
		if v.word != "" {
			form += " " + strings.ToUpper(v.word)
		}
		if v.parts {
			form += " PART..."
		}
		var keys []string
		for _, k := range sortedKeys(v.keys) {
			d := defaultOf(name, k)
			if strings.Contains(d, " ") || d != "" && (k == "fill" || k == "state") {
				others[k+"= of dut."+name] = d
				d = ""
			}
			keys = append(keys, "`"+k+"="+d+"`")
		}
		fmt.Fprintf(w, "| `%s` | %s | %s |\n", form, strings.Join(keys, ", "), v.doc)
	}
	table(w, "Other defaults", "key", others)
	for _, x := range []struct{ title, of string }{{"Events", "event"}, {"Statuses of completions", "cqe"}, {"Operations (`op=`)", "op"}, {"States", "state"}} {
		fmt.Fprintf(w, "\n## %s\n\n`%s`.\n", x.title, strings.Join(words[x.of], "`, `"))
	}
	fmt.Fprint(w, "\n## Rights (`access=`)\n\n`l` local write, `w` remote write, `r` remote read, `a` remote atomic, `b` bind, `f` flush; `none`.\n")
	table(w, "Capabilities (`need`)", "capability", capabilities)
	table(w, "Variables", "variable", variables)
	docs := map[string]string{}
	for name, f := range functions {
		docs[name] = f.doc
	}
	table(w, "Functions", "function", docs)
	fmt.Fprint(w, "\n## Fields\n\n| field | header | bits | meaning |\n|---|---|---|---|\n")
	seen := map[string]bool{}
	for _, h := range fields.All() {
		for _, f := range h.Fields {
			if frame.Known(f.Script) && !seen[f.Script] {
				fmt.Fprintf(w, "| `%s` | %s | %d | %s |\n", f.Script, h.Name, f.Bits, f.Text)
			}
			seen[f.Script] = true
		}
	}
	fmt.Fprintf(w, "\n## Packets by name\n\n`%s`.\n", strings.Join(frame.Opcodes(), "`, `"))
}

// table writes a table of names with their meanings.
func table(w *strings.Builder, title, kind string, meanings map[string]string) {
	fmt.Fprintf(w, "\n## %s\n\n| %s | meaning |\n|---|---|\n", title, kind)
	for _, name := range sortedKeys(meanings) {
		fmt.Fprintf(w, "| `%s` | %s |\n", name, meanings[name])
	}
}
