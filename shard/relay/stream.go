package relay

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	service     = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
	methodDelta = service + "DeltaAggregatedResources"
	methodSotW  = service + "StreamAggregatedResources"

	connectTimeout = 5 * time.Second
	// window lets a large push arrive without a stop; 64 KiB costs the sender half as much CPU again.
	window = 1 << 20
)

// carry is the life of one stream of Envoy.
func (r *Relay) carry(_ any, down grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(down)
	if method != methodDelta && method != methodSotW {
		return status.Errorf(codes.Unimplemented, "the agent relays ADS only, not %s", method)
	}
	st := r.stats.open(method)
	err := r.relay(down, st, method)
	st.end(err)
	return err
}

func (r *Relay) relay(down grpc.ServerStream, st *stream, method string) error {
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	if err := hold(ctx, r.pace.wait(time.Now())); err != nil {
		return err
	}
	up, closeConn, err := r.connect(ctx, st, method)
	if err != nil {
		if ctx.Err() == nil {
			r.pace.failed(time.Now())
			r.lost(err)
		}
		return status.Errorf(codes.Unavailable, "control plane %s: %v", r.cfg.Target, err)
	}
	defer closeConn()
	connected := time.Now()
	r.stats.connected(st, connected)
	r.cfg.Log.Info("connected to the control plane", "address", r.cfg.Target)

	go pumpUp(down, up, st, cancel)
	err = pumpDown(up, down, st)
	if ctx.Err() != nil && down.Context().Err() != nil {
		return status.FromContextError(down.Context().Err()).Err() // Envoy left: says nothing about the control plane
	}
	if now := time.Now(); st.responses.Load() > 0 || now.Sub(connected) >= healthyAfter {
		r.pace.worked()
	} else {
		r.pace.failed(now)
	}
	r.lost(err)
	if errors.Is(err, io.EOF) {
		return status.Error(codes.Unavailable, "the control plane ended the stream")
	}
	return err
}

// lost logs the first failure after a success; the following ones are at Debug, since Envoy tries again all the time.
func (r *Relay) lost(err error) {
	if r.stats.failed(err) {
		r.cfg.Log.Warn("lost the control plane, Envoy keeps what it has", "address", r.cfg.Target, "error", err)
		return
	}
	r.cfg.Log.Debug("control plane still away", "address", r.cfg.Target, "error", err)
}

// pumpUp carries Envoy's requests; it ends when either side does. An error towards the control plane is left for
// pumpDown to find, which learns the status with it.
func pumpUp(down grpc.ServerStream, up grpc.ClientStream, st *stream, cancel context.CancelFunc) {
	for {
		var f frame
		if err := down.RecvMsg(&f); err != nil {
			if errors.Is(err, io.EOF) {
				up.CloseSend()
			} else {
				cancel()
			}
			return
		}
		n := f.data.Len()
		if err := up.SendMsg(&f); err != nil {
			return
		}
		st.sent(n)
	}
}

// pumpDown carries the control plane's responses and returns why they ended.
func pumpDown(up grpc.ClientStream, down grpc.ServerStream, st *stream) error {
	for {
		var f frame
		if err := up.RecvMsg(&f); err != nil {
			return err
		}
		n := f.data.Len()
		if err := down.SendMsg(&f); err != nil {
			return err
		}
		st.received(n)
	}
}

// connect opens a connection of its own for the stream, as stock agents do: a control plane of several replicas behind
// one name is chosen anew each time.
func (r *Relay) connect(ctx context.Context, st *stream, method string) (grpc.ClientStream, func() error, error) {
	creds, err := r.cfg.Credentials()
	if err != nil {
		return nil, nil, err
	}
	if r.cfg.Metadata != nil {
		md, err := r.cfg.Metadata()
		if err != nil {
			return nil, nil, err
		}
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	conn, err := grpc.NewClient(r.cfg.Target,
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(st.dial),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		grpc.WithInitialWindowSize(window),
		grpc.WithInitialConnWindowSize(window),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithDisableRetry(), // a retry would need the messages kept
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(math.MaxInt32)),
	)
	if err != nil {
		return nil, nil, err
	}
	up, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return up, conn.Close, nil
}

func hold(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// dial opens the socket of the stream and counts what passes through it.
func (s *stream) dial(ctx context.Context, addr string) (net.Conn, error) {
	network := "tcp"
	if len(addr) > 0 && addr[0] == '/' {
		network = "unix"
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &countedConn{Conn: c, s: s}, nil
}

type countedConn struct {
	net.Conn
	s *stream
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.s.socketIn.Add(uint64(n))
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.s.socketOut.Add(uint64(n))
	return n, err
}
