// Package seal encrypts secrets at rest with AEAD under data keys. A provider wraps the data keys with a key encryption
// key (KEK).
//
// Owns: unwrapped data keys, in memory only; the key file of a File.
// Reads: nothing of ours.
// Never: writes an unencrypted secret or data key anywhere; prints one.
package seal

import (
	"context"
	"errors"
	"fmt"
)

// Context identifies the place of a sealed blob. It is associated data: a blob that was moved, exchanged or truncated
// does not open.
type Context struct {
	Mesh        string
	TrustDomain string
	Epoch       uint64
	KeyID       string
	Purpose     string // signing-key, gateway-tls, ...
}

// Sealer seals and opens secrets. Safe for concurrent use.
type Sealer interface {
	// Seal encrypts plain. Open decrypts the blob only with an equal Context. ErrUnavailable: the KEK provider does not
	// answer, or its key is missing.
	Seal(ctx context.Context, plain Secret, about Context) ([]byte, error)
	// Open decrypts a blob. ErrTampered: the blob was sealed for another Context, or was changed. ErrNewer: a newer
	// build wrote the blob. ErrUnavailable: the KEK provider does not answer, or does not have the blob's KEK; a retry
	// or the right KEK may help.
	Open(ctx context.Context, blob []byte, about Context) (Secret, error)
	// Stale determines the provider's present KEK. The returned function reports whether a blob is sealed under another
	// KEK of the provider, and should be encrypted again. ErrUnavailable: the provider does not answer, or its key is
	// missing.
	Stale(ctx context.Context) (func(blob []byte) bool, error)
}

// Errors of a Sealer, for errors.Is.
var (
	ErrTampered    = errors.New("sealed blob was not made for this place, or was changed")
	ErrNewer       = errors.New("was written by a newer build")
	ErrUnavailable = errors.New("the key encryption key is not available")
)

// Secret is a byte slice that always prints as [sealed].
type Secret []byte

// String implements fmt.Stringer.
func (Secret) String() string { return "[sealed]" }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return "[sealed]" }

// Format implements fmt.Formatter: no verb shows the bytes.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[sealed]")) }

// MarshalText implements encoding.TextMarshaler, for JSON and slog.
func (Secret) MarshalText() ([]byte, error) { return []byte("[sealed]"), nil }
