package script

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// kind is the kind of a token.
type kind uint8

const (
	tokEnd     kind = iota // of the script
	tokNewline             // or a semicolon
	tokName
	tokNumber
	tokDuration
	tokText
	tokPunct
)

type token struct {
	Pos
	kind     kind
	text     string // name, punctuation, content of a string
	number   uint64
	duration time.Duration
}

// String describes the token for messages.
func (t token) String() string {
	switch t.kind {
	case tokEnd:
		return "the end of the script"
	case tokNewline:
		return "the end of the line"
	case tokText:
		return strconv.Quote(t.text)
	}
	return t.text
}

// punctuation lists the signs, longer ones first.
var punctuation = []string{"..", "!=", "<<", ">>", "=", "<", ">", "{", "}", "(", ")", "[", "]", ":", ",", "+", "-", "*", "/", "%", "&", "|", "?"}

// lex splits a line into tokens, at most room. The last one is the end of the line.
func lex(line string, number, room int) (tokens []token, err error) {
	for i := 0; ; {
		at := Pos{number, i + 1}
		if len(tokens) >= room {
			return nil, &Error{Pos: at, Text: fmt.Sprintf("the script has more than %d words and signs up to here; split it", maxTokens)}
		}
		if i == len(line) {
			return append(tokens, token{Pos: at, kind: tokNewline}), nil
		}
		rest := line[i:]
		c := rest[0]
		n := 1
		switch {
		case c == ' ' || c == '\t' || c == '\r':
		case c == '#':
			n = len(rest)
		case c == ';':
			tokens = append(tokens, token{Pos: at, kind: tokNewline, text: ";"})
		case c == '"':
			end := strings.IndexByte(rest[1:], '"')
			if end < 0 {
				return nil, &Error{Pos: at, Text: "the string does not end on this line"}
			}
			n = end + 2
			tokens = append(tokens, token{Pos: at, kind: tokText, text: rest[1 : n-1]})
		case letter(c):
			n = nameLen(rest)
			tokens = append(tokens, token{Pos: at, kind: tokName, text: rest[:n]})
		case digit(c):
			n = span(rest, func(c byte) bool { return letter(c) || digit(c) })
			t, err := quantity(rest[:n])
			if err != nil {
				return nil, &Error{Pos: at, Text: err.Error()}
			}
			t.Pos = at
			tokens = append(tokens, t)
		default:
			p := sign(rest)
			if p == "" {
				return nil, &Error{Pos: at, Text: fmt.Sprintf("unexpected character %q", c)}
			}
			n = len(p)
			tokens = append(tokens, token{Pos: at, kind: tokPunct, text: p})
		}
		i += n
	}
}

func letter(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' }
func digit(c byte) bool  { return c >= '0' && c <= '9' }

// span returns how many bytes at the start of s are in the set.
func span(s string, in func(byte) bool) int {
	n := 0
	for n < len(s) && in(s[n]) {
		n++
	}
	return n
}

// nameLen returns the length of the name at the start of s. A name may have parts with single dots between them.
func nameLen(s string) int {
	n := 0
	for {
		n += span(s[n:], func(c byte) bool { return letter(c) || digit(c) })
		if n+1 >= len(s) || s[n] != '.' || !letter(s[n+1]) {
			return n
		}
		n++
	}
}

func sign(s string) string {
	for _, p := range punctuation {
		if strings.HasPrefix(s, p) {
			return p
		}
	}
	return ""
}

// quantity parses a number, or a duration such as 20ms.
func quantity(s string) (token, error) {
	if v, err := strconv.ParseUint(s, 0, 64); err == nil {
		return token{kind: tokNumber, text: s, number: v}, nil
	}
	if d, err := time.ParseDuration(s); err == nil {
		return token{kind: tokDuration, text: s, duration: d}, nil
	}
	return token{}, fmt.Errorf("%s is neither a number of up to 64 bits nor a duration such as 20ms", s)
}
