package serve_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	securityv1 "istio.io/api/security/v1alpha1"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/serve"
	"navarch.io/navarch/ca/serve/servetest"
	"navarch.io/navarch/store/crash"
)

// panics is an authenticator, which reads untrusted bytes, that panics while the test requests it.
type panics struct {
	on    atomic.Bool
	calls atomic.Int32
}

func (p *panics) Authenticate(context.Context) (attest.Caller, error) {
	p.calls.Add(1)
	if p.on.Load() {
		panic("in the authenticator")
	}
	return attest.Caller{}, attest.ErrNone
}

// waits is an authenticator that waits for the end of the request.
type waits struct{}

func (waits) Authenticate(ctx context.Context) (attest.Caller, error) {
	<-ctx.Done()
	return attest.Caller{}, ctx.Err()
}

// A request that ends before its credential is verified does not count as one without an accepted credential.
func TestEndedRequestsAreNotUnauthenticated(t *testing.T) {
	counted := atomic.Int32{}
	ca := servetest.Start(t, serve.Config{Authenticator: waits{}, Hooks: serve.Hooks{Unauthenticated: func() { counted.Add(1) }}})
	csr, _ := request(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := ca.Service.CreateCertificate(ctx, &securityv1.IstioCertificateRequest{Csr: csr})
	if status.Code(err) != codes.DeadlineExceeded || counted.Load() > 0 {
		t.Errorf("%v, counted %d times", err, counted.Load())
	}
}

// Certificate requests that panic end by themselves, and hold no place that others wait for: there are fewer of these
// than requests here.
func TestPanicEndsOneRequest(t *testing.T) {
	fault := &panics{}
	ca := servetest.Start(t, serve.Config{Authenticator: fault})
	crashes := crash.New(slog.New(slog.DiscardHandler))
	csr, _ := request(t)
	ask := func() codes.Code {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := crashes.Unary(ctx, &securityv1.IstioCertificateRequest{Csr: csr}, &grpc.UnaryServerInfo{}, func(ctx context.Context, r any) (any, error) {
			return ca.Service.CreateCertificate(ctx, r.(*securityv1.IstioCertificateRequest))
		})
		return status.Code(err)
	}
	const many = 200
	fault.on.Store(true)
	for range many {
		if code := ask(); code != codes.Internal {
			t.Fatal(code)
		}
	}
	fault.on.Store(false)
	if code := ask(); code != codes.Unauthenticated || fault.calls.Load() != many+1 {
		t.Errorf("%v after %d calls of the authenticator", code, fault.calls.Load())
	}
}
