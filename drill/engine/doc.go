// Package engine runs scripts against a RoCEv2 device under test (DUT). The tester plays the device's peer on the wire, packet
// by packet, and drives verbs on the device by commands to an agent.
//
// The engine is sans-I/O: frames, answers of the agent and the time go in; frames and commands come out. A driver on real links
// and one on a virtual clock run the same engine (package drill/dut).
//
//	e, err := engine.New(script, options)
//	for !e.Done() {
//		for o, ok := e.Poll(now); ok; o, ok = e.Poll(now) {
//			... send o.Frame, or pass o.Command to the agent
//		}
//		... wait for a frame, a line of the agent, or e.NextTimeout()
//		e.Frame(now, frame) / e.Reply(now, line) / e.Advance(now)
//	}
//	r := e.Result()
package engine
