// Package agent lets a controller use the engine of another machine. Controller and agent speak gRPC: a session is one stream of
// requests and replies, with messages in JSON. The engine's configuration lives as long as the stream.
package agent

import (
	"encoding/json"
	"errors"
	"time"

	"google.golang.org/grpc"

	"roced.io/roced/otg/engine"
)

// method names the stream of a session.
const (
	service = "roceotg.Agent"
	stream  = "Session"
)

// request calls a method of the engine with its arguments. The first request of a session is hello, with the version.
type request struct {
	Method  string
	Version string               `json:",omitempty"`
	Config  *engine.Config       `json:",omitempty"`
	Names   []string             `json:",omitempty"`
	Connect engine.ProtocolState `json:",omitempty"`
	Traffic engine.TrafficState  `json:",omitempty"`
	Up      bool                 `json:",omitempty"`
	Raw     []engine.RawFlow     `json:",omitempty"`
	Pings   []engine.Ping        `json:",omitempty"`
}

// reply has the results of a method.
type reply struct {
	Errors    []string               `json:",omitempty"`
	Warnings  []string               `json:",omitempty"`
	File      []byte                 `json:",omitempty"`
	Ports     []engine.PortMetric    `json:",omitempty"`
	Peers     []engine.PeerMetric    `json:",omitempty"`
	Flows     []engine.FlowMetric    `json:",omitempty"`
	Raw       []engine.RawFlowMetric `json:",omitempty"`
	Neighbors []engine.Neighbor      `json:",omitempty"`
	Pings     []engine.Ping          `json:",omitempty"`
}

// Limits of messages in bytes: a request has a configuration, a reply may have a capture.
const (
	maxRequest = 64 << 20
	maxReply   = 1 << 30
)

// A side that receives nothing for alive sends a ping, and ends the session after aliveTimeout without an answer.
const (
	alive        = 10 * time.Second
	aliveTimeout = 5 * time.Second
)

// codec encodes messages as JSON.
type codec struct{}

// Name implements encoding.Codec.
func (codec) Name() string { return "json" }

// Marshal implements encoding.Codec.
func (codec) Marshal(v any) ([]byte, error) { return json.Marshal(v) }

// Unmarshal implements encoding.Codec.
func (codec) Unmarshal(b []byte, v any) error { return json.Unmarshal(b, v) }

// description describes the service to gRPC.
var description = grpc.ServiceDesc{ServiceName: service, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{StreamName: stream,
	Handler: func(s any, stream grpc.ServerStream) error { return s.(*server).session(stream) }, ServerStreams: true, ClientStreams: true}}}

// texts returns the errors that errors.Join has joined.
func texts(err error) (all []string) {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []string{err.Error()}
	}
	for _, e := range joined.Unwrap() {
		all = append(all, texts(e)...)
	}
	return all
}

// failure returns the errors of a reply.
func (r *reply) failure() error {
	var errs []error
	for _, t := range r.Errors {
		errs = append(errs, errors.New(t))
	}
	return errors.Join(errs...)
}
