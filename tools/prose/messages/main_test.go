package main

import (
	"strings"
	"testing"

	"roced.io/roced/tools/prose/internal/gotext"
)

const source = `package p

// heard is only a comment.
func Fine(b []byte) error { return fmt.Errorf("mtu %d: exceeds the %d of %s", 1, 2, "eth0") }

var c = cobra.Command{Short: %s}
`

// TestRules checks one violation of each rule, where users or maintainers read it.
func TestRules(t *testing.T) {
	c, err := newChecker("../../lint/styles/roced")
	if err != nil {
		t.Fatal(err)
	}
	for statement, want := range map[string]string{
		`var whoHeard = 1`:                                                    "heard",
		`func (s *shard) obey() {}`:                                           "obey",
		`type Station struct{}`:                                               "station",
		`type x struct{ patience int }`:                                       "patience",
		`func f(stranger int) {}`:                                             "stranger",
		`func f() { crowdedFor := 50; _ = crowdedFor }`:                       "crowded",
		`var e = errors.New("flor: what the peer says is wrong")`:             "what",
		`var e = fmt.Errorf("%s belongs to nobody", name)`:                    "nobody",
		`var e = fmt.Errorf("%q is no number", name)`:                         "is no",
		`var e = errors.New("a packet is sent again")`:                        "sent again",
		`var e = errors.New("the file is missing.")`:                          "full stop",
		`var e = errors.New("` + strings.Repeat("word ", 26) + `")`:           "26 words",
		`func f() { in.fail(pos, "a field that " + name + " tells of") }`:     "tells of",
		`func f() { d.At("a.b", "%q says what is allowed", name) }`:           "what",
		`func f() { f.StringVar(&o.x, "x", "", "who may use it") }`:           "who",
		`func f() { f.DurationVarP(&o.x, "x", "d", 0, "time for somebody") }`: "somebody",
		`var d = cobra.Command{Short: "print what exec sets"}`:                "what",
		`var d = cobra.Command{Short: "run the daemon"}`:                      "capitals",
		`var d = cobra.Command{Short: "` + strings.Repeat("Word", 16) + `"}`:  "64 characters",
	} {
		src := strings.Replace(source, "%s}", `"Run the daemon"}`, 1)
		if found := violations(t, c, src); found != "" {
			t.Fatalf("the frame is not clean: %s", found)
		}
		if found := violations(t, c, src+statement+"\n"); !strings.Contains(found, want) {
			t.Errorf("%s: found %q, want %q", statement, found, want)
		}
	}
}

// TestNoViolation checks texts that resemble violations.
func TestNoViolation(t *testing.T) {
	c, err := newChecker("../../lint/styles/roced")
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		`var e = errors.New("there is no capture with this id")`,
		`var e = errors.New("select a claim whose root is the folder")`,
		`var threshold, workstationName = 1, "station"`,
		`var p = about.Page{Short: "rules for faults"}`,
		`func f() { show("what is this") }`,
	} {
		if found := violations(t, c, "package p\n"+statement+"\n"); found != "" {
			t.Errorf("%s: found %q", statement, found)
		}
	}
}

func violations(t *testing.T, c *checker, src string) string {
	t.Helper()
	texts, err := gotext.File("x.go", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, x := range texts {
		found = append(found, c.check(&x)...)
	}
	return strings.Join(found, "; ")
}
