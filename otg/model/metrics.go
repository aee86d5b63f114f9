package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/open-traffic-generator/snappi/gosnappi/otg"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"roced.io/roced/otg/engine"
	"roced.io/roced/port/link"
)

// Check checks a request against the table and sets defaults. The error is of type Errors.
func Check(m proto.Message) error {
	f := &findings{}
	f.check(m, "")
	return f.result()
}

// Metrics answers a request that Check has accepted.
func Metrics(r *otg.MetricsRequest, config *engine.Config, e engine.Engine) (*otg.MetricsResponse, error) {
	f := &findings{}
	out := &otg.MetricsResponse{}
	switch r.GetChoice() {
	case otg.MetricsRequest_Choice_flow:
		out.Choice = otg.MetricsResponse_Choice_flow_metrics.Enum()
		out.FlowMetrics = selected(f, "flow.flow_names", e.RawFlowMetrics(), r.GetFlow().GetFlowNames(), rawFlowMetric)
		restrict(f, "flow.metric_names", out.FlowMetrics, names(r.GetFlow().GetMetricNames()), "name", "port_tx", "port_rx")
	case otg.MetricsRequest_Choice_rocev2_ipv4:
		out.Choice = otg.MetricsResponse_Choice_rocev2_ipv4_per_peer_metrics.Enum()
		out.Rocev2Ipv4PerPeerMetrics = selected(f, "rocev2_ipv4.per_peer.peer_names", family(e.PeerMetrics(), config, netip.Addr.Is4),
			r.GetRocev2Ipv4().GetPerPeer().GetPeerNames(), peerMetric(&otg.Rocev2IPv4MetricPerPeer{}))
		restrict(f, "rocev2_ipv4.per_peer.column_names", out.Rocev2Ipv4PerPeerMetrics, names(r.GetRocev2Ipv4().GetPerPeer().GetColumnNames()), "name")
	case otg.MetricsRequest_Choice_rocev2_ipv6:
		out.Choice = otg.MetricsResponse_Choice_rocev2_ipv6_per_peer_metrics.Enum()
		out.Rocev2Ipv6PerPeerMetrics = selected(f, "rocev2_ipv6.per_peer.peer_names", family(e.PeerMetrics(), config, netip.Addr.Is6),
			r.GetRocev2Ipv6().GetPerPeer().GetPeerNames(), peerMetric(&otg.Rocev2IPv6MetricPerPeer{}))
		restrict(f, "rocev2_ipv6.per_peer.column_names", out.Rocev2Ipv6PerPeerMetrics, names(r.GetRocev2Ipv6().GetPerPeer().GetColumnNames()), "name")
	case otg.MetricsRequest_Choice_rocev2_flow:
		out.Choice = otg.MetricsResponse_Choice_rocev2_flow_per_qp_metrics.Enum()
		list := e.FlowMetrics()
		columns := names(r.GetRocev2Flow().GetPerQp().GetColumnNames())
		f.latency(list, columns)
		out.Rocev2FlowPerQpMetrics = selected(f, "", list, nil, flowMetric(config))
		restrict(f, "rocev2_flow.per_qp.column_names", out.Rocev2FlowPerQpMetrics, columns, "flow_name")
	default:
		out.Choice = otg.MetricsResponse_Choice_port_metrics.Enum()
		out.PortMetrics = selected(f, "port.port_names", e.PortMetrics(), r.GetPort().GetPortNames(), portMetric)
		restrict(f, "port.column_names", out.PortMetrics, names(r.GetPort().GetColumnNames()), "name")
	}
	return out, f.result()
}

// latency refuses columns of latency for flows whose ports have no common clock.
func (f *findings) latency(list []engine.FlowMetric, columns []string) {
	for _, c := range columns {
		for _, m := range list {
			if strings.HasSuffix(c, "_latency") && !m.HasLatency {
				f.errorf("rocev2_flow.per_qp.column_names: %s: the ports of flow %q have no common clock; remove the column", c, m.Name)
			}
		}
	}
}

