// Package soak stresses pairs of NICs. It contains tests only:
//
//   - TestSoak: random trials over a link with faults, compared
//     with a naive model byte by byte and completion by completion
//   - TestSoakOnSwitch: some of them between NICs on a switch
//   - TestRemovals: objects disappear while work requests use them
//   - FuzzNIC, FuzzRings: hostile frames and hostile clients
//   - TestManyQueuePairs, BenchmarkBusyQPs, TestNoAllocations: scale
//
// Run more seeds, or one seed with its packets:
//
//	go test ./rocev2/soak -run TestSoak -timeout 0 -args -seeds=100000
//	go test ./rocev2/soak -run TestSoak -args -seed=4711 -trace
package soak
