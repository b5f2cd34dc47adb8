package preauth

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// tap refuses calls of unauthenticated connections that exceed the limits, before gRPC starts a goroutine for the call.
// It counts the messages of all other calls. For one connection, gRPC does not call tap concurrently.
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

// unproven returns the error for a call beyond the limits on a connection without an accepted credential; else nil.
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

// headerBytes returns the approximate memory of headers: the bytes of their names and values, and 64 for each value.
func headerBytes(all metadata.MD) (n int) {
	for name, values := range all {
		n += len(name)
		for _, v := range values {
			n += len(v) + 64
		}
	}
	return n
}
