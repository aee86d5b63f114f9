// Package metrics tests the files in deploy/ for Prometheus and Grafana against daemons with real traffic. It also
// compares the names of metrics with node_exporter's. It has tests only.
package metrics
