// Package examples tests the modules in examples/ like modules of users.
package examples