// names returns the names of values of an enumeration.
func names[E fmt.Stringer](list []E) (out []string) {
	for _, e := range list {
		out = append(out, e.String())
	}
	return out
}

// selected converts the metrics with the wanted names, all if there are none.
func selected[M any, R proto.Message](f *findings, at string, list []M, wanted []string, convert func(M) R) (out []R) {
	found := map[string]bool{}
	for _, m := range list {
		r := convert(m)
		name := r.ProtoReflect().Get(nameField(r.ProtoReflect())).String()
		found[name] = true
		if len(wanted) == 0 || slices.Contains(wanted, name) {
			out = append(out, r)
		}
	}
	for _, w := range wanted {
		if !found[w] {
			f.errorf("%s: %q: is not configured; configured are %s", at, w, listOf(found))
		}
	}
	return out
}

func nameField(m protoreflect.Message) protoreflect.FieldDescriptor {
	if fd := m.Descriptor().Fields().ByName("name"); fd != nil {
		return fd
	}
	return m.Descriptor().Fields().ByName("flow_name")
}

// restrict removes all columns but the wanted ones and those that each row has. It refuses columns that the rows cannot have.
func restrict[R proto.Message](f *findings, at string, list []R, columns []string, always ...string) {
	if len(columns) == 0 {
		return
	}
	var row R
	for _, c := range columns {
		if row.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(c)) == nil {
			f.errorf("%s: %s: the model has no such metric; remove the column", at, c)
		}
	}
	for _, row := range list {
		m := row.ProtoReflect()
		m.Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
			if name := string(fd.Name()); !slices.Contains(columns, name) && !slices.Contains(always, name) {
				m.Clear(fd)
			}
			return true
		})
	}
}

// family returns the metrics of peers of one family.
func family(list []engine.PeerMetric, config *engine.Config, is func(netip.Addr) bool) (out []engine.PeerMetric) {
	for _, m := range list {
		for _, p := range config.Peers {
			if p.Name == m.Name && is(p.Destination) {
				out = append(out, m)
			}
		}
	}
	return out
}

// set sets fields of a metric by name. Counters are unsigned, rates are float.
func set(m protoreflect.Message, values map[string]any) {
	for name, v := range values {
		fd := m.Descriptor().Fields().ByName(protoreflect.Name(name))
		switch v := v.(type) {
		case string:
			m.Set(fd, protoreflect.ValueOfString(v))
		case uint64:
			m.Set(fd, protoreflect.ValueOfUint64(v))
		case float64:
			m.Set(fd, protoreflect.ValueOfFloat32(float32(v)))
		case time.Time:
			if !v.IsZero() {
				m.Set(fd, protoreflect.ValueOfString(v.UTC().Format(time.RFC3339Nano)))
			}
		}
	}
}

func peerMetric[R proto.Message](kind R) func(engine.PeerMetric) R {
	return func(p engine.PeerMetric) R {
		m := kind.ProtoReflect().New()
		set(m, map[string]any{
			"name": p.Name, "qp_configured": uint64(p.Configured), "qp_up": uint64(p.Up), "qp_down": uint64(p.Down),
		})
		if !p.Messages {
			return m.Interface().(R)
		}
		set(m, map[string]any{
			"connect_request_tx": p.RequestTx, "connect_request_rx": p.RequestRx, "connect_reply_tx": p.ReplyTx, "connect_reply_rx": p.ReplyRx,
			"ready_tx": p.ReadyTx, "ready_rx": p.ReadyRx, "disconnect_request_tx": p.DisconnectRequestTx,
			"disconnect_request_rx": p.DisconnectRequestRx, "disconnect_reply_tx": p.DisconnectReplyTx, "disconnect_reply_rx": p.DisconnectReplyRx,
			"reject_tx": p.RejectTx, "unknown_msg_rx": p.UnknownRx,
		})
		return m.Interface().(R)
	}
}

