// Package frame builds, reads and prints RoCEv2 frames by the names of their fields. One table lists every field of every
// header with its place in bits. Building, matching and printing all use this table, so a script can set each field to any
// value, also to a wrong one, and match each field.
//
// The package does no I/O and reads no clock.
package frame
