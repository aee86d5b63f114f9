package daemon

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"roced/internal/version"
	"roced/mono"
	"roced/rocev2"
)

// Metrics of a NIC.
var (
	descCounter = prometheus.NewDesc("roced_hw_counter", "Counter of the NIC, under the name that Linux gives it.",
		[]string{"nic", "counter"}, nil)
	descShard = prometheus.NewDesc("roced_shard_total", "What the loop of the NIC has done.",
		[]string{"nic", "what"}, nil)
	descPort = prometheus.NewDesc("roced_port_total", "What went wrong on the link.",
		[]string{"nic", "what"}, nil)
	descObjects = prometheus.NewDesc("roced_objects", "Verbs objects that exist.", []string{"nic", "type"}, nil)
	descClients = prometheus.NewDesc("roced_clients", "Verbs contexts that are open.", []string{"nic"}, nil)
	descBuild   = prometheus.NewDesc("roced_build_info", "Always 1; the labels say which source the daemon is made of.",
		[]string{"version", "revision", "modified", "goversion"}, nil)
	descUp = prometheus.NewDesc("roced_link_up", "Whether the link is up.", []string{"nic"}, nil)
)

// collector reads the NICs when it is asked.
type collector struct{ d *Daemon }

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descCounter, descShard, descPort, descObjects, descClients, descUp, descBuild} {
		ch <- d
	}
}

// collectTimeout bounds how long a NIC may take to answer.
const collectTimeout = 5 * time.Second

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	v := version.Own()
	ch <- prometheus.MustNewConstMetric(descBuild, prometheus.GaugeValue, 1, v.Version, v.Revision, strconv.FormatBool(v.Modified), v.Go)
	for _, n := range c.d.nics {
		n.collect(ctx, ch)
	}
}

func (n *nic) collect(ctx context.Context, ch chan<- prometheus.Metric) {
	s, err := n.stat(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(descCounter, err)
		return
	}
	count := func(d *prometheus.Desc, v uint64, what string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), s.NIC, what)
	}
	for name, v := range s.Counters {
		count(descCounter, v, name)
	}
	sh := &s.Shard
	for what, v := range map[string]uint64{
		"rounds": sh.Rounds, "sleeps": sh.Sleeps, "yields": sh.Yields, "calls": sh.Calls, "doorbells": sh.Doorbells,
		"rx_frames": sh.RxFrames, "rx_batches": sh.RxBatches, "tx_frames": sh.TxFrames, "tx_batches": sh.TxBatches,
		"tx_blocked": sh.TxBlocked, "tx_dropped": sh.TxDropped, "port_errors": sh.PortErrs, "memory_faults": sh.MemFaults,
	} {
		count(descShard, v, what)
	}
	p := &s.Port
	for what, v := range map[string]uint64{
		"send_dropped": p.SendDropped, "recv_dropped": p.RecvDropped, "again": p.Again, "overruns": p.Overruns, "lost": p.Lost, "reopened": p.Reopened,
	} {
		count(descPort, v, what)
	}
	n.collectState(ctx, ch)
}

// collectState reports what can go up and down.
func (n *nic) collectState(ctx context.Context, ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{n.cfg.Name}, labels...)...)
	}
	objects := map[string]int{}
	up := 0.0
	err := n.shard.Do(ctx, func(_ mono.Time, core *rocev2.NIC) {
		for kind, list := range listers {
			objects[kind] = len(list(n.cfg.Name, core))
		}
		if core.PortAttr().State == rocev2.PortActive {
			up = 1
		}
	})
	if err != nil {
		return
	}
	for kind, v := range objects {
		gauge(descObjects, float64(v), kind)
	}
	gauge(descUp, up)
	gauge(descClients, float64(n.clients()))
}

// metricsHandler serves the metrics of this daemon.
func (d *Daemon) metricsHandler() http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collector{d}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
}