// flowMetric converts the metrics of a flow. Those of an end that does not count frames are absent.
func flowMetric(config *engine.Config) func(engine.FlowMetric) *otg.Rocev2FlowMetricPerQP {
	own := map[netip.Addr]string{} // port by address
	for _, i := range config.Interfaces {
		for _, a := range i.Addresses {
			own[a.Prefix.Addr()] = i.Port
		}
	}
	return func(f engine.FlowMetric) *otg.Rocev2FlowMetricPerQP { return flowColumns(f, own[f.Dest]) }
}

// flowColumns sets the columns of the ends that count frames. port is that of the destination's address.
func flowColumns(f engine.FlowMetric, port string) *otg.Rocev2FlowMetricPerQP {
	m := &otg.Rocev2FlowMetricPerQP{}
	values := map[string]any{
		"flow_name": f.Name, "port_tx": f.PortTx, "src_qp": uint64(f.SourceQP), "dest_qp": uint64(f.DestQP),
		"message_tx": f.MessagesTx, "message_complete_rx": f.MessagesComplete, "message_fail": f.MessagesFailed,
		"flow_completion_time": uint64(f.Completion.Round(time.Millisecond).Milliseconds()),
	}
	if f.Source.IsValid() {
		values["src_ipv4"] = f.Source.String()
	}
	if f.Dest.IsValid() {
		values["dest_ipv4"] = f.Dest.String()
	}
	if rx := cmp.Or(f.PortRx, port); rx != "" {
		values["port_rx"] = rx
	}
	set(m.ProtoReflect(), values)
	sender, receiver := f.Own, f.Remote
	if f.Read {
		sender, receiver = receiver, sender
	}
	for _, part := range []struct {
		counted bool
		columns map[string]any
	}{
		{sender, map[string]any{"data_frames_tx": f.FramesTx, "data_frames_retransmitted": f.Retransmitted, "tx_bytes": f.BytesTx,
			"data_tx_rate": f.RateTx / 1e9, "cnp_rx": f.CNPRx, "first_timestamp": f.First, "last_timestamp": f.Last}},
		{receiver, map[string]any{"data_frames_rx": f.FramesRx, "frame_sequence_error": f.SequenceErrors, "rx_bytes": f.BytesRx,
			"data_rx_rate": f.RateRx / 1e9, "ecn_ce_rx": f.MarkedRx, "cnp_tx": f.CNPTx}},
		{sender && receiver, map[string]any{"frame_delta": delta(f.FramesTx, f.FramesRx)}},
		{f.Own, map[string]any{"ack_rx": f.ACKRx, "nak_rx": f.NAKRx}},
		{f.Remote, map[string]any{"ack_tx": f.ACKTx, "nak_tx": f.NAKTx}},
		{f.HasLatency, map[string]any{"avg_latency": uint64(f.LatencyAvg), "min_latency": uint64(f.LatencyMin), "max_latency": uint64(f.LatencyMax)}},
	} {
		if part.counted {
			set(m.ProtoReflect(), part.columns)
		}
	}
	return m
}

// delta is the number of frames that were not received. Duplicates can make rx larger.
func delta(tx, rx uint64) uint64 {
	if rx > tx {
		return 0
	}
	return tx - rx
}

func portMetric(p engine.PortMetric) *otg.PortMetric {
	m := &otg.PortMetric{Link: otg.PortMetric_Link_down.Enum(), Capture: otg.PortMetric_Capture_stopped.Enum(),
		Transmit: otg.PortMetric_Transmit_stopped.Enum()}
	if p.Up {
		m.Link = otg.PortMetric_Link_up.Enum()
	}
	if p.Capturing {
		m.Capture = otg.PortMetric_Capture_started.Enum()
	}
	if p.Transmitting {
		m.Transmit = otg.PortMetric_Transmit_started.Enum()
	}
	set(m.ProtoReflect(), map[string]any{
		"name": p.Name, "location": p.Location, "frames_tx": p.FramesTx, "frames_rx": p.FramesRx, "bytes_tx": p.BytesTx, "bytes_rx": p.BytesRx,
		"frames_tx_rate": p.FramesTxPerSecond, "frames_rx_rate": p.FramesRxPerSec, "bytes_tx_rate": p.BytesTxPerSecond,
		"bytes_rx_rate": p.BytesRxPerSecond,
	})
	if !p.LastChange.IsZero() {
		m.LastChange = proto.Uint64(uint64(p.LastChange.UnixNano()))
	}
	return m
}

