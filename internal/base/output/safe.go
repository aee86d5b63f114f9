package output

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Safe is an output for text, in which it replaces control characters, also those of the writing direction, by escapes such as \u001b. Names of files, scenarios and
// programs, comments of captures and errors of peers could change the state of the terminal otherwise. Line feeds and
// tabs remain.
type Safe struct {
	to   io.Writer
	mu   sync.Mutex
	held []byte // beginning of a character
	err  error  // the first one of to
}

// NewSafe returns an output that writes to w.
func NewSafe(w io.Writer) *Safe { return &Safe{to: w} }

// Result returns the result of a command that wrote to w: err, or else the first error of an output from NewSafe. Most
// commands print without a look at errors.
func Result(w io.Writer, err error) error {
	s, ok := w.(*Safe)
	if err != nil || !ok {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Write implements io.Writer.
func (s *Safe) Write(p []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err = s.write(p)
	s.err = cmp.Or(s.err, err)
	return n, err
}

func (s *Safe) write(p []byte) (int, error) {
	if len(s.held) == 0 && plain(p) {
		return s.to.Write(p)
	}
	text := append(s.held, p...)
	n := len(text)
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ {
		if last := text[len(text)-back:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				n -= back
			}
			break
		}
	}
	_, err := io.WriteString(s.to, printable(string(text[:n]), "\n\t"))
	s.held = append(s.held[:0], text[n:]...)
	return len(p), err
}

// plain reports whether text has only printable characters of ASCII, line feeds and tabs.
func plain(text []byte) bool {
	for _, c := range text {
		if c < ' ' && c != '\n' && c != '\t' || c >= 0x7f {
			return false
		}
	}
	return true
}

// Line returns text for a part of a line, without any control character.
func Line(text string) string { return printable(text, "") }

// printable escapes control characters and invalid bytes, except those of allowed. The escapes are also those of JSON.
func printable(text, allowed string) string {
	good := func(c rune) bool {
		return !unicode.IsControl(c) && !unicode.Is(unicode.Bidi_Control, c) && c != utf8.RuneError || strings.ContainsRune(allowed, c)
	}
	if strings.IndexFunc(text, func(c rune) bool { return !good(c) }) < 0 {
		return text
	}
	var b strings.Builder
	for i, c := range text {
		switch {
		case good(c) || c == utf8.RuneError && strings.HasPrefix(text[i:], string(utf8.RuneError)):
			b.WriteRune(c)
		case c == utf8.RuneError:
			fmt.Fprintf(&b, `\u%04x`, text[i])
		default:
			fmt.Fprintf(&b, `\u%04x`, c)
		}
	}
	return b.String()
}

// Raw returns the output below w, for bytes that are no text.
func Raw(w io.Writer) io.Writer {
	if s, ok := w.(*Safe); ok {
		return s.to
	}
	return w
}

// Terminal returns the terminal below w, nil if there is none.
func Terminal(w io.Writer) *os.File {
	f, ok := Raw(w).(*os.File)
	if !ok {
		return nil
	}
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
		return nil
	}
	return f
}
