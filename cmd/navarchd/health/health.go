// Package health answers grpc.health.v1 and grpc.reflection.v1 on the gRPC addresses of a process.
//
// Owns: the Watch streams of health clients, and the bounds of their number.
// Reads: whether the process is ready, and the identities of callers.
// Never: decides whether the process is ready; verifies a credential itself.
package health

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/cmd/navarchd/callers"
)

// Bounds of Watch, which needs no credential.
const (
	maxWatches     = 1024 // streams of this process
	maxHostWatches = 32   // streams of one client host
	maxServiceName = 256  // bytes of the name of a service
	readyPoll      = 500 * time.Millisecond
)

// Health answers grpc.health.v1 on all gRPC addresses of a process, for every caller. All services are SERVING while
// the function ready (see New) returns nil, and NOT_SERVING while it returns an error. Safe for concurrent use.
type Health struct {
	ready func() error

	mu      sync.Mutex // guards the fields below; no other lock is taken under it
	serving bool       // result of ready at its last call by Run
	changed chan struct{}
	total   int            // Watch streams
	hosts   map[string]int // Watch streams by host
}

// New returns a Health. The function ready returns nil while clients may send requests to this process. While they may
// not, it returns the reason. It is called concurrently, and must not be nil.
func New(ready func() error) *Health {
	return &Health{ready: ready, changed: make(chan struct{}), hosts: map[string]int{}}
}

// Run calls the function ready every 500 ms and notifies Watch streams of changes, until ctx ends. It returns the error
// of ctx. Call Run once. Until Run is called, Watch reports NOT_SERVING. Check calls the function ready itself, and
// does not depend on Run.
func (h *Health) Run(ctx context.Context) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		serving := h.ready() == nil
		h.mu.Lock()
		if serving != h.serving {
			h.serving = serving
			close(h.changed)
			h.changed = make(chan struct{})
		}
		h.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// enter reserves a Watch stream for the caller's host, until the returned function is called. The error has the code
// ResourceExhausted.
func (h *Health) enter(ctx context.Context) (leave func(), err error) {
	host := ""
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		if host, _, err = net.SplitHostPort(p.Addr.String()); err != nil {
			host = p.Addr.String()
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.total >= maxWatches || h.hosts[host] >= maxHostWatches {
		return nil, status.Errorf(codes.ResourceExhausted, "%d Watch streams, %d of them of %s: use Check", h.total, h.hosts[host], host)
	}
	h.total++
	h.hosts[host]++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.total--
		if h.hosts[host]--; h.hosts[host] == 0 {
			delete(h.hosts, host)
		}
	}, nil
}

func (h *Health) status() (status healthv1.HealthCheckResponse_ServingStatus, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return servingStatus(h.serving), h.changed
}

func servingStatus(serving bool) healthv1.HealthCheckResponse_ServingStatus {
	if serving {
		return healthv1.HealthCheckResponse_SERVING
	}
	return healthv1.HealthCheckResponse_NOT_SERVING
}

// addressHealth is Health on one address, with the services registered there.
type addressHealth struct {
	healthv1.UnimplementedHealthServer
	*Health
	services func() map[string]grpc.ServiceInfo
}

// known reports whether a service exists. The empty name means the whole server. An error means that the name is too
// long.
func (h addressHealth) known(r *healthv1.HealthCheckRequest) (bool, error) {
	name := r.GetService()
	if len(name) > maxServiceName {
		return false, status.Errorf(codes.InvalidArgument, "service: %d bytes, at most %d are taken", len(name), maxServiceName)
	}
	_, there := h.services()[name]
	return there || name == "", nil
}

// Check implements grpc.health.v1.Health. Errors: NotFound for an unknown service, and InvalidArgument for a name of
// more than 256 bytes.
func (h addressHealth) Check(_ context.Context, r *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	known, err := h.known(r)
	if err != nil {
		return nil, err
	}
	if !known {
		return nil, status.Error(codes.NotFound, "unknown service")
	}
	return &healthv1.HealthCheckResponse{Status: servingStatus(h.ready() == nil)}, nil
}

// Watch implements grpc.health.v1.Health. It sends the present status, and then each change, until the stream ends. For
// an unknown service it sends only SERVICE_UNKNOWN, and keeps the stream open. Errors: ResourceExhausted beyond 1,024
// streams in all or 32 of one host, and InvalidArgument for a name of more than 256 bytes. Other errors are those of
// the stream.
func (h addressHealth) Watch(r *healthv1.HealthCheckRequest, stream grpc.ServerStreamingServer[healthv1.HealthCheckResponse]) error {
	known, err := h.known(r)
	if err != nil {
		return err
	}
	ctx := stream.Context()
	leave, err := h.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	for last := healthv1.HealthCheckResponse_UNKNOWN; ; {
		now, changed := h.status()
		if !known {
			now = healthv1.HealthCheckResponse_SERVICE_UNKNOWN
		}
		if now != last {
			if err := stream.Send(&healthv1.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
			last = now
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// reflected answers grpc.reflection.v1. Over TLS it answers only authenticated callers. On plain text, where callers
// have no credentials, it answers every caller.
type reflected struct {
	reflectionv1.ServerReflectionServer
	authenticate func(context.Context) (attest.Caller, error) // returns the zero Caller for a caller without a credential
}

// ServerReflectionInfo implements grpc.reflection.v1.ServerReflection. Errors over TLS: Unavailable if the credential
// cannot be verified now, and Unauthenticated if it is invalid or missing. Other errors are those of the stream.
func (r reflected) ServerReflectionInfo(stream grpc.BidiStreamingServer[reflectionv1.ServerReflectionRequest,
	reflectionv1.ServerReflectionResponse]) error {
	if ctx := stream.Context(); callers.OverTLS(ctx) {
		who, err := r.authenticate(ctx)
		switch {
		case errors.Is(err, attest.ErrUnavailable):
			return status.Errorf(codes.Unavailable, "not authenticated: %v", err)
		case err != nil:
			return status.Errorf(codes.Unauthenticated, "not authenticated: %v", err)
		case who.ID.IsZero():
			return status.Error(codes.Unauthenticated, "authentication required: ask with a certificate or a token")
		}
	}
	return r.ServerReflectionServer.ServerReflectionInfo(stream)
}

// Register adds health and reflection to a server, which must not serve yet. Both cover all services of the server,
// also services that are added later. The function authenticate authenticates callers of reflection over TLS. It
// returns the zero Caller for a caller without a credential. Its error wraps attest.ErrUnavailable if the credential
// cannot be verified now; any other error means that the credential is invalid.
func (h *Health) Register(server *grpc.Server, authenticate func(context.Context) (attest.Caller, error)) {
	healthv1.RegisterHealthServer(server, addressHealth{Health: h, services: server.GetServiceInfo})
	inner := reflection.NewServerV1(reflection.ServerOptions{Services: server})
	reflectionv1.RegisterServerReflectionServer(server, reflected{inner, authenticate})
}
