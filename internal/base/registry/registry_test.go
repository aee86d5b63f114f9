package registry_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/base/registry"
	"roced.io/roced/plugin/param"
)

// plugin has a pool that plug-ins of one NIC share.
type plugin struct {
	pool *int
	size int
}

func kind() *registry.Kind[plugin] {
	return registry.New[plugin]("things", "thing").
		Add("plain", "a paper", func(r *param.Reader) plugin { return plugin{size: r.Int("size", 3, 1, 9)} }).
		AddShared("pooled", "", func(r *param.Reader) func(*param.Reader) plugin {
			n := r.Int("pool", 8, 1, 64)
			if n == 13 {
				r.Fail(errors.New("no pool of 13"))
			}
			return func(r *param.Reader) plugin { return plugin{&n, r.Int("size", 4, 1, 9)} }
		})
}

func TestMaker(t *testing.T) {
	k := kind()
	if got := k.Names(); !slices.Equal(got, []string{"plain", "pooled"}) {
		t.Errorf("names %v", got)
	}
	var names []string
	for _, p := range k.Parameters("pooled") {
		names = append(names, p.Name)
	}
	if !slices.Equal(names, []string{"pool", "size"}) || k.Parameters("other") != nil {
		t.Errorf("parameters %v", names)
	}
	given := map[string]float64{"pool": 16, "size": 5}
	m := k.Maker()
	make := func(m *registry.Maker[plugin], params map[string]float64) plugin {
		p, err := m.New("pooled", params)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	a, b, other := make(m, given), make(m, map[string]float64{"pool": 16}), make(m, nil)
	if a.pool != b.pool || a.pool == other.pool || *a.pool != 16 || *other.pool != 8 || a.size != 5 || b.size != 4 {
		t.Errorf("plug-ins %+v %+v %+v", a, b, other)
	}
	if far := make(k.Maker(), given); far.pool == a.pool {
		t.Error("two NICs share memory")
	}
	if len(given) != 2 {
		t.Errorf("the given parameters are now %v", given)
	}
}

func TestErrors(t *testing.T) {
	for want, c := range map[string]struct {
		name   string
		params map[string]float64
	}{
		`things: no thing "other", there are [plain pooled]`:    {"other", nil},
		"things: plain: size is 10, it must be between 1 and 9": {"plain", map[string]float64{"size": 10}},
		`things: plain has no parameter "pool"`:                 {"plain", map[string]float64{"pool": 1}},
		"things: pooled: pool is 65":                            {"pooled", map[string]float64{"pool": 65}},
		"no pool of 13":                                         {"pooled", map[string]float64{"pool": 13}},
	} {
		if _, err := kind().New(c.name, c.params); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v: %v, want %q", c, err, want)
		}
	}
	for _, name := range []string{"plain", ""} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("the name %q is free", name)
				}
			}()
			kind().Add(name, "", func(*param.Reader) plugin { return plugin{} })
		}()
	}
}
