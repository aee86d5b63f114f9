// Package soak torments pairs of NICs. It holds tests only:
//
//   - TestSoak: scenarios drawn from a seed over a link with faults, compared
//     with a naive model byte by byte and completion by completion
//   - TestRemovals: what work requests need is taken away in mid-traffic
//   - FuzzNIC, FuzzRings: hostile frames and hostile clients
//   - TestManyQueuePairs, BenchmarkBusyQPs, TestNoAllocations: scale
//
// More seeds, or one of them with its packets:
//
//	go test ./rocev2/soak -run TestSoak -timeout 0 -args -seeds=100000
//	go test ./rocev2/soak -run TestSoak -args -seed=4711 -trace
package soak
