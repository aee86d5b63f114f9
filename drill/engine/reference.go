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
	fmt.Fprint(w, head, "\n## Verbs\n\n| verb | keys | meaning |\n|---|---|---|\n")
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
		keys := ""
		if len(v.keys) > 0 {
			keys = "`" + strings.Join(sortedKeys(v.keys), "= ") + "=`"
		}
		fmt.Fprintf(w, "| `%s` | %s | %s |\n", form, keys, v.doc)
	}
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
