// Package e2e tests the programs as users run them. Two daemons run on TAPs in two network namespaces, or on AF_UNIX
// links if namespaces are not permitted. roceperf runs between them, and rocectl controls them. It has tests only.
package e2e
