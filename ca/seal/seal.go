// Package seal encrypts secrets at rest (AES-256-GCM) under data keys. A provider wraps the data keys with a key
// encryption key (KEK). A sealed blob contains the wrapped data key and the encrypted secret.
//
// Owns: decrypted data keys, in memory only; the key file that a File creates.
// Reads: no data of other packages.
// Never: writes or prints an unencrypted secret or an unencrypted data key.
package seal

import (
	"context"
	"errors"
	"fmt"
)

// Context identifies the purpose of a sealed blob. It is associated data of the encryption. Open fails unless it
// receives the same Context as Seal. So a blob does not open in the place of another secret's blob. Fields may be zero.
type Context struct {
	Mesh        string
	TrustDomain string
	Epoch       uint64 // epoch (number) of a signing key in the keyring; 0: the value belongs to no epoch
	KeyID       string // distinguishes the values of one Purpose
	Purpose     string // kind of value: signing-key, gateway-tls, ...
}

// Sealer encrypts (seals) and decrypts (opens) secrets. It must be safe for concurrent use. Its methods may call the
// provider of the KEK. They then block until the provider answers, a timeout passes, or ctx ends.
type Sealer interface {
	// Seal encrypts plain, which may be empty, and does not keep it. ErrUnavailable: the KEK provider does not answer,
	// its key is missing, or ctx ends first. Any other error means that plain is too large or the encryption failed.
	Seal(ctx context.Context, plain Secret, about Context) ([]byte, error)
	// Open decrypts a blob. The caller owns the result. ErrTampered: the blob was sealed for another Context or was
	// changed, or the input is not a blob (empty, for example). ErrNewer: a newer build wrote the blob. ErrUnavailable:
	// the KEK provider does not answer, does not have the blob's KEK, or ctx ends first. After ErrUnavailable, a retry
	// or the right KEK may help.
	Open(ctx context.Context, blob []byte, about Context) (Secret, error)
	// Stale determines the provider's present KEK. The returned function reports whether a blob is sealed under another
	// KEK of the same provider, and so should be encrypted again. The function returns false for all other input, and
	// sends no request. ErrUnavailable: the provider does not answer, its key is missing, or ctx ends first.
	Stale(ctx context.Context) (func(blob []byte) bool, error)
}

// Errors of a Sealer and of a Provider, for errors.Is.
var (
	// ErrTampered is also the error for input that is not a sealed blob.
	ErrTampered    = errors.New("sealed blob was not made for this place, or was changed")
	ErrNewer       = errors.New("was written by a newer build")
	ErrUnavailable = errors.New("the key encryption key is not available")
)

// Secret is a byte slice that fmt, JSON and slog print as [sealed]. The verbs %T and %p print the type and the address.
// If a Secret is in an unexported field of a struct, fmt prints the bytes, so the struct needs a Format method.
type Secret []byte

// String implements fmt.Stringer.
func (Secret) String() string { return "[sealed]" }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return "[sealed]" }

// Format implements fmt.Formatter. It prints [sealed].
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[sealed]")) }

// MarshalText implements encoding.TextMarshaler, for JSON and slog.
func (Secret) MarshalText() ([]byte, error) { return []byte("[sealed]"), nil }
