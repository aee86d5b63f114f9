package stack

import (
	"net/netip"
	"testing"

	"roced.io/roced/bth/inet"
)

// TestPairedGIDs checks mlx5's order: the first two entries are of a link-local address, empty without one, and index 3 is
// the first other address. Entries stay when addresses go and come.
func TestPairedGIDs(t *testing.T) {
	addr := func(list ...string) (out []netip.Prefix) {
		for _, a := range list {
			out = append(out, netip.MustParsePrefix(a))
		}
		return out
	}
	own := Config{MAC: inet.MAC{2, 0, 0, 0, 0, 1}, PairedGIDs: true, Addrs: addr("10.0.0.1/24", "fd00::1/64")}
	shared := Config{PairedGIDs: true, Shared: true, Addrs: addr("10.0.0.1/24")}
	more := shared
	more.Addrs = addr("fe80::7/64", "10.0.0.2/24", "10.0.0.1/24")
	for _, c := range []struct {
		name  string
		steps []Config
		want  []string
	}{
		{"own", []Config{own}, []string{"fe80::ff:fe00:1", "10.0.0.1", "fd00::1"}},
		{"no link-local", []Config{shared}, []string{"", "10.0.0.1"}},
		{"link-local comes later", []Config{shared, more}, []string{"fe80::7", "10.0.0.1", "10.0.0.2"}},
		{"all but one go", []Config{more, shared}, []string{"", "", "10.0.0.1"}},
	} {
		var table addrTable
		var err error
		for _, cfg := range c.steps {
			if table, err = table.from(&cfg); err != nil {
				t.Fatal(err)
			}
		}
		got := map[uint8]string{}
		for e := range table.live {
			got[e.Index] = e.GID.Addr().String()
		}
		for i, want := range c.want {
			for k := range 2 {
				if a := got[uint8(2*i+k)]; a != want {
					t.Errorf("%s: entry %d is %q, want %q (%v)", c.name, 2*i+k, a, want, got)
				}
			}
		}
		if len(table.gids) != 2*len(c.want) {
			t.Errorf("%s: %d entries", c.name, len(table.gids))
		}
	}
}

// TestFullGIDTable: a table holds GIDTableLen entries, in pairs half as many addresses.
func TestFullGIDTable(t *testing.T) {
	for _, pairs := range []bool{false, true} {
		cfg := Config{PairedGIDs: pairs, Shared: true}
		n := 0
		for ; n <= GIDTableLen; n++ {
			cfg.Addrs = append(cfg.Addrs, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 8))
			if n == 0 {
				cfg.Addrs[0] = netip.MustParsePrefix("10.9.9.9/8")
			}
			if _, err := (addrTable{}).from(&cfg); err != nil {
				break
			}
		}
		want := GIDTableLen
		if pairs {
			want = GIDTableLen/2 - 1
		}
		if n != want {
			t.Errorf("pairs %v: room for %d addresses, want %d", pairs, n, want)
		}
	}
}
