package preauth

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// tap refuses a call that exceeds the limits of an unauthenticated connection. At this time, gRPC has not started a
// goroutine for the call. For all other calls on the Limiter's connections, tap starts to count the messages. gRPC does
// not call tap concurrently for one connection.
func (l *Limiter) tap(ctx context.Context, call *tap.Info) (context.Context, error) {
	c := connOf(ctx)
	if c == nil {
		return ctx, nil
	}
	if err := l.unproven(c, call); err != nil {
		return ctx, err
	}
	return l.count(ctx, c, call.FullMethodName), nil
}

// unproven returns an error if no credential was accepted on the connection and the call exceeds the limits.
func (l *Limiter) unproven(c *conn, call *tap.Info) error {
	if c.shown.Load() {
		return nil
	}
	if calls := c.calls.Add(1); int(calls) > l.limits.Calls {
		l.refuse(tooMany, c)
		return status.Errorf(codes.ResourceExhausted, "more than %d calls, and no credential was accepted on this connection", l.limits.Calls)
	}
	if size := c.headers.Add(int64(headerBytes(call.Header))); size > int64(l.limits.Headers) {
		l.refuse(headers, c)
		return status.Errorf(codes.ResourceExhausted, "headers of %d bytes, %d at most before a credential was accepted on this connection",
			size, l.limits.Headers)
	}
	return nil
}

// headerBytes returns the approximate memory of headers: the bytes of their names and values, and 64 bytes for each
// value.
func headerBytes(all metadata.MD) (n int) {
	for name, values := range all {
		n += len(name)
		for _, v := range values {
			n += len(v) + 64
		}
	}
	return n
}
