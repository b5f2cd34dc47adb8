// Package seal encrypts secrets at rest (AES-256-GCM) under data keys. A provider wraps the data keys with a key
// encryption key (KEK). A sealed blob contains the wrapped data key and the encrypted secret.
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

// Context identifies what a sealed blob is for. It is associated data of the encryption: Open needs a Context that
// equals that of Seal. A blob that was moved or exchanged therefore does not open. Fields may be zero.
type Context struct {
	Mesh        string
	TrustDomain string
	Epoch       uint64 // number of the keyring's epoch; 0 for other purposes
	KeyID       string // distinguishes values of one Purpose; empty if the Purpose has one value only
	Purpose     string // signing-key, gateway-tls, ...
}

// Sealer encrypts (seals) and decrypts (opens) secrets. It must be safe for concurrent use. Its methods may call the
// KEK provider, and then block until the provider answers or ctx ends.
type Sealer interface {
	// Seal encrypts plain, which may be empty, and does not keep it. ErrUnavailable: the KEK provider does not answer,
	// or its key is missing.
	Seal(ctx context.Context, plain Secret, about Context) ([]byte, error)
	// Open decrypts a blob; the caller owns the result. ErrTampered: the blob was sealed for another Context, was
	// changed, or is not a blob (empty, for example). ErrNewer: a newer build wrote the blob. ErrUnavailable: the KEK
	// provider does not answer, or does not have the blob's KEK; a retry or the right KEK may help.
	Open(ctx context.Context, blob []byte, about Context) (Secret, error)
	// Stale determines the provider's present KEK. The returned function reports whether a blob is sealed under another
	// KEK of the provider, and should be encrypted again; it calls no provider. ErrUnavailable: the provider does not
	// answer, or its key is missing.
	Stale(ctx context.Context) (func(blob []byte) bool, error)
}

// Errors of a Sealer, for errors.Is.
var (
	ErrTampered    = errors.New("sealed blob was not made for this place, or was changed") // also: not a blob
	ErrNewer       = errors.New("was written by a newer build")
	ErrUnavailable = errors.New("the key encryption key is not available")
)

// Secret is a byte slice that prints as [sealed], by every verb of fmt and as text in JSON and slog.
type Secret []byte

// String implements fmt.Stringer.
func (Secret) String() string { return "[sealed]" }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return "[sealed]" }

// Format implements fmt.Formatter: no verb shows the bytes.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[sealed]")) }

// MarshalText implements encoding.TextMarshaler, for JSON and slog.
func (Secret) MarshalText() ([]byte, error) { return []byte("[sealed]"), nil }
