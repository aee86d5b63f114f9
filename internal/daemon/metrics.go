package daemon

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"roced.io/roced/internal/base/version"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// collector reads the NICs at each scrape. It describes no metrics in advance, because each NIC decides which
// counters it has.
type collector struct{ d *Daemon }

// Describe implements prometheus.Collector.
func (collector) Describe(chan<- *prometheus.Desc) {}

// collectTimeout limits the time to read one NIC.
const collectTimeout = 5 * time.Second

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	v := version.Own()
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("roced_build_info",
		"Always 1; the labels say which source the daemon is made of.", []string{"version", "revision", "modified", "goversion"}, nil),
		prometheus.GaugeValue, 1, v.Version, v.Revision, strconv.FormatBool(v.Modified), v.Go)
	for _, n := range c.d.nics() {
		if err := n.collect(ctx, ch); err != nil {
			ch <- prometheus.NewInvalidMetric(prometheus.NewDesc("roced_link_up", "Whether the link is up.", nil, nil), err)
		}
	}
}

// portNumber is the port label of every NIC, as in node_exporter.
const portNumber = "1"

// exporter exports the metrics of one NIC.
type exporter struct {
	ch  chan<- prometheus.Metric
	nic string
}

// desc describes a metric. A metric with a name of node_exporter gets the labels of node_exporter.
func (e *exporter) desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, prometheus.Labels{"device": e.nic, "port": portNumber})
}

func (e *exporter) count(name, help string, v float64) {
	e.ch <- prometheus.MustNewConstMetric(e.desc(name, help), prometheus.CounterValue, v)
}

func (e *exporter) gauge(name, help string, v float64) {
	e.ch <- prometheus.MustNewConstMetric(e.desc(name, help), prometheus.GaugeValue, v)
}

// gauges exports one metric with one value for each label value.
func (e *exporter) gauges(name, help, label string, values map[string]int) {
	for value, n := range values {
		e.ch <- prometheus.MustNewConstMetric(e.desc(name, help, label), prometheus.GaugeValue, float64(n), value)
	}
}

// histogram exports h. unit is the number of h's units in one exported unit.
func (e *exporter) histogram(name, help string, unit float64, h *qp.Histogram, labels, values []string) {
	total, buckets := uint64(0), make(map[float64]uint64, len(h.Bounds.Upper))
	for i, bound := range h.Bounds.Upper {
		total += h.Counts[i]
		buckets[float64(bound)/unit] = total
	}
	total += h.Counts[len(h.Bounds.Upper)]
	e.ch <- prometheus.MustNewConstHistogram(e.desc(name, help, labels...), total, float64(h.Sum)/unit, buckets, values...)
}

func (n *nic) collect(ctx context.Context, ch chan<- prometheus.Metric) error {
	s, err := n.stat(ctx)
	if err != nil {
		return err
	}
	e := &exporter{ch, n.cfg.Name}
	e.counters(s.Counters)
	e.loop(&s)
	now, err := n.census(ctx)
	if err != nil {
		return err
	}
	e.gauge("roced_clients", "Verbs contexts that are open.", float64(n.clients()))
	e.census(&now)
	if now.spread != nil {
		e.distributions(now.spread)
	}
	return nil
}

func (e *exporter) counters(counters map[string]uint64) {
	for name, v := range counters {
		m := metricOf(name)
		if m.label == "" {
			e.count(m.name, m.help, float64(v)*m.unit)
			continue
		}
		d := e.desc(m.name, m.help, m.label)
		e.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), m.value)
	}
}

// loop exports the statistics of the NIC's loop and the errors of the link.
func (e *exporter) loop(s *api.Stat) {
	sh, p := &s.Shard, &s.Port
	for _, m := range []struct {
		name, help string
		v          uint64
	}{
		{"loop_rounds", "Turns of the NIC's loop.", sh.Rounds},
		{"loop_sleeps", "Turns that ended in a sleep.", sh.Sleeps},
		{"loop_yields", "Turns that found nothing and gave the core away.", sh.Yields},
		{"loop_calls", "Commands carried out.", sh.Calls},
		{"loop_doorbells", "Queue pairs named by doorbells.", sh.Doorbells},
		{"loop_rx_frames", "Frames and super-frames received.", sh.RxFrames},
		{"loop_rx_batches", "Turns that received any.", sh.RxBatches},
		{"loop_tx_frames", "Frames and super-frames sent.", sh.TxFrames},
		{"loop_tx_batches", "Turns that sent any.", sh.TxBatches},
		{"loop_tx_blocked", "Times that the link had no room.", sh.TxBlocked},
		{"loop_tx_dropped", "Frames given to a link that was down.", sh.TxDropped},
		{"loop_port_errors", "Unexpected errors of the link.", sh.PortErrs},
		{"loop_memory_faults", "Accesses to memory of programs that was gone.", sh.MemFaults},
		{linkSendDropped, "Frames that the link refused.", p.SendDropped},
		{"link_recv_dropped", "Frames that came and could not be taken.", p.RecvDropped},
		{"link_again", "Times that the link was busy.", p.Again},
		{"link_overruns", "Frames lost because the NIC was too slow for the link.", p.Overruns},
		{"link_lost", "Times that the link's device was lost.", p.Lost},
		{"link_reopened", "Times that it was opened again.", p.Reopened},
	} {
		e.count("roced_"+m.name+"_total", m.help, float64(m.v))
	}
}

