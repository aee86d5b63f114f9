package e2e
import "testing"
func TestZZ(t *testing.T){ l := newLab(t, onFrames)
 stop := l.bottleneck("rate=100mbit", "burst=128k", "kmin=3m", "kmax=4m", "limit=5m")
 r := l.perf("write-bw", "-s", "64k", "-n", "400", "-t", "16")
 t.Logf("%v %v %+v", r.Gbps, r.Seconds, stop()) }
