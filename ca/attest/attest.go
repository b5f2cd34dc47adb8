// Package attest says who a caller is: from a token or from the certificate of its connection, never from what it asks
// for.
//
// Owns: caches of verification keys and of verified tokens.  Reads: nothing of ours.  Never: logs a token.
package attest

import (
	"context"
	"errors"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Caller is an authenticated peer.
type Caller struct {
	ID             spiffeid.ID // spiffe://<trust domain>/ns/<ns>/sa/<sa>
	Namespace      string
	ServiceAccount string
	// By says what proved it: "token" or "certificate". A caller by certificate renews; its first certificate it gets by
	// token.
	By string
	// Pod is the pod that the token is bound to, where it says so.
	Pod string
}

// Authenticator finds out who the caller of a gRPC method is, from the context's peer and metadata. ErrNone: it found no
// credential of its sort, so another may try; any other error is final and says what is wrong.
type Authenticator interface {
	Authenticate(ctx context.Context) (Caller, error)
}

// ErrNone is returned by an Authenticator that found no credential of its sort.
var ErrNone = errors.New("no credential")
