// Package model tests RoCEv2 devices by random sequences. A sequence drives both sides of a queue pair: packets to the device and
// verbs on it. The model predicts the answers. Where a rule leaves a choice, the prediction is a set: optional packets, ranges of
// PSNs, any credits.
//
// A sequence is a script of package engine. So the engine drives and checks it on every device, and a sequence that fails is a
// script to keep. All choices of a sequence are numbers that its seed determines; the shrinker removes and reduces them.
//
// The rules follow the public sources that drill/suite/SPEC.md lists.
package model
