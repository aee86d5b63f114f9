package api

import (
	"context"
	"errors"
	"io"

	"github.com/open-traffic-generator/snappi/gosnappi/otg"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// maxRequest bounds a request in bytes, whole or in parts.
const maxRequest = 64 << 20

// chunk is the size of a part of a streamed response in bytes.
const chunk = 1 << 20

// RegisterGRPC adds the service to a gRPC server.
func (s *Server) RegisterGRPC(g *grpc.Server) { otg.RegisterOpenapiServer(g, service{server: s}) }

// GRPCOptions are the options that a gRPC server of the service needs.
func GRPCOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.MaxRecvMsgSize(maxRequest), grpc.MaxSendMsgSize(1 << 30), grpc.MaxConcurrentStreams(64)}
}

// service adapts the operations to gRPC.
type service struct {
	otg.UnimplementedOpenapiServer
	server *Server
}

// rpcError converts an error of an operation: its message is OTG's error as JSON, as clients expect.
func rpcError(err error) error {
	var f *failure
	if !errors.As(err, &f) {
		return err
	}
	code := codes.InvalidArgument
	if f.kind == otg.Error_Kind_internal {
		code = codes.Internal
	}
	text, marshalErr := jsonForm.Marshal(f.message(int32(code)))
	if marshalErr != nil {
		return status.Error(codes.Internal, marshalErr.Error())
	}
	return status.Error(code, string(text))
}

var jsonForm = protojson.MarshalOptions{UseProtoNames: true}

// answer wraps the result of an operation in the response of its method.
func answer[M any, R any](m M, err error, wrap func(M) R) (R, error) {
	if err != nil {
		var none R
		return none, rpcError(err)
	}
	return wrap(m), nil
}

func (s service) SetConfig(_ context.Context, r *otg.SetConfigRequest) (*otg.SetConfigResponse, error) {
	w, err := s.server.SetConfig(orNew(r.GetConfig()))
	return answer(w, err, func(w *otg.Warning) *otg.SetConfigResponse { return &otg.SetConfigResponse{Warning: w} })
}

func (s service) GetConfig(context.Context, *emptypb.Empty) (*otg.GetConfigResponse, error) {
	return &otg.GetConfigResponse{Config: s.server.GetConfig()}, nil
}

func (s service) UpdateConfig(_ context.Context, r *otg.UpdateConfigRequest) (*otg.UpdateConfigResponse, error) {
	w, err := s.server.UpdateConfig(orNew(r.GetConfigUpdate()))
	return answer(w, err, func(w *otg.Warning) *otg.UpdateConfigResponse { return &otg.UpdateConfigResponse{Warning: w} })
}

func (s service) AppendConfig(_ context.Context, r *otg.AppendConfigRequest) (*otg.AppendConfigResponse, error) {
	w, err := s.server.AppendConfig(orNew(r.GetConfigAppend()))
	return answer(w, err, func(w *otg.Warning) *otg.AppendConfigResponse { return &otg.AppendConfigResponse{Warning: w} })
}

func (s service) DeleteConfig(_ context.Context, r *otg.DeleteConfigRequest) (*otg.DeleteConfigResponse, error) {
	w, err := s.server.DeleteConfig(orNew(r.GetConfigDelete()))
	return answer(w, err, func(w *otg.Warning) *otg.DeleteConfigResponse { return &otg.DeleteConfigResponse{Warning: w} })
}

func (s service) SetControlState(_ context.Context, r *otg.SetControlStateRequest) (*otg.SetControlStateResponse, error) {
	w, err := s.server.SetControlState(orNew(r.GetControlState()))
	return answer(w, err, func(w *otg.Warning) *otg.SetControlStateResponse { return &otg.SetControlStateResponse{Warning: w} })
}

func (s service) SetControlAction(_ context.Context, r *otg.SetControlActionRequest) (*otg.SetControlActionResponse, error) {
	a, err := s.server.SetControlAction(orNew(r.GetControlAction()))
	return answer(a, err, func(a *otg.ControlActionResponse) *otg.SetControlActionResponse {
		return &otg.SetControlActionResponse{ControlActionResponse: a}
	})
}

func (s service) GetMetrics(_ context.Context, r *otg.GetMetricsRequest) (*otg.GetMetricsResponse, error) {
	m, err := s.server.GetMetrics(orNew(r.GetMetricsRequest()))
	return answer(m, err, func(m *otg.MetricsResponse) *otg.GetMetricsResponse {
		return &otg.GetMetricsResponse{MetricsResponse: m}
	})
}

