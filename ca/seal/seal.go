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

// Context identifies the purpose of a sealed blob. It is associated data of the encryption, so Open needs a Context
// that equals that of Seal. A blob that was moved or exchanged therefore does not open. Fields may be zero.
type Context struct {
	Mesh        string
	TrustDomain string
	Epoch       uint64 // number of the keyring's epoch; 0: the value belongs to no epoch
	KeyID       string // distinguishes the values of one Purpose
	Purpose     string // kind of value: signing-key, gateway-tls, ...
}

// Sealer encrypts (seals) and decrypts (opens) secrets. It must be safe for concurrent use. Its methods may call the
// provider of the KEK. They then block until the provider answers, a timeout passes, or ctx ends.
type Sealer interface {
	// Seal encrypts plain, which may be empty, and does not keep it. ErrUnavailable: the KEK provider does not answer,
	// its key is missing, or ctx ends first. Any other error means that plain is too large or the encryption failed.
	Seal(ctx context.Context, plain Secret, about Context) ([]byte, error)
	// Open decrypts a blob. The caller owns the result. ErrTampered: the blob was sealed for another Context, was
	// changed, or is not a blob (empty, for example). ErrNewer: a newer build wrote the blob. ErrUnavailable: the KEK
	// provider does not answer, does not have the blob's KEK, or ctx ends first. A retry or the right KEK may help
	// then.
	Open(ctx context.Context, blob []byte, about Context) (Secret, error)
	// Stale determines the provider's present KEK. The returned function reports whether a blob should be encrypted
	// again, because it is sealed under another KEK of the provider. The function is false for other input, and sends
	// no request. ErrUnavailable: the provider does not answer, its key is missing, or ctx ends first.
	Stale(ctx context.Context) (func(blob []byte) bool, error)
}

// Errors of a Sealer and of a Provider, for errors.Is.
var (
	ErrTampered    = errors.New("sealed blob was not made for this place, or was changed") // also: the input is not a blob
	ErrNewer       = errors.New("was written by a newer build")
	ErrUnavailable = errors.New("the key encryption key is not available")
)

// Secret is a byte slice that prints as [sealed]. It does so in fmt, JSON and slog. The verbs %T and %p print the type
// and the address. For a Secret in an unexported field, fmt prints the bytes, so such a struct needs a Format method.
type Secret []byte

// String implements fmt.Stringer.
func (Secret) String() string { return "[sealed]" }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return "[sealed]" }

// Format implements fmt.Formatter: no verb prints the bytes.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[sealed]")) }

// MarshalText implements encoding.TextMarshaler, for JSON and slog.
func (Secret) MarshalText() ([]byte, error) { return []byte("[sealed]"), nil }
