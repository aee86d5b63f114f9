package suggest

import (
	"strings"
	"testing"
)

func TestHint(t *testing.T) {
	known := []string{"irn", "melo", "mp-rdma", "eunomia", "bdp_packets", "rc"}
	for _, c := range []struct{ name, want string }{
		{"irm", "irn"}, {"eunomai", "eunomia"}, {"mprdma", "mp-rdma"}, {"bpd_packets", "bdp_packets"}, {"rdp", ""}, {"nosuch", ""},
		{"x", ""}, {"", ""}, {strings.Repeat("irn", 40), ""},
	} {
		want := ""
		if c.want != "" {
			want = `; did you mean "` + c.want + `"?`
		}
		if got := Hint(c.name, known); got != want {
			t.Errorf("%q: %q, want %q", c.name, got, want)
		}
	}
}

func TestOneOf(t *testing.T) {
	if got, want := OneOf("irm", []string{"irn", "melo"}).Error(), `"irm": must be one of irn, melo; did you mean "irn"?`; got != want {
		t.Errorf("%s, not %s", got, want)
	}
}
