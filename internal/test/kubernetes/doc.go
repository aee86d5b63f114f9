// Package kubernetes runs the tests of the module deploy/kubernetes with the programs of this tree.
package kubernetes