// census holds the object counts of a NIC at one moment.
type census struct {
	active  bool
	objects map[string]int
	states  map[string]int // number of queue pairs in each state
	rules   int
	spread  *qp.Distributions // nil: not recorded
}

// pageOfQPs is the number of queue pairs that one turn of the loop visits. It keeps the turn far below a millisecond,
// so a list of 65,536 queue pairs delays no packet noticeably.
const pageOfQPs = 256

// eachQP visits all queue pairs of a NIC, one page in each turn of its loop.
func (n *nic) eachQP(ctx context.Context, visit func(*rocev2.QueuePair)) error {
	for from := uint32(0); ; {
		err := n.shard.Look(ctx, func(_ mono.Time, core *rocev2.NIC) { from = core.QPPage(from, pageOfQPs, visit) })
		if err != nil || from == 0 {
			return err
		}
	}
}

func (n *nic) census(ctx context.Context) (census, error) {
	c := census{states: map[string]int{}}
	err := n.shard.Look(ctx, func(_ mono.Time, core *rocev2.NIC) {
		have := core.Census()
		c.objects = map[string]int{"qp": have.QPs, "cq": have.CQs, "srq": have.SRQs, "mr": have.MRs, "pd": have.PDs, "ah": have.AHs}
		c.rules, c.spread, c.active = len(n.rules), core.Distributions(), core.PortAttr().State == rocev2.PortActive
	})
	if err != nil {
		return c, err
	}
	for _, name := range stateNames {
		c.states[name] = 0
	}
	return c, n.eachQP(ctx, func(q *rocev2.QueuePair) { c.states[stateNames[q.State()]]++ })
}

// Port attributes as numbers, equal to those in the sysfs tree (internal/daemon/sysfs): IBTA vol.1 14.2.5.6.
const (
	stateDown, stateActive = 1, 4
	physPolling, physUp    = 2, 5
	rate                   = 100e9 / 8 // bytes per second
	board                  = "roced"
)

func (e *exporter) census(c *census) {
	state, phys, up := stateDown, physPolling, 0.0
	if c.active {
		state, phys, up = stateActive, physUp, 1
	}
	e.gauge("roced_link_up", "Whether the link is up.", up)
	e.gauge("node_infiniband_state_id", "State of the port (1: down, 4: active).", float64(state))
	e.gauge("node_infiniband_physical_state_id", "Physical state of the port (2: polling, 5: link up).", float64(phys))
	e.gauge("node_infiniband_rate_bytes_per_second", "Rate that programs are told; the link's own may be another.", rate)
	e.gauge("roced_fault_rules", "Fault rules in force.", float64(c.rules))
	e.gauges("roced_objects", "Verbs objects that exist.", "type", c.objects)
	e.gauges("roced_queue_pairs", "Queue pairs by state.", "state", c.states)
	e.ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("node_infiniband_info", "Always 1; the labels say what the device is.",
		[]string{"device", "board_id", "firmware_version", "hca_type"}, nil), prometheus.GaugeValue, 1, e.nic, board, firmware, board)
}

func (e *exporter) distributions(d *qp.Distributions) {
	const ns = 1e9 // nanoseconds in a second
	for op := range d.Latency {
		e.histogram("roced_message_latency_seconds", "From the first packet of an RC message to its completion.", ns, &d.Latency[op],
			[]string{"operation"}, []string{qp.Operation(op).String()})
	}
	e.histogram("roced_rtt_seconds", "Round-trip times, as senders measure them.", ns, &d.RTT, nil, nil)
	e.histogram("roced_out_of_order_packets", "By how many packets those that have come are ahead of the one that is expected.", 1, &d.Degree, nil, nil)
}

// gatherEvery is the maximum age of the metrics that a scraper gets. Each NIC is read at most once in that time,
// however many scrapers there are.
const gatherEvery = time.Second

// gatherer gathers metrics at most once every gatherEvery, for all scrapers.
type gatherer struct {
	from     prometheus.Gatherer
	mu       sync.Mutex // held while one scraper gathers; the others wait for its result
	at       time.Time
	families []*dto.MetricFamily
	err      error
}

// Gather implements prometheus.Gatherer.
func (s *gatherer) Gather() ([]*dto.MetricFamily, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || time.Since(s.at) >= gatherEvery {
		s.families, s.err = s.from.Gather()
		s.at = time.Now()
	}
	return s.families, s.err
}

// newMetrics returns the handler of /metrics.
func (d *Daemon) newMetrics() http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collector{d}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(&gatherer{from: reg}, promhttp.HandlerOpts{})
}
