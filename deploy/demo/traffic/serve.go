package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// ending is the longest time in which a server that is ending still answers its clients.
const ending = 20 * time.Second

// bye is the line by which a server announces its end over TCP: it answers until the client closes the connection.
const bye = "bye"

// answer is the body of answers to HTTP requests.
type answer struct {
	Name, Version, Host string
	Caller              string // X-Forwarded-Client-Cert, the proxy's statement about the caller
}

// server answers on one port for each protocol.
type server struct {
	testgrpc.UnimplementedTestServiceServer
	name, version, host string
	stopping            <-chan struct{}
}

// run serves until the context ends, and then completes everything under way, for 20 s at most.
func (s *server) run(ctx context.Context) error {
	s.stopping = ctx.Done()
	listeners := map[string]net.Listener{}
	for _, port := range []string{httpPort, http2Port, grpcPort, tcpPort} {
		l, err := net.Listen("tcp", net.JoinHostPort(s.host, port))
		if err != nil {
			return err
		}
		listeners[port] = l
	}
	log.Printf("%s %s is served", s.name, s.version)
	return s.serve(ctx, listeners)
}

func (s *server) serve(ctx context.Context, listeners map[string]net.Listener) error {
	var plain, h2c http.Protocols
	plain.SetHTTP1(true)
	h2c.SetUnencryptedHTTP2(true)
	one := &http.Server{Handler: s, Protocols: &plain, ReadHeaderTimeout: ending}
	two := &http.Server{Handler: s, Protocols: &h2c, ReadHeaderTimeout: ending}
	rpc := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(rpc, s)
	failed := make(chan error, len(listeners))
	go func() { failed <- one.Serve(listeners[httpPort]) }()
	go func() { failed <- two.Serve(listeners[http2Port]) }()
	go func() { failed <- rpc.Serve(listeners[grpcPort]) }()
	var lines sync.WaitGroup
	go func() { failed <- s.accept(listeners[tcpPort], &lines) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	limit, cancel := context.WithTimeout(context.Background(), ending)
	defer cancel()
	defer context.AfterFunc(limit, rpc.Stop)()
	var ends sync.WaitGroup
	ends.Go(func() { _ = one.Shutdown(limit) }) // the rest ends with the process
	ends.Go(func() { _ = two.Shutdown(limit) })
	ends.Go(rpc.GracefulStop)
	ends.Go(func() { _ = listeners[tcpPort].Close(); lines.Wait() })
	ends.Wait()
	log.Printf("%s %s has ended", s.name, s.version)
	return nil
}

// ServeHTTP answers with an `answer` as JSON.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, err := os.Hostname()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	text, err := json.Marshal(answer{s.name, s.version, host, r.Header.Get("X-Forwarded-Client-Cert")})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // fails if the client is gone
}

// UnaryCall answers with the payload of the request. The error is nil.
func (s *server) UnaryCall(_ context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return &testgrpc.SimpleResponse{Payload: r.GetPayload()}, nil
}

// FullDuplexCall answers each message with its payload, until the client ends the stream. A server that is ending
// requests that. The error is that of the stream.
func (s *server) FullDuplexCall(
	stream grpc.BidiStreamingServer[testgrpc.StreamingOutputCallRequest, testgrpc.StreamingOutputCallResponse],
) error {
	type received struct {
		request *testgrpc.StreamingOutputCallRequest
		err     error
	}
	requests := make(chan received)
	go func() {
		for {
			r, err := stream.Recv()
			select {
			case requests <- received{r, err}:
			case <-stream.Context().Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	stopping := s.stopping
	for {
		select {
		case r := <-requests:
			if errors.Is(r.err, io.EOF) {
				return nil
			}
			if r.err != nil {
				return r.err
			}
			if err := stream.Send(&testgrpc.StreamingOutputCallResponse{Payload: r.request.GetPayload()}); err != nil {
				return err
			}
		case <-stopping:
			// This payload requests the client to close, as the line does over TCP.
			stopping = nil
			if err := stream.Send(&testgrpc.StreamingOutputCallResponse{Payload: &testgrpc.Payload{Body: []byte(bye)}}); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return status.Error(codes.Canceled, "the client has gone")
		}
	}
}

// accept echoes lines on each connection until the listener is closed.
func (s *server) accept(l net.Listener, lines *sync.WaitGroup) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return fmt.Errorf("tcp: %w", err)
		}
		lines.Go(func() { s.echo(c) })
	}
}

// echo answers each line with the same line, until the client closes the connection. A server that is ending announces
// it, and closes at the limit.
func (s *server) echo(c net.Conn) {
	defer c.Close()
	done := make(chan struct{})
	defer close(done)
	var writing sync.Mutex
	say := func(line []byte) error {
		writing.Lock()
		defer writing.Unlock()
		_, err := c.Write(line)
		return err
	}
	go func() {
		select {
		case <-s.stopping:
			_ = c.SetReadDeadline(time.Now().Add(ending))
			_ = say([]byte(bye + "\n")) // fails if the client is gone
		case <-done:
		}
	}()
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil || say(line) != nil {
			return
		}
	}
}
