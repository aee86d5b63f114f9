package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"golang.org/x/sys/unix"
)

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, unix.ENOSPC }

// TestResult: a command fails if its output does, also if it ignores that.
func TestResult(t *testing.T) {
	for _, text := range []string{"text\n", "Ä\n"} {
		s := NewSafe(full{})
		if err := Result(s, nil); err != nil {
			t.Errorf("before: %v", err)
		}
		fmt.Fprint(s, text)
		if err := Result(s, nil); err != unix.ENOSPC {
			t.Errorf("%q: %v", text, err)
		}
		if err := Result(s, io.EOF); err != io.EOF {
			t.Errorf("%q: %v instead of the error of the command", text, err)
		}
	}
}

// TestSafe: no control character reaches a terminal, also if a character comes in parts. Other text and JSON keep their meaning.
func TestSafe(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb\nÄ €😀\n": "a\tb\nÄ €😀\n", "\x1b[31mred\x07\r\x7f\x00": `\u001b[31mred\u0007\u000d\u007f\u0000`,
		"\u202elrod.\u2066א": `\u202elrod.\u2066א`,
		"\u009b31m\u0085":    `\u009b31m\u0085`, "\x9b31m \xff": `\u009b31m \u00ff`, "\ufffd": "\ufffd", "": "",
	} {
		for size := 1; size <= len(text)+1; size++ {
			var out bytes.Buffer
			s := NewSafe(&out)
			for rest := []byte(text); len(rest) > 0; {
				n, err := s.Write(rest[:min(size, len(rest))])
				if err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if out.String() != want {
				t.Errorf("%q in parts of %d: %q, want %q", text, size, &out, want)
			}
		}
	}
	if got := Line("a\n\tb\x1b"); got != `a\u000a\u0009b\u001b` {
		t.Errorf("%q", got)
	}
	var out bytes.Buffer
	if err := json.NewEncoder(NewSafe(&out)).Encode("\u009b\x7f\x1b"); err != nil {
		t.Fatal(err)
	}
	var back string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back != "\u009b\x7f\x1b" {
		t.Errorf("%s: %q, %v", &out, back, err)
	}
}
