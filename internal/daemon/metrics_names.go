package daemon

import "strings"

// nodeNames maps Linux counters to their names in the infiniband collector of node_exporter, without the prefix
// node_infiniband_. Dashboards for hardware devices use these names.
var nodeNames = map[string]string{
	// counters/
	"port_xmit_data":         "port_data_transmitted_bytes_total",
	"port_rcv_data":          "port_data_received_bytes_total",
	"port_xmit_packets":      "port_packets_transmitted_total",
	"port_rcv_packets":       "port_packets_received_total",
	"unicast_xmit_packets":   "unicast_packets_transmitted_total",
	"unicast_rcv_packets":    "unicast_packets_received_total",
	"multicast_xmit_packets": "multicast_packets_transmitted_total",
	"multicast_rcv_packets":  "multicast_packets_received_total",
	"port_rcv_errors":        "port_errors_received_total",
	"port_xmit_discards":     "port_discards_transmitted_total",
	"link_downed":            "link_downed_total",
	// hw_counters/
	"duplicate_request":          "duplicate_requests_packets_total",
	"implied_nak_seq_err":        "implied_nak_seq_errors_total",
	"local_ack_timeout_err":      "local_ack_timeout_errors_total",
	"np_cnp_sent":                "np_cnp_packets_sent_total",
	"np_ecn_marked_roce_packets": "np_ecn_marked_roce_packets_received_total",
	"out_of_buffer":              "out_of_buffer_drops_total",
	"out_of_sequence":            "out_of_sequence_packets_received_total",
	"packet_seq_err":             "packet_sequence_errors_total",
	"req_cqe_error":              "req_cqes_errors_total",
	"req_cqe_flush_error":        "req_cqes_flush_errors_total",
	"req_remote_access_errors":   "req_remote_access_errors_total",
	"req_remote_invalid_request": "req_remote_invalid_request_errors_total",
	"resp_cqe_error":             "resp_cqes_errors_total",
	"resp_cqe_flush_error":       "resp_cqes_flush_errors_total",
	"resp_local_length_error":    "resp_local_length_errors_total",
	"resp_remote_access_errors":  "resp_remote_access_errors_total",
	"rnr_nak_retry_err":          "rnr_nak_retry_packets_received_total",
	"rp_cnp_handled":             "rp_cnp_packets_handled_total",
	"rp_cnp_ignored":             "rp_cnp_ignored_packets_received_total",
	"rx_atomic_requests":         "rx_atomic_requests_total",
	"rx_icrc_encapsulated":       "rx_icrc_encapsulated_errors_total",
	"rx_read_requests":           "rx_read_requests_total",
	"rx_write_requests":          "rx_write_requests_total",
}

// families lists counters that exist once for each reason or message type. Each family becomes one metric with a
// label.
var families = []struct{ prefix, metric, label, help string }{
	{"rx_dropped_", "roced_rx_dropped_total", "reason", "Frames and packets received and dropped, by reason."},
	{"tx_dropped_", "roced_tx_dropped_total", "reason", "Packets that were not sent, by reason."},
	{"cm_tx_msgs_", "roced_cm_tx_msgs_total", "message", "Connection messages sent, by message."},
	{"cm_tx_retries_", "roced_cm_tx_retries_total", "message", "Connection messages sent again, by message."},
	{"cm_rx_msgs_", "roced_cm_rx_msgs_total", "message", "Connection messages received, by message."},
	{"cm_rx_duplicates_", "roced_cm_rx_duplicates_total", "message", "Connection messages received more than once, by message."},
}

// wordBytes is the unit of port_xmit_data and port_rcv_data (IBTA vol.1 16.1.4.5).
const wordBytes = 4

// counterMetric is the metric of a NIC's counter.
type counterMetric struct {
	name  string
	help  string
	label string // "": only the labels of the port
	value string // value of the label
	unit  float64
}

func metricOf(counter string) counterMetric {
	if name, ok := nodeNames[counter]; ok {
		m := counterMetric{name: "node_infiniband_" + name, help: counterHelp[counter], unit: 1}
		if strings.Contains(name, "_bytes_") {
			m.unit = wordBytes
		}
		return m
	}
	for _, f := range families {
		if value, ok := strings.CutPrefix(counter, f.prefix); ok {
			return counterMetric{f.metric, f.help, f.label, value, 1}
		}
	}
	return counterMetric{name: "roced_" + counter + "_total", help: counterHelp[counter], unit: 1}
}
