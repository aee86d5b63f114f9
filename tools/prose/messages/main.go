// Command messages checks the texts in Go files that users read, and the words in names, against the rules of the project's prose.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"roced.io/roced/tools/prose/internal/gotext"
)

func main() {
	styles := flag.String("styles", "tools/lint/styles/roced", "folder of vale's rules")
	flag.Parse()
	c, err := newChecker(*styles)
	if err != nil {
		fmt.Fprintln(os.Stderr, "messages:", err)
		os.Exit(2)
	}
	failed := false
	for _, name := range flag.Args() {
		src, err := os.ReadFile(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, "messages:", err)
			os.Exit(2)
		}
		texts, err := gotext.File(name, src)
		if err != nil {
			fmt.Fprintln(os.Stderr, "messages:", err)
			os.Exit(2)
		}
		for _, t := range texts {
			if t.Kind != gotext.Name && strings.HasSuffix(name, "_test.go") {
				continue // users do not read them
			}
			for _, bad := range c.check(&t) {
				failed = true
				fmt.Printf("%s:%d: %s: %s\n", name, t.Pos.Line, bad, t.Text)
			}
		}
	}
	if failed {
		os.Exit(1)
	}
}

// Limits of texts.
const (
	maxShort = 60 // characters
	maxWords = 25 // of a sentence
)

// banned are words that no name has: names come from the field, and components are not persons.
var banned = []string{"crowd", "crowded", "hear", "heard", "obey", "obeys", "outlaw", "patience", "patient", "rouse", "somebody", "station", "stations",
	"stranger", "strangers", "whoever"}

var (
	// headless matches a clause without a noun for its subject or object.
	headless = regexp.MustCompile(`(?i)\b(?:what|who|whom|whoever|whatever)\b`)
	// inverted matches "is no file" and "there is no file with", which "is not a file" and "no file" say directly.
	inverted = regexp.MustCompile(`\b(?:is|are) no\b`)
	sentence = regexp.MustCompile(`[.:;?!(]\s`)
)

type checker struct {
	phrases *regexp.Regexp
}

// newChecker reads the phrases that vale refuses in comments and documents.
func newChecker(styles string) (*checker, error) {
	text, err := os.ReadFile(filepath.Join(styles, "Phrases.yml"))
	if err != nil {
		return nil, err
	}
	var rule struct{ Tokens []string }
	if err := yaml.Unmarshal(text, &rule); err != nil {
		return nil, err
	}
	p, err := regexp.Compile(`(?i)\b(?:` + strings.Join(rule.Tokens, "|") + `)\b`)
	return &checker{p}, err
}

// check returns the rules that t violates.
func (c *checker) check(t *gotext.Text) (bad []string) {
	if t.Kind == gotext.Name {
		for _, w := range gotext.Words(t.Text) {
			if slices.Contains(banned, w) {
				bad = append(bad, fmt.Sprintf("name with the word %q, use the field's", w))
			}
		}
		return bad
	}
	if p := c.phrases.FindString(t.Text); p != "" {
		bad = append(bad, fmt.Sprintf("say it in the field's words, not %q", p))
	}
	if p := headless.FindString(t.Text); p != "" {
		bad = append(bad, fmt.Sprintf("name the thing instead of %q", p))
	}
	if p := inverted.FindString(t.Text); p != "" && !strings.Contains(t.Text, "there "+p) {
		bad = append(bad, fmt.Sprintf("say \"is not a\" instead of %q", p))
	}
	for _, s := range sentence.Split(t.Text, -1) {
		if n := len(strings.Fields(s)); n > maxWords {
			bad = append(bad, fmt.Sprintf("split this sentence of %d words", n))
		}
	}
	if strings.HasSuffix(t.Text, ".") && !strings.HasSuffix(t.Text, "...") && !strings.HasSuffix(t.Text, " .") {
		bad = append(bad, "remove the full stop")
	}
	if t.Kind == gotext.Short {
		if n := len([]rune(t.Text)); n > maxShort {
			bad = append(bad, fmt.Sprintf("%d characters, use at most %d", n, maxShort))
		}
		if r := []rune(t.Text); len(r) == 0 || !unicode.IsUpper(r[0]) {
			bad = append(bad, "begin with a verb, in capitals")
		}
	}
	return bad
}
