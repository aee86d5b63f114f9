package e2e

import "testing"

func TestTmpCC(t *testing.T) {
	for _, y := range []string{"algorithm: none", "algorithm: dctcp", "algorithm: swift"} {
		o := onTAP
		o.Extra = "    congestion: {" + y + "}\n"
		l := newLab(t, o)
		for range 4 {
			b, b1 := l.counters(0), l.counters(1)
			r := l.perf("write-bw", "-s", "64k", "-D", "1s")
			t.Logf("%s %v %v", y, r.Gbps, r.Seconds)
			for i, b := range []counts{b, b1} {
				a := l.counters(i)
				for k, v := range a {
					if v != b[k] && (k[0] != 'p' || k[1] != 'o') && (k[0] != 'u' || k[1] != 'n') {
						t.Logf("   %d %s %d", i, k, v-b[k])
					}
				}
			}
		}
	}
}
