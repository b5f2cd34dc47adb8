// Package relay is the agent's half of the way to the control plane: Envoy speaks ADS to a Unix socket, and each of its
// streams is carried over one upstream connection, byte for byte.
//
// Owns: the socket, the pace of dials, the counters.  Reads: Config.  Never: what is inside a message.
//
// A stream lives exactly as long as its upstream: when the control plane goes, Envoy's stream is ended, because only a new
// stream makes Envoy state what it holds (initial_resource_versions). Nothing is queued here: one message at a time is
// under way in each direction, and HTTP/2 flow control holds back the rest at its sender.
package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
)

// maxSocketPath is the longest path that fits sockaddr_un on Linux, its closing zero included.
const maxSocketPath = 107

// Config says where Envoy knocks and where its streams go.
type Config struct {
	// Socket is the path of the Unix socket. It is made with mode 0777, so that an Envoy under another uid can use it:
	// the folder around it decides who may.
	Socket string
	// Target is the control plane, "host:port" or any gRPC target.
	Target string
	// Credentials is asked once per stream, so that a rotated root is used by the next connection.
	Credentials func() (credentials.TransportCredentials, error)
	// Metadata is asked once per stream for the headers to send upstream; nil: none.
	Metadata func() (metadata.MD, error)
	Log      *slog.Logger
}

// Relay carries ADS streams. Make it with New.
type Relay struct {
	cfg   Config
	pace  *pacer
	stats counters
}

// New checks cfg; it opens nothing.
func New(cfg Config) (*Relay, error) {
	var errs []error
	if cfg.Socket == "" {
		errs = append(errs, errors.New("no socket path"))
	} else if len(cfg.Socket) > maxSocketPath {
		errs = append(errs, fmt.Errorf("socket path %q has %d bytes, the system takes %d", cfg.Socket, len(cfg.Socket), maxSocketPath))
	}
	if cfg.Target == "" {
		errs = append(errs, errors.New("no address of a control plane"))
	}
	if cfg.Credentials == nil {
		errs = append(errs, errors.New("no credentials: say plaintext explicitly"))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("relay: %w", errors.Join(errs...))
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	r := &Relay{cfg: cfg, pace: newPacer(rand.Float64)}
	r.stats.target = cfg.Target
	return r, nil
}

// Run serves the socket until ctx ends, then ends all streams and removes the socket.
func (r *Relay) Run(ctx context.Context) error {
	l, err := listen(r.cfg.Socket)
	if err != nil {
		return fmt.Errorf("relay: listen on %s: %w", r.cfg.Socket, err)
	}
	srv := grpc.NewServer(
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.UnknownServiceHandler(r.carry),
		grpc.MaxRecvMsgSize(math.MaxInt32), // initial versions of a large proxy pass the default of 4 MiB
		grpc.MaxConcurrentStreams(32),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	stop := context.AfterFunc(ctx, srv.Stop)
	defer stop()
	if err := srv.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("relay: serve %s: %w", r.cfg.Socket, err)
	}
	return nil
}

// listen takes the path over from a process that died, never from one that lives.
func listen(path string) (net.Listener, error) {
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, syscall.EADDRINUSE
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o777); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}