func rawFlowMetric(f engine.RawFlowMetric) *otg.FlowMetric {
	states := map[engine.FlowState]otg.FlowMetric_Transmit_Enum{engine.Stopped: otg.FlowMetric_Transmit_stopped,
		engine.Started: otg.FlowMetric_Transmit_started, engine.Paused: otg.FlowMetric_Transmit_paused}
	m := &otg.FlowMetric{Transmit: states[f.State].Enum()}
	set(m.ProtoReflect(), map[string]any{"name": f.Name, "port_tx": f.PortTx, "port_rx": f.PortRx})
	direction(m, "tx", f.FramesTx, f.BytesTx, f.FramesTxPerSec)
	if !f.Counted {
		return m
	}
	direction(m, "rx", f.FramesRx, f.BytesRx, f.FramesRxPerSec)
	if f.FramesTx > 0 {
		m.Loss = proto.Float32(100 * float32(delta(f.FramesTx, f.FramesRx)) / float32(f.FramesTx))
	}
	if !f.First.IsZero() {
		m.Timestamps = &otg.MetricTimestamp{FirstTimestampNs: proto.Float64(float64(f.First.UnixNano())),
			LastTimestampNs: proto.Float64(float64(f.Last.UnixNano()))}
	}
	return m
}

// direction sets the counters and rates of a direction. Rates in bytes use the average size of the frames.
func direction(m *otg.FlowMetric, way string, frames, bytes uint64, rate float64) {
	size := float64(bytes) / float64(max(frames, 1))
	bits := 8 * rate * size
	set(m.ProtoReflect(), map[string]any{"frames_" + way: frames, "bytes_" + way: bytes, "frames_" + way + "_rate": rate,
		way + "_rate_bytes": bits / 8, way + "_rate_bps": bits, way + "_rate_kbps": bits / 1e3, way + "_rate_mbps": bits / 1e6,
		way + "_l1_rate_bps": bits + 8*rate*(link.Overhead-fcs)})
}

// States answers a request for neighbors that Check has accepted.
func States(r *otg.StatesRequest, e engine.Engine) *otg.StatesResponse {
	out := &otg.StatesResponse{Choice: otg.StatesResponse_Choice_ipv4_neighbors.Enum()}
	v6 := r.GetChoice() == otg.StatesRequest_Choice_ipv6_neighbors
	wanted := r.GetIpv4Neighbors().GetEthernetNames()
	if v6 {
		out.Choice, wanted = otg.StatesResponse_Choice_ipv6_neighbors.Enum(), r.GetIpv6Neighbors().GetEthernetNames()
	}
	for _, n := range e.Neighbors() {
		mac, addr := proto.String(n.MAC.String()), proto.String(n.Addr.String())
		switch {
		case len(wanted) > 0 && !slices.Contains(wanted, n.Interface) || n.Addr.Is6() != v6:
		case v6:
			out.Ipv6Neighbors = append(out.Ipv6Neighbors, &otg.Neighborsv6State{EthernetName: &n.Interface, Ipv6Address: addr,
				LinkLayerAddress: mac})
		default:
			out.Ipv4Neighbors = append(out.Ipv4Neighbors, &otg.Neighborsv4State{EthernetName: &n.Interface, Ipv4Address: addr,
				LinkLayerAddress: mac})
		}
	}
	return out
}
