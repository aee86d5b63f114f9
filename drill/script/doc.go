// Package script parses the scripts of rocedrill. A script is a list of statements, one per line: packets that the tester
// sends ("<") and expects (">"), verbs on the device under test ("dut.send"), times, and a few definitions. docs/reference/drill.md
// describes the language.
//
// The package does no I/O and knows neither frames nor verbs: package drill checks names of packets, fields and verbs.
package script
