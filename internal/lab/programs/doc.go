// Package programs runs RDMA programs of distributions on two NICs: the examples of libibverbs and librdmacm, perftest, and
// the tests of pyverbs. docs/results/verbs-programs.md lists the results. -update writes that file, other runs compare
// with it. The package has tests only.
package programs
