package uverbs

import "sync"

// turns holds the turns of NICs in this process by the sockets of their devices.
var turns sync.Map

// SetTurn registers the function that runs a turn of the NIC behind a socket, in the process of the NIC. nil removes it.
// The function reports whether there was work.
func SetTurn(path string, turn func() bool) {
	if turn == nil {
		turns.Delete(path)
		return
	}
	turns.Store(path, turn)
}

// TurnOf returns the function of SetTurn, nil if the NIC is in another process.
func TurnOf(path string) func() bool {
	f, _ := turns.Load(path)
	turn, _ := f.(func() bool)
	return turn
}
