package main

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"navarch.io/navarch/store/loopback"
)

// A call that panics ends alone, whatever its service and kind: other calls on its connection are answered, and so are
// later ones.
// Promise: security-limits.md#streams-connections-and-messages
func TestPanicEndsOneCall(t *testing.T) {
	p, _, _, _, _ := listening(t, nil)
	address := loopback.For(t)
	task, err := p.listen("panics", address, nil, func(r grpc.ServiceRegistrar) {
		r.RegisterService(&grpc.ServiceDesc{ServiceName: "test", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "Unary", Handler: panickingCall}},
			Streams: []grpc.StreamDesc{{StreamName: "Stream", Handler: panickingStream, ServerStreams: true, ClientStreams: true}}}, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- task.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	open := func() grpc.ClientStream {
		s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/test/Stream")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	answered := func(s grpc.ClientStream) {
		t.Helper()
		if err := s.SendMsg(&emptypb.Empty{}); err != nil {
			t.Error(err)
		}
		if err := s.RecvMsg(&emptypb.Empty{}); err != nil {
			t.Error(err)
		}
	}
	good, bad := open(), open()
	answered(good)
	answered(bad)
	if err := bad.CloseSend(); err != nil {
		t.Error(err)
	}
	if err := bad.RecvMsg(&emptypb.Empty{}); status.Code(err) != codes.Internal {
		t.Errorf("a stream that panics ends with %v", err)
	}
	if err := conn.Invoke(t.Context(), "/test/Unary", &emptypb.Empty{}, &emptypb.Empty{}); status.Code(err) != codes.Internal {
		t.Errorf("a call that panics ends with %v", err)
	}
	answered(good)
	answered(open())
}

// panickingStream echoes messages, and panics at the end.
func panickingStream(_ any, s grpc.ServerStream) error {
	for in := (&emptypb.Empty{}); s.RecvMsg(in) == nil; {
		if err := s.SendMsg(in); err != nil {
			return err
		}
	}
	if s.Context().Err() != nil { // the test is over
		return nil
	}
	panic("in a stream")
}

func panickingCall(_ any, ctx context.Context, _ func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
	handler := func(context.Context, any) (any, error) { panic("in a call") }
	if intercept == nil {
		return handler(ctx, nil)
	}
	return intercept(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/test/Unary"}, handler)
}
