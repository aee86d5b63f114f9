package drill

import (
	"fmt"
	"strings"

	"roced.io/roced/internal/drill/frame"
)

// WriteReference writes the tables of verbs and of fields for docs/reference/drill.md.
func WriteReference(w *strings.Builder) {
	fmt.Fprint(w, "\n## Verbs\n\n| verb | keys | meaning |\n|---|---|---|\n")
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
	fmt.Fprint(w, "\n## Fields\n\n| field | bits | meaning |\n|---|---|---|\n")
	for _, f := range frame.Fields() {
		fmt.Fprintf(w, "| `%s` | %d | %s |\n", f.Name, f.Bits(), f.Doc)
	}
	fmt.Fprintf(w, "\nFields of the extension header (docs/reference/wire.md): `%s`.\n", strings.Join(frame.ExtFields(), "`, `"))
	fmt.Fprintf(w, "\n## Packets by name\n\n`%s`.\n", strings.Join(frame.Opcodes(), "`, `"))
}
