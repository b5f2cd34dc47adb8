package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

// timeout is the time limit of an answer.
const timeout = 10 * time.Second

// target is a workload, and the host for calling it.
type target struct{ workload, host string }

type targets []target

func (t *targets) String() string { return fmt.Sprint(len(*t)) }

func (t *targets) Set(s string) error {
	workload, host, ok := strings.Cut(s, "=")
	if !ok || workload == "" || host == "" {
		return fmt.Errorf("want WORKLOAD=HOST, got %q", s)
	}
	*t = append(*t, target{workload, host})
	return nil
}

// client sends to all targets by all protocols.
type client struct {
	targets targets
	rate    float64
	envoy   string // admin address of Envoy, for the number of its retries
	tally   tally
}

// caller sends one request or message, and waits for its answer. It keeps its connection or stream open for the next
// call. version is the server's, if the protocol transmits it.
type caller interface {
	call(ctx context.Context) (version, peer string, err error)
	close()
}

// senders is the number of callers for each protocol and target; they share the rate equally.
const senders = 2

// run sends until the context ends.
func (c *client) run(ctx context.Context, addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	page := &http.Server{Handler: http.HandlerFunc(c.report), ReadHeaderTimeout: timeout}
	go func() { _ = page.Serve(l) }() // runs until the process ends
	defer page.Close()
	var all sync.WaitGroup
	for _, t := range c.targets {
		for protocol, of := range callers {
			for range senders {
				all.Go(func() {
					c.send(ctx, t.workload, protocol, of(t.host), time.Duration(float64(time.Second)*float64(senders*len(callers))/c.rate))
				})
			}
		}
	}
	all.Wait()
	return nil
}

// send makes one call per interval. A failure is counted and not retried.
func (c *client) send(ctx context.Context, workload, protocol string, with caller, every time.Duration) {
	defer with.close()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		one, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		version, peer, err := with.call(one)
		cancel()
		c.tally.add(workload, protocol, version, peer, err, time.Now())
	}
}

// callers returns a caller of each protocol.
var callers = map[string]func(host string) caller{
	"http/1.1":    func(host string) caller { return newHTTP(net.JoinHostPort(host, httpPort), false) },
	"http/2":      func(host string) caller { return newHTTP(net.JoinHostPort(host, http2Port), true) },
	"grpc":        func(host string) caller { return &unary{rpc: rpc{address: net.JoinHostPort(host, grpcPort)}} },
	"grpc stream": func(host string) caller { return &stream{rpc: rpc{address: net.JoinHostPort(host, grpcPort)}} },
	"tcp":         func(host string) caller { return &lines{address: net.JoinHostPort(host, tcpPort)} },
}

// overHTTP sends over one connection that stays open.
type overHTTP struct {
	url    string
	client http.Client
}

func newHTTP(address string, two bool) *overHTTP {
	var protocols http.Protocols
	protocols.SetHTTP1(!two)
	protocols.SetUnencryptedHTTP2(two)
	return &overHTTP{"http://" + address + "/", http.Client{Transport: &http.Transport{Protocols: &protocols}}}
}

// once is a body that cannot be read again, so that net/http does not retry a request by itself.
type once struct{ io.Reader }

func (h *overHTTP) call(ctx context.Context) (version, peer string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, once{strings.NewReader("hello")})
	if err != nil {
		return "", "", err
	}
	r.ContentLength = int64(len("hello"))
	got, err := h.client.Do(r)
	if err != nil {
		return "", "", err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		return "", "", err
	}
	if got.StatusCode != http.StatusOK {
		return "", "", fmt.Errorf("status %d: %.200s", got.StatusCode, text)
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return "", "", fmt.Errorf("%w: %.200s", err, text)
	}
	return a.Version, a.Caller, nil
}

func (h *overHTTP) close() { h.client.CloseIdleConnections() }

// rpc is a gRPC connection. It is created once: grpc-go reconnects by itself.
type rpc struct {
	address string
	conn    *grpc.ClientConn
}

