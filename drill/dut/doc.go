// Package dut drives devices under test: it moves frames and commands between the engine of package drill and a device. The
// device is a NIC of ours on a virtual clock, a daemon, or anything with libibverbs that runs the agent.
package dut
