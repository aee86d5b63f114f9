package output

import (
	"encoding/json"
	"io"
)

// JSON writes a value as indented JSON.
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
