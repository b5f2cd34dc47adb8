package seal

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tink-crypto/tink-go/v2/aead/subtle"
	"golang.org/x/sync/singleflight"
)

// Wrapped is a data key as its provider wraps it. Nothing in it is secret.
type Wrapped struct {
	KeyID       string // the key encryption key that wraps it
	Data        []byte
	Annotations map[string][]byte // data that the provider needs for Unwrap
}

// Provider wraps data keys with a key encryption key (KEK). Safe for concurrent use. Errors wrap ErrUnavailable if a
// retry or the right key may help, and ErrTampered if the wrapped key is not one that Wrap returned.
type Provider interface {
	// Name is the kind of provider, which the blob records.
	Name() string
	Wrap(ctx context.Context, key Secret) (Wrapped, error)
	Unwrap(ctx context.Context, wrapped Wrapped) (Secret, error)
	// Newest returns a function that reports whether Wrap's present key encryption key wraps a data key. Newest requests
	// the present key at most once; the function sends no request.
	Newest(ctx context.Context) (func(Wrapped) bool, error)
}

// Bounds of data keys. Random nonces of 96 bits allow 2^32 uses of one (NIST SP 800-38D, 8.3). A new data key per day
// also puts a rotated KEK into use.
const (
	keyBytes   = 32
	maxUses    = 1 << 24
	maxAge     = 24 * time.Hour
	maxHeld    = 1024             // data keys in memory; when it is reached, all are dropped
	callBudget = 15 * time.Second // timeout of one call of the provider
)

// Envelope implements Sealer: AES-256-GCM under a data key, which a Provider wraps. Sealing calls the provider once per
// day, per 2^24 uses, and after a rotation that Stale has found. Opening calls the provider once per data key, as long
// as the data key stays in memory (maxHeld).
type Envelope struct {
	provider Provider
	now      func() time.Time
	calls    singleflight.Group

	mu   sync.Mutex // not held during a call of the provider
	held map[[32]byte]*dataKey
	own  *dataKey // the key that Seal uses; nil: none yet
}

var _ Sealer = (*Envelope)(nil)

type dataKey struct {
	aead    *subtle.AESGCM
	wrapped Wrapped
	made    time.Time
	uses    int
}

// New returns a sealer over a provider, without calling it. An error: there is no provider.
func New(provider Provider) (*Envelope, error) {
	if provider == nil {
		return nil, errors.New("sealer: no provider of a key encryption key")
	}
	return &Envelope{provider: provider, now: time.Now, held: map[[32]byte]*dataKey{}}, nil
}

// Seal implements Sealer. Errors are those of Provider.Wrap, ErrUnavailable if ctx ends first, and more than 16 MiB.
func (e *Envelope) Seal(ctx context.Context, plain Secret, about Context) ([]byte, error) {
	key, err := e.sealing(ctx)
	if err != nil {
		return nil, fmt.Errorf("seal %s: %w", about, err)
	}
	b := blob{provider: e.provider.Name(), wrapped: key.wrapped}
	if b.ciphertext, err = key.aead.Encrypt(plain, associated(b.header(), about)); err != nil {
		return nil, fmt.Errorf("seal %s: %w", about, err)
	}
	if n := len(b.ciphertext); n > maxPart { // Open would refuse it
		return nil, fmt.Errorf("seal %s: ciphertext of %d bytes, at most %d", about, n, maxPart)
	}
	return b.encode(), nil
}

// Open implements Sealer. It also returns ErrUnavailable for a blob of another provider, and if ctx ends first.
func (e *Envelope) Open(ctx context.Context, raw []byte, about Context) (Secret, error) {
	b, err := decode(raw)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", about, err)
	}
	if b.provider != e.provider.Name() {
		return nil, fmt.Errorf("open %s: %w: it was sealed with provider %q, this process has %q",
			about, ErrUnavailable, b.provider, e.provider.Name())
	}
	key, err := e.opening(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", about, err)
	}
	plain, err := key.aead.Decrypt(b.ciphertext, associated(b.header(), about))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", about, ErrTampered)
	}
	return plain, nil
}

