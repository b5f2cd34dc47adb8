package serve

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/ca/attest"
)

// A credential that cannot be verified now is not a bad one: the caller keeps it and tries again.
func TestUnauthenticated(t *testing.T) {
	for _, c := range []struct {
		err  error
		want codes.Code
	}{
		{attest.ErrNone, codes.Unauthenticated},
		{fmt.Errorf("token: %w", attest.ErrExpired), codes.Unauthenticated},
		{fmt.Errorf("token: %w", attest.ErrUnavailable), codes.Unavailable},
		{context.Canceled, codes.Canceled},
	} {
		if got := status.Code(unauthenticated(c.err)); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}
