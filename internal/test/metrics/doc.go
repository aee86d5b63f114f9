// Package metrics tests what deploy/ has for Prometheus and Grafana against daemons between which real traffic
// runs, and the names of metrics against those of node_exporter. It has tests only.
package metrics
