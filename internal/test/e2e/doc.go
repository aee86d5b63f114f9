// Package e2e tests the programs as users run them: two daemons on TAPs in two
// network namespaces, or on AF_UNIX links where namespaces are not permitted,
// with roceperf between them and rocectl beside them. It has tests only.
package e2e
