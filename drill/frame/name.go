package frame

import (
	"strings"

	"roced.io/roced/bth"
)

// OpcodeName returns the name of an opcode in scripts: Wireshark's without "RC_" and "RDMA_", with the usual abbreviations.
func OpcodeName(o bth.Opcode) string {
	if !o.Valid() {
		return o.String()
	}
	return shorten.Replace(strings.TrimPrefix(o.String(), "RC_"))
}

var shorten = strings.NewReplacer("RDMA_", "", "WITH_IMMEDIATE", "IMM", "READ_RESPONSE", "READ_RESP", "ATOMIC_ACKNOWLEDGE", "ATOMIC_ACK")

// opcodes maps names to opcodes.
var opcodes = func() map[string]bth.Opcode {
	m := map[string]bth.Opcode{}
	for o := range 256 {
		if op := bth.Opcode(o); op.Valid() {
			m[OpcodeName(op)] = op
		}
	}
	return m
}()

// Opcode returns the opcode of a name.
func Opcode(name string) (o bth.Opcode, ok bool) {
	o, ok = opcodes[name]
	return o, ok
}

// Opcodes returns the names of all opcodes in numerical order, for the reference.
func Opcodes() (names []string) {
	for o := range 256 {
		if op := bth.Opcode(o); op.Valid() {
			names = append(names, OpcodeName(op))
		}
	}
	return names
}
