package relay

import (
	"context"
	"math"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"navarch.io/navarch/push/agentapi"
)

const (
	connectTimeout = 5 * time.Second
	// window is the HTTP/2 flow-control window in bytes. It is large enough for a large push without pauses. With 64
	// KiB, the sender needs 1.5 times the CPU time.
	window = 1 << 20
)

// upstream does the I/O of one upstream connection (connection to the control plane). One goroutine dials and reads,
// another one writes. The loop (stream.go) is the goroutine of Envoy's stream. It receives events from the connection,
// and sends messages.
type upstream struct {
	id     uint32
	row    *stream // counters of the connection
	cancel context.CancelFunc
	in     chan event           // events for the loop; unbuffered, so that a slow loop holds back the server
	out    chan mem.BufferSlice // messages to send; closed after the last one
	queue  []mem.BufferSlice    // messages that the writing goroutine has not received yet; owned by the loop
	ended  bool                 // no more messages follow: out is closed when queue is empty
	closed bool                 // out was closed
	done   <-chan struct{}      // closed when the connection is cancelled

	// The reading goroutine sets these fields. The loop reads them only after a later event from that goroutine.
	connected time.Time
	store     string // name of the server's store; empty: unknown
	behind    bool   // the server ended the stream because its store revision is below the agent's minimum
	revision  int64  // the server's store revision, if behind is true
}

// open starts an upstream connection and returns at once. A goroutine waits for the pause d.after, dials d.addr, and
// sends events until the connection ends or is cancelled. Before it dials Config.Target, it also waits for the pacer
// (pace.go). The argument envoyStream is the number of Envoy's stream.
func (r *Relay) open(ctx context.Context, d dial, envoyStream uint64) *upstream {
	ctx, cancel := context.WithCancel(ctx)
	u := &upstream{
		id: d.conn, row: r.stats.open(envoyStream, methodDelta, d.addr), cancel: cancel,
		in: make(chan event), out: make(chan mem.BufferSlice), done: ctx.Done(),
	}
	go r.run(ctx, u, d)
	return u
}

// notify sends an event to the loop. If ctx ends first, it frees the event's message and returns false.
func (u *upstream) notify(ctx context.Context, e event) bool {
	select {
	case u.in <- e:
		return true
	case <-ctx.Done():
		if f, is := e.(fromConn); is {
			f.data.Free()
		}
		return false
	}
}

// run serves an upstream connection. When the connection ends, run sends a connEnded event, unless ctx has ended.
func (r *Relay) run(ctx context.Context, u *upstream, d dial) {
	err := r.serveConn(ctx, u, d)
	if ctx.Err() != nil {
		u.row.end(nil)
		return
	}
	u.row.end(err)
	u.notify(ctx, connEnded{u.id, err})
}

func (r *Relay) serveConn(ctx context.Context, u *upstream, d dial) error {
	wait := d.after
	if d.addr == r.cfg.Target {
		wait = max(wait, r.pace.wait(time.Now()))
	}
	if err := hold(ctx, wait); err != nil {
		return err
	}
	up, closeConn, err := r.connect(ctx, u.row, d.addr, methodDelta)
	if err != nil {
		if ctx.Err() == nil && d.addr == r.cfg.Target {
			r.pace.failed(time.Now())
		}
		return err
	}
	defer closeConn()
	u.connected = time.Now()
	r.stats.connected(u.row, u.connected)
	r.cfg.Log.Info("connected to the control plane", "address", d.addr, "peer", u.row.peerText())
	if !u.notify(ctx, connReady{u.id}) {
		return nil
	}
	go u.write(ctx, up)
	err = r.read(ctx, u, up)
	if d.addr == r.cfg.Target && (ctx.Err() == nil || u.row.responses.Load() > 0) {
		r.recordOutcome(u.row, u.connected)
	}
	return err
}

// recordOutcome tells the pacer, which spaces dials, whether an ended upstream connection was healthy. A healthy
// connection carried a response to Envoy, or lasted for healthyAfter.
func (r *Relay) recordOutcome(row *stream, connected time.Time) {
	if now := time.Now(); row.responses.Load() > 0 || now.Sub(connected) >= healthyAfter {
		r.pace.worked()
	} else {
		r.pace.failed(now)
	}
}

func (r *Relay) read(ctx context.Context, u *upstream, up grpc.ClientStream) error {
	if md, err := up.Header(); err == nil && md != nil {
		u.store = agentapi.DecodeStore(md)
		r.minRevision.observe(u.store, "")
		u.notify(ctx, connProof{u.id})
	}
	for {
		var f frame
		if err := up.RecvMsg(&f); err != nil {
			u.revision, u.behind = agentapi.DecodeBehind(up.Trailer())
			return err
		}
		head, err := scanResponse(f.data)
		if !u.notify(ctx, fromConn{u.id, f.data, head, err}) {
			return ctx.Err()
		}
	}
}

// write sends the loop's messages. If sending fails, read receives the status of the stream.
func (u *upstream) write(ctx context.Context, up grpc.ClientStream) {
	for {
		select {
		case data, more := <-u.out:
			if !more {
				up.CloseSend()
				return
			}
			n := data.Len()
			if up.SendMsg(&frame{data}) == nil {
				u.row.sent(n)
			}
		case <-ctx.Done():
			return
		}
	}
}

// connect opens a separate connection for one stream, as Istio's agents do. So each dial of the control plane's name
// may reach another replica. The returned function closes the connection. Errors are those of Config.Credentials,
// Config.Metadata and gRPC.
func (r *Relay) connect(ctx context.Context, st *stream, addr, method string) (grpc.ClientStream, func() error, error) {
	creds, err := r.cfg.Credentials()
	if err != nil {
		return nil, nil, err
	}
	md := metadata.MD{}
	if r.cfg.Metadata != nil {
		m, err := r.cfg.Metadata()
		if err != nil {
			return nil, nil, err
		}
		md = m.Copy()
	}
	r.minRevision.get().Encode(md)
	target, dial := addr, st.dial
	if addr != r.cfg.Target {
		// Another address belongs to an owner (the replica that should serve this proxy). The owner must prove the name
		// of Config.Target, so gRPC receives this name.
		target = "passthrough:///" + r.authority
		dial = func(ctx context.Context, _ string) (net.Conn, error) { return st.dial(ctx, addr) }
	}
	conn, err := grpc.NewClient(target,
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(dial),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		grpc.WithInitialWindowSize(window),
		grpc.WithInitialConnWindowSize(window),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithDisableRetry(), // retries would require retaining the messages
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(math.MaxInt32)),
	)
	if err != nil {
		return nil, nil, err
	}
	ctx = metadata.NewOutgoingContext(ctx, md)
	up, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return up, conn.Close, nil
}

// dial connects to an address (TCP, or the path of a Unix socket), and counts the bytes of the connection.
func (s *stream) dial(ctx context.Context, addr string) (net.Conn, error) {
	network := "tcp"
	if len(addr) > 0 && addr[0] == '/' {
		network = "unix"
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	peer := c.RemoteAddr().String()
	s.peer.Store(&peer)
	return &countedConn{Conn: c, s: s}, nil
}

// countedConn counts the bytes of a connection, including the framing of TLS and HTTP/2.
type countedConn struct {
	net.Conn
	s *stream
}

// Read implements net.Conn, and counts the bytes.
func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.s.socketIn.Add(uint64(n))
	return n, err
}

// Write implements net.Conn, and counts the bytes.
func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.s.socketOut.Add(uint64(n))
	return n, err
}
