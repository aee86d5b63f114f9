package record

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// fold replaces repeated statements whose numbers grow evenly by loops.
func fold(lines []string) (out []string) {
	parsed := make([]statement, len(lines))
	for i, line := range lines {
		parsed[i] = parse(line)
	}
	for i := 0; i < len(lines); {
		size, times := longest(parsed[i:])
		if times == 0 {
			out = append(out, lines[i])
			i++
			continue
		}
		out = append(out, fmt.Sprintf("for i in 0..%d {", times-1))
		for j := range size {
			out = append(out, parsed[i+j].with(parsed[i+size+j]))
		}
		out = append(out, "}")
		i += size * times
	}
	return out
}

// longest returns the size of the block at the start of list, and how often it comes, that saves most lines; 0, 0 if none does.
func longest(list []statement) (size, times int) {
	const largest = 40
	saved := 0
	for n := 1; n <= min(largest, len(list)/2); n++ {
		k := 1
		for (k+1)*n <= len(list) && follows(list, n, k) {
			k++
		}
		if s := (k-1)*n - 2; k > 2 && s > saved {
			size, times, saved = n, k, s
		}
	}
	return size, times
}

// follows reports whether block k of n statements goes on as blocks 0 and 1 do.
func follows(list []statement, n, k int) bool {
	for j := range n {
		a, b, c := &list[j], &list[n+j], &list[k*n+j]
		if a.shape != b.shape || a.shape != c.shape || a.shape == "" {
			return false
		}
		for i := range a.numbers {
			if d := b.numbers[i] - a.numbers[i]; d < 0 || c.numbers[i]-a.numbers[i] != int64(k)*d {
				return false
			}
		}
	}
	return true
}

// statement is a statement with its numbers taken out. Comments, assignments and optional packets have no shape and are not repeated: the
// engine evaluates an optional packet when another one comes, perhaps in a later loop.
type statement struct {
	shape   string
	parts   []string // around the numbers
	texts   []string // of the numbers
	numbers []int64
}

// A base of PSNs stands for itself plus 0. Digits in names are no numbers.
var (
	bases  = regexp.MustCompile(`=([PQ])([ .]|$)`)
	ranges = regexp.MustCompile(`\.\.([PQ])([ ]|$)`)
	number = regexp.MustCompile(`\b(0x[0-9a-f]+|[0-9]+)\b`)
)

func parse(line string) (s statement) {
	if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ">?") || strings.Contains(line, " = ") {
		return s
	}
	line = ranges.ReplaceAllString(bases.ReplaceAllString(line, "=$1+0$2"), "..$1+0$2")
	at := 0
	for _, m := range number.FindAllStringIndex(line, -1) {
		n, err := strconv.ParseInt(line[m[0]:m[1]], 0, 64)
		if err != nil {
			return statement{}
		}
		s.parts, s.texts, s.numbers = append(s.parts, line[at:m[0]]), append(s.texts, line[m[0]:m[1]]), append(s.numbers, n)
		at = m[1]
	}
	s.parts = append(s.parts, line[at:])
	s.shape = strings.Join(s.parts, "\x00")
	return s
}

// with returns the statement with numbers that depend on the loop's variable. next is the statement of the second round.
func (s *statement) with(next statement) string {
	var b strings.Builder
	for i, text := range s.texts {
		part := s.parts[i]
		switch d := next.numbers[i] - s.numbers[i]; {
		case d == 0 && text == "0" && strings.HasSuffix(part, "+"):
			part, text = strings.TrimSuffix(part, "+"), ""
		case d == 0:
		case s.numbers[i] == 0:
			text = "i" + times(d)
		default:
			text += "+i" + times(d)
		}
		b.WriteString(part + text)
	}
	return b.String() + s.parts[len(s.parts)-1]
}

// times returns a factor.
func times(d int64) string {
	if d == 1 {
		return ""
	}
	return fmt.Sprintf("*%d", d)
}
