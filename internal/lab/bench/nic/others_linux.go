package nic

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"roced.io/roced/internal/lab/netlab"
)

// iperf3 measures TCP over the veth in Gb/s.
func iperf3(ctx context.Context, lab *netlab.Lab, seconds int) (float64, error) {
	host := netlab.HostAddr(1)
	out, err := lab.Pair(ctx, []string{"iperf3", "-s", "-1"},
		[]string{"iperf3", "-c", host, "-t", strconv.Itoa(seconds), "-J"}, listening(lab, host, "5201"))
	if err != nil {
		return 0, err
	}
	var r struct {
		End struct {
			Received struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return 0, fmt.Errorf("iperf3: %w", err)
	}
	return r.End.Received.BitsPerSecond / 1e9, nil
}

// listening waits until a TCP port of host 1 is open. It does not connect, because these servers serve one client.
func listening(lab *netlab.Lab, host, port string) func(context.Context) error {
	n, _ := strconv.Atoi(port)
	want := fmt.Sprintf(":%04X ", n)
	return func(ctx context.Context) error {
		for range 500 {
			out, err := lab.Output(ctx, 1, []string{"cat", "/proc/net/tcp", "/proc/net/tcp6"})
			if err != nil {
				return err
			}
			for line := range strings.Lines(out) {
				if f := strings.Fields(line); len(f) > 3 && f[3] == "0A" && strings.Contains(f[1]+" ", want) {
					return nil
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		return fmt.Errorf("no program listens on %s after 5 s", net.JoinHostPort(host, port))
	}
}

// ucx is a result of ucx_perftest.
type ucx struct {
	latency float64 // us, half a round trip for latency tests
	mbps    float64 // MB/s of 2^20 bytes
	rate    float64 // messages/s
}

func (u ucx) gbps() float64     { return u.mbps * 8 * (1 << 20) / 1e9 }
func (u ucx) millions() float64 { return u.rate / 1e6 }
func (u ucx) mean() float64     { return u.latency }

// ucxPerftest runs one test of ucx_perftest over TCP.
func ucxPerftest(ctx context.Context, lab *netlab.Lab, test string, size, count int) (ucx, error) {
	host := netlab.HostAddr(1)
	// UCX looks up its devices in /sys. It shows the devices of the namespace that mounted it.
	common := []string{"unshare", "-m", "sh", "-c", `mount -t sysfs sysfs /sys && exec "$@"`, "sh", "env", "UCX_TLS=tcp", "UCX_NET_DEVICES=" + netlab.Bridge, "UCX_LOG_LEVEL=error",
		"ucx_perftest", "-t", test, "-s", strconv.Itoa(size), "-n", strconv.Itoa(count), "-w", "1000", "-f"}
	client := append(append([]string{}, common...), host)
	out, err := lab.Pair(ctx, common, client, listening(lab, host, "13337"))
	if err != nil {
		return ucx{}, err
	}
	return parseUCX(out)
}

// parseUCX reads the final line: count, three latencies (50 %, average, overall), two bandwidths and two rates.
func parseUCX(out string) (ucx, error) {
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) >= 9 && f[0] == "Final:" {
			f = f[1:]
		}
		if len(f) < 8 {
			continue
		}
		var v [8]float64
		ok := true
		for i := range v {
			x, err := strconv.ParseFloat(f[i], 64)
			v[i], ok = x, ok && err == nil
		}
		if ok {
			return ucx{latency: v[1], mbps: v[5], rate: v[7]}, nil
		}
	}
	return ucx{}, fmt.Errorf("ucx_perftest printed no result:\n%s", out)
}
