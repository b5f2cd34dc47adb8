// Package seal keeps secrets unreadable at rest: an AEAD under a data key, the data key wrapped by a KEK provider.
//
// Owns: unwrapped data keys, in memory only.  Reads: nothing of ours.  Never: writes a secret or a data key anywhere;
// prints one.
package seal

import (
	"context"
	"errors"
	"fmt"
)

// Context is what a sealed blob belongs to. It is associated data: a blob that was moved, swapped with another or cut
// does not open.
type Context struct {
	Mesh        string
	TrustDomain string
	Epoch       uint64
	KeyID       string
	Purpose     string // signing-key, gateway-tls, ...
}

// Sealer seals and opens. Safe for concurrent use.
type Sealer interface {
	// Seal makes a blob that only Open with an equal Context reads.
	Seal(ctx context.Context, plain Secret, about Context) ([]byte, error)
	// Open is the inverse. ErrTampered: the blob is not what was sealed for this Context. ErrNewer: it has a format that this build
	// does not read. ErrUnavailable: the KEK provider does not answer; try again.
	Open(ctx context.Context, blob []byte, about Context) (Secret, error)
	// Stale asks which key encryption key is in use now, and returns whether a blob is sealed under another one: open it and
	// encrypt it again, and the other is no longer needed for it. ErrUnavailable: the provider does not answer.
	Stale(ctx context.Context) (func(blob []byte) bool, error)
}

// Sentinel errors of a Sealer.
var (
	ErrTampered    = errors.New("sealed blob was not made for this place, or was changed")
	ErrNewer       = errors.New("was written by a newer build")
	ErrUnavailable = errors.New("the key encryption key is not available")
)

// Secret is bytes that print as [sealed] wherever they are printed.
type Secret []byte

// String implements fmt.Stringer.
func (Secret) String() string { return "[sealed]" }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return "[sealed]" }

// Format implements fmt.Formatter: no verb shows the bytes.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[sealed]")) }

// MarshalText implements encoding.TextMarshaler, for JSON and slog.
func (Secret) MarshalText() ([]byte, error) { return []byte("[sealed]"), nil }
