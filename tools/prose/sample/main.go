// Command sample prints random comments, sentences of documents, errors and help texts, for reviews of their English.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"roced.io/roced/tools/prose/internal/gotext"
)

var (
	comment  = regexp.MustCompile(`(?m)(?:^[ \t]*//[^\n]*\n)+|/\*(?s:.*?)\*/|[ \t]//[^\n]*$`)
	marks    = regexp.MustCompile(`(?m)^\s*(//+|\*|/\*+)\s?|\*/`)
	block    = regexp.MustCompile(`(?ms)^(` + "```.*?^```" + `|#.*?$|\|.*?$|    .*?$)`)
	sentence = regexp.MustCompile(`[^.!?]+(?:[.!?][^\s.!?]+)*[.!?](?:\s|$)`)
	number   = 40
)

func main() {
	seed := flag.Uint64("seed", 1, "seed of the choice")
	root := flag.String("root", ".", "root of the repository")
	flag.Parse()
	out, err := exec.Command("git", "-C", *root, "ls-files", "*.go", "*.c", "*.h", "*.md").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sample: git ls-files:", err)
		os.Exit(1)
	}
	var comments, sentences, errors, help []string
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		text, err := os.ReadFile(filepath.Join(*root, name))
		switch {
		case err != nil || strings.Contains(name, "/testdata/") || strings.HasPrefix(name, "docs/results/"):
		case strings.HasSuffix(name, ".md"):
			for _, s := range sentence.FindAllString(block.ReplaceAllString(string(text), ""), -1) {
				sentences = add(sentences, name, s)
			}
		default:
			for _, c := range comment.FindAllString(string(text), -1) {
				comments = add(comments, name, marks.ReplaceAllString(c, ""))
			}
			if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
				errors, help = messages(name, text, errors, help)
			}
		}
	}
	r := rand.New(rand.NewPCG(*seed, 0))
	for _, list := range [][]string{comments, sentences, errors, help} {
		for _, i := range r.Perm(len(list))[:min(number, len(list))] {
			fmt.Println(list[i])
		}
		fmt.Println()
	}
}

// messages appends the errors and help texts of a Go file.
func messages(name string, src []byte, errors, help []string) ([]string, []string) {
	texts, err := gotext.File(name, src)
	if err != nil {
		fmt.Fprintln(os.Stderr, "sample:", err)
		os.Exit(1)
	}
	for _, t := range texts {
		switch {
		case t.Kind == gotext.Error && strings.Contains(t.Text, " "):
			errors = append(errors, fmt.Sprintf("%s:%d: %s", name, t.Pos.Line, t.Text))
		case t.Kind == gotext.Usage || t.Kind == gotext.Short:
			help = append(help, fmt.Sprintf("%s:%d: %s", name, t.Pos.Line, t.Text))
		}
	}
	return errors, help
}

// add appends text with the file that has it, unless it is too short to be prose.
func add(list []string, name, text string) []string {
	if text = strings.Join(strings.Fields(text), " "); strings.Count(text, " ") < 3 || strings.HasPrefix(text, "go:") {
		return list
	}
	return append(list, name+": "+text)
}
