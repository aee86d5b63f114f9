// Package examples tests the modules in examples/, which are what users' own would be.
package examples
