// Package engine is the software control plane of Flor (Li et al., "Flor: An Open High Performance RDMA
// Framework Over Heterogeneous RNICs", OSDI 2023), above the queue pairs of any NIC. docs/flor.md says
// which mechanism of the paper is where.
//
// Like the core it is sans-I/O: inputs carry the time, and nothing here reads a clock, starts a
// goroutine or takes a lock.
package engine
