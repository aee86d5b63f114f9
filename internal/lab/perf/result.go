package perf

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is the result of one test.
type Result struct {
	Test       string `json:"test"`
	Connection string `json:"connection"`
	Size       int    `json:"size"`
	QPs        int    `json:"qps"`
	MTU        int    `json:"mtu"`

	Messages          uint64  `json:"messages"`
	Seconds           float64 `json:"seconds"`
	Gbps              float64 `json:"gbps,omitempty"`
	MessagesPerSecond float64 `json:"messages_per_second,omitempty"`
	// Received is the number of messages that arrived, for services that may lose messages.
	Received   uint64   `json:"received,omitempty"`
	Verified   bool     `json:"verified"`
	CPUPercent float64  `json:"cpu_percent"` // of this process, without the daemon
	Latency    *Latency `json:"latency,omitempty"`
}

// Latency holds times in microseconds: half a round trip for write and send, a whole one for read and atomic.
type Latency struct {
	Min    float64 `json:"min_us"`
	Mean   float64 `json:"mean_us"`
	P50    float64 `json:"p50_us"`
	P99    float64 `json:"p99_us"`
	P999   float64 `json:"p999_us"`
	Max    float64 `json:"max_us"`
	StdDev float64 `json:"stddev_us"`
}

// newHistogram returns a histogram for values in nanoseconds, up to one minute.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(time.Minute), 3)
}

func summary(h *hdrhistogram.Histogram) *Latency {
	us := func(ns int64) float64 { return float64(ns) / 1000 }
	return &Latency{
		Min: us(h.Min()), Mean: h.Mean() / 1000, P50: us(h.ValueAtQuantile(50)), P99: us(h.ValueAtQuantile(99)),
		P999: us(h.ValueAtQuantile(99.9)), Max: us(h.Max()), StdDev: h.StdDev() / 1000,
	}
}

// setRate computes the message rate.
func (r *Result) setRate(messages uint64) {
	if r.Seconds > 0 {
		r.MessagesPerSecond = float64(messages) / r.Seconds
	}
}

// Print writes the result as a table row, or as one line of JSON. first adds the table's header.
func (r *Result) Print(w io.Writer, asJSON, first bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	if l := r.Latency; l != nil {
		if first {
			fmt.Fprintf(w, "%10s %10s %9s %9s %9s %9s %9s %9s\n", "bytes", "messages", "min us", "mean us", "50 %", "99 %", "99.9 %", "max us")
		}
		_, err := fmt.Fprintf(w, "%10d %10d %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f%s\n", r.Size, r.Messages, l.Min, l.Mean, l.P50, l.P99, l.P999, l.Max, r.remark())
		return err
	}
	if first {
		fmt.Fprintf(w, "%10s %10s %10s %12s %7s\n", "bytes", "messages", "Gb/s", "messages/s", "CPU %")
	}
	_, err := fmt.Fprintf(w, "%10d %10d %10.2f %12.0f %7.0f%s\n", r.Size, r.Messages, r.Gbps, r.MessagesPerSecond, r.CPUPercent, r.remark())
	return err
}

// remark returns the text after the numbers of a row.
func (r *Result) remark() string {
	s := ""
	if r.Verified {
		s = "  verified"
	}
	if r.Connection != "rc" && r.Received > 0 {
		s += fmt.Sprintf("  received %d", r.Received)
	}
	return s
}