func (r *rpc) client() (testgrpc.TestServiceClient, error) {
	if r.conn == nil {
		conn, err := grpc.NewClient("passthrough:///"+r.address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
		if err != nil {
			return nil, err
		}
		r.conn = conn
	}
	return testgrpc.NewTestServiceClient(r.conn), nil
}

func (r *rpc) close() {
	if r.conn != nil {
		_ = r.conn.Close()
	}
}

// unary sends each message as a call.
type unary struct{ rpc }

func (u *unary) call(ctx context.Context) (version, peer string, err error) {
	client, err := u.client()
	if err != nil {
		return "", "", err
	}
	got, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{Payload: &testgrpc.Payload{Body: []byte("hello")}}, grpc.WaitForReady(true))
	if err == nil && string(got.GetPayload().GetBody()) != "hello" {
		err = fmt.Errorf("answered %q", got.GetPayload().GetBody())
	}
	return "", "", err
}

// stream sends messages on one stream, until the server requests its end.
type stream struct {
	rpc
	open   grpc.BidiStreamingClient[testgrpc.StreamingOutputCallRequest, testgrpc.StreamingOutputCallResponse]
	cancel context.CancelFunc
}

func (s *stream) call(ctx context.Context) (version, peer string, err error) {
	if s.open == nil {
		client, err := s.client()
		if err != nil {
			return "", "", err
		}
		of, cancel := context.WithCancel(context.Background()) // the connection outlives the call
		late := context.AfterFunc(ctx, cancel)
		s.open, err = client.FullDuplexCall(of, grpc.WaitForReady(true))
		late()
		if err != nil {
			cancel()
			s.open = nil
			return "", "", err
		}
		s.cancel = cancel
	}
	late := context.AfterFunc(ctx, s.cancel)
	defer late()
	ends, err := s.exchange()
	if err == nil && !ends {
		return "", "", nil
	}
	if err == nil {
		_ = s.open.CloseSend()
		if _, err = s.open.Recv(); errors.Is(err, io.EOF) {
			err = nil
		}
	}
	s.cancel()
	s.open = nil
	return "", "", err
}

// exchange sends a message and waits for its answer; ends reports that the server has requested the end of the stream.
func (s *stream) exchange() (ends bool, err error) {
	if err := s.open.Send(&testgrpc.StreamingOutputCallRequest{Payload: &testgrpc.Payload{Body: []byte("hello")}}); err != nil {
		if errors.Is(err, io.EOF) {
			_, err = s.open.Recv()
		}
		return false, fmt.Errorf("the stream ended: %w", err)
	}
	return answered("stream", func() (string, error) {
		got, err := s.open.Recv()
		return string(got.GetPayload().GetBody()), err
	})
}

// answered reads until the answer to hello arrives; ends reports that the server has requested the end of the carrier
// before that.
func answered(carrier string, next func() (string, error)) (ends bool, err error) {
	for {
		switch body, err := next(); {
		case err != nil:
			return ends, fmt.Errorf("the %s ended: %w", carrier, err)
		case body == "hello":
			return ends, nil
		case body == bye:
			ends = true
		default:
			return ends, fmt.Errorf("answered %q", body)
		}
	}
}

func (s *stream) close() {
	if s.open != nil {
		s.cancel()
	}
	s.rpc.close()
}

// lines sends lines on one connection, until the server requests its end.
type lines struct {
	address string
	conn    net.Conn
	in      *bufio.Reader
}

func (l *lines) call(ctx context.Context) (version, peer string, err error) {
	if l.conn == nil {
		if l.conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", l.address); err != nil {
			l.conn = nil
			return "", "", err
		}
		l.in = bufio.NewReader(l.conn)
	}
	until, _ := ctx.Deadline()
	_ = l.conn.SetDeadline(until)
	ends, err := l.exchange()
	if ends || err != nil {
		l.close()
	}
	return "", "", err
}

func (l *lines) exchange() (ends bool, err error) {
	if _, err := io.WriteString(l.conn, "hello\n"); err != nil {
		return false, err
	}
	return answered("connection", func() (string, error) {
		line, err := l.in.ReadBytes('\n')
		return string(bytes.TrimSpace(line)), err
	})
}

func (l *lines) close() {
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
	}
}
