// Package programs runs RDMA programs as distributions ship them on two NICs: the
// examples of libibverbs and librdmacm, perftest, and the tests of pyverbs. What
// passes, what is skipped and why is docs/results/verbs-programs.md, which -update writes
// and which every other run is held against. It has tests only.
package programs