func (s service) GetStates(_ context.Context, r *otg.GetStatesRequest) (*otg.GetStatesResponse, error) {
	m, err := s.server.GetStates(orNew(r.GetStatesRequest()))
	return answer(m, err, func(m *otg.StatesResponse) *otg.GetStatesResponse { return &otg.GetStatesResponse{StatesResponse: m} })
}

func (s service) GetCapture(_ context.Context, r *otg.GetCaptureRequest) (*otg.GetCaptureResponse, error) {
	b, err := s.server.GetCapture(orNew(r.GetCaptureRequest()))
	return answer(b, err, func(b []byte) *otg.GetCaptureResponse { return &otg.GetCaptureResponse{ResponseBytes: b} })
}

func (s service) GetVersion(context.Context, *emptypb.Empty) (*otg.GetVersionResponse, error) {
	return &otg.GetVersionResponse{Version: s.server.GetVersion()}, nil
}

// orNew returns an empty message instead of an absent one, so that its required fields are missed.
func orNew[T any](m *T) *T {
	if m == nil {
		return new(T)
	}
	return m
}

// The streaming forms send the message of the unary form in parts.

type parts interface{ Recv() (*otg.Data, error) }

// collect reads a message that comes in parts.
func collect(stream parts, m proto.Message) error {
	var all []byte
	for {
		d, err := stream.Recv()
		if err == io.EOF {
			if err := proto.Unmarshal(all, m); err != nil {
				return status.Error(codes.InvalidArgument, err.Error())
			}
			return nil
		}
		if err != nil {
			return err
		}
		if len(all)+len(d.GetDatum()) > maxRequest {
			return status.Errorf(codes.ResourceExhausted, "the request exceeds %d bytes", maxRequest)
		}
		all = append(all, d.GetDatum()...)
	}
}

// send writes bytes in parts.
func send(stream interface{ Send(*otg.Data) error }, b []byte) error {
	for len(b) > 0 {
		n := min(len(b), chunk)
		if err := stream.Send(&otg.Data{ChunkSize: uint64(n), Datum: b[:n]}); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// sendMessage writes the result of an operation in parts.
func sendMessage(stream interface{ Send(*otg.Data) error }, m proto.Message, err error) error {
	if err != nil {
		return rpcError(err)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return send(stream, b)
}

func (s service) StreamSetConfig(stream otg.Openapi_StreamSetConfigServer) error {
	c := &otg.Config{}
	if err := collect(stream, c); err != nil {
		return err
	}
	w, err := s.server.SetConfig(c)
	if err != nil {
		return rpcError(err)
	}
	return stream.SendAndClose(&otg.SetConfigResponse{Warning: w})
}

func (s service) StreamSetControlState(stream otg.Openapi_StreamSetControlStateServer) error {
	c := &otg.ControlState{}
	if err := collect(stream, c); err != nil {
		return err
	}
	w, err := s.server.SetControlState(c)
	if err != nil {
		return rpcError(err)
	}
	return stream.SendAndClose(&otg.SetControlStateResponse{Warning: w})
}

func (s service) StreamSetControlAction(stream otg.Openapi_StreamSetControlActionServer) error {
	c := &otg.ControlAction{}
	if err := collect(stream, c); err != nil {
		return err
	}
	a, err := s.server.SetControlAction(c)
	if err != nil {
		return rpcError(err)
	}
	return stream.SendAndClose(&otg.SetControlActionResponse{ControlActionResponse: a})
}

func (s service) StreamGetConfig(_ *emptypb.Empty, stream otg.Openapi_StreamGetConfigServer) error {
	return sendMessage(stream, s.server.GetConfig(), nil)
}

func (s service) StreamGetMetrics(r *otg.GetMetricsRequest, stream otg.Openapi_StreamGetMetricsServer) error {
	m, err := s.server.GetMetrics(orNew(r.GetMetricsRequest()))
	return sendMessage(stream, m, err)
}

func (s service) StreamGetStates(r *otg.GetStatesRequest, stream otg.Openapi_StreamGetStatesServer) error {
	m, err := s.server.GetStates(orNew(r.GetStatesRequest()))
	return sendMessage(stream, m, err)
}

func (s service) StreamGetCapture(r *otg.GetCaptureRequest, stream otg.Openapi_StreamGetCaptureServer) error {
	b, err := s.server.GetCapture(orNew(r.GetCaptureRequest()))
	if err != nil {
		return rpcError(err)
	}
	return send(stream, b)
}