// Stale implements Sealer. If another key encryption key than the present one wraps the data key for new blobs, the
// next Seal makes a new data key. Blobs that do not decode, and blobs of other providers, are not stale. Errors are
// those of Provider.Newest.
func (e *Envelope) Stale(ctx context.Context) (func(blob []byte) bool, error) {
	newest, err := e.provider.Newest(ctx)
	if err != nil {
		return nil, fmt.Errorf("request the present key encryption key: %w", err)
	}
	e.mu.Lock()
	if e.own != nil && !newest(e.own.wrapped) {
		e.own = nil
	}
	e.mu.Unlock()
	return func(raw []byte) bool {
		b, err := decode(raw)
		return err == nil && b.provider == e.provider.Name() && !newest(b.wrapped)
	}, nil
}

// KEK returns the key encryption key that a blob names, as PROVIDER:ID. It is not secret, and nothing is verified.
// Errors: ErrTampered, raw is not a sealed blob; ErrNewer, this build does not read its format.
func KEK(raw []byte) (string, error) {
	b, err := decode(raw)
	if err != nil {
		return "", err
	}
	return b.provider + ":" + b.wrapped.KeyID, nil
}

// String describes the context, for errors.
func (c Context) String() string {
	return fmt.Sprintf("%s %q of epoch %d, mesh %q, trust domain %q", c.Purpose, c.KeyID, c.Epoch, c.Mesh, c.TrustDomain)
}

// sealing returns the data key for new blobs. It makes one if no usable key exists.
func (e *Envelope) sealing(ctx context.Context) (*dataKey, error) {
	if k := e.fresh(); k != nil {
		return k, nil
	}
	return e.once(ctx, "seal", func(ctx context.Context) (*dataKey, error) {
		if k := e.fresh(); k != nil { // made by another caller meanwhile
			return k, nil
		}
		plain := make(Secret, keyBytes)
		_, _ = rand.Read(plain) // never fails
		wrapped, err := e.provider.Wrap(ctx, plain)
		if err != nil {
			return nil, err
		}
		key, err := newDataKey(plain, wrapped)
		if err != nil {
			return nil, err
		}
		key.made = e.now()
		e.keep(key, true)
		return key, nil
	})
}

// fresh returns the data key for new blobs and counts a use. nil: no usable key exists.
func (e *Envelope) fresh() *dataKey {
	e.mu.Lock()
	defer e.mu.Unlock()
	if k := e.own; k != nil && k.uses < maxUses && e.now().Sub(k.made) < maxAge {
		k.uses++
		return k
	}
	return nil
}

// opening returns the data key of a blob.
func (e *Envelope) opening(ctx context.Context, b *blob) (*dataKey, error) {
	id := fingerprint(b.wrapped)
	if key := e.known(id); key != nil {
		return key, nil
	}
	return e.once(ctx, string(id[:]), func(ctx context.Context) (*dataKey, error) {
		if key := e.known(id); key != nil { // unwrapped by another caller meanwhile
			return key, nil
		}
		plain, err := e.provider.Unwrap(ctx, b.wrapped)
		if err != nil {
			return nil, err
		}
		key, err := newDataKey(plain, b.wrapped)
		if err == nil {
			e.keep(key, false)
		}
		return key, err
	})
}

// known returns a data key that was unwrapped before; nil: none.
func (e *Envelope) known(id [32]byte) *dataKey {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.held[id]
}

// once makes one call for all callers that wait for the same result. A caller whose ctx ends gets ErrUnavailable; the
// call continues for the others.
func (e *Envelope) once(ctx context.Context, what string, call func(context.Context) (*dataKey, error)) (*dataKey, error) {
	done := e.calls.DoChan(what, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callBudget)
		defer cancel()
		return call(ctx)
	})
	select {
	case result := <-done:
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.(*dataKey), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
}

func (e *Envelope) keep(key *dataKey, own bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.held) >= maxHeld {
		clear(e.held)
	}
	e.held[fingerprint(key.wrapped)] = key
	if own {
		e.own = key
	}
}

func newDataKey(plain Secret, wrapped Wrapped) (*dataKey, error) {
	if len(plain) != keyBytes {
		return nil, fmt.Errorf("%w: a data key of %d bytes", ErrTampered, len(plain))
	}
	aead, err := subtle.NewAESGCM(plain)
	if err != nil {
		return nil, fmt.Errorf("data key: %w", err)
	}
	return &dataKey{aead: aead, wrapped: wrapped}, nil
}

func fingerprint(w Wrapped) [32]byte {
	b := blob{wrapped: w}
	return sha256.Sum256(b.header())
}
