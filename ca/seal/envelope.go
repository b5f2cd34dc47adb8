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
	// Newest returns a function that reports whether a data key is wrapped by Wrap's present key encryption key. It
	// calls the provider at most once.
	Newest(ctx context.Context) (func(Wrapped) bool, error)
}

// Bounds of one data key. Random nonces of 96 bits allow 2^32 uses (NIST SP 800-38D, 8.3). A new data key per day also
// puts a rotated KEK into use.
const (
	keyBytes   = 32
	maxUses    = 1 << 24
	maxAge     = 24 * time.Hour
	maxHeld    = 1024
	callBudget = 15 * time.Second
)

// Envelope implements Sealer: AES-256-GCM under a data key, which a Provider wraps. Sealing calls the provider once per
// day or 2^24 uses; opening calls it once per data key and process.
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

// Seal implements Sealer. Errors match ErrUnavailable.
func (e *Envelope) Seal(ctx context.Context, plain Secret, about Context) ([]byte, error) {
	key, err := e.sealing(ctx)
	if err != nil {
		return nil, fmt.Errorf("seal %s: %w", about, err)
	}
	b := blob{provider: e.provider.Name(), wrapped: key.wrapped}
	if b.ciphertext, err = key.aead.Encrypt(plain, associated(b.header(), about)); err != nil {
		return nil, fmt.Errorf("seal %s: %w", about, err)
	}
	return b.encode(), nil
}

// Open implements Sealer.
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

// Stale implements Sealer. If an older key encryption key wraps this process's own data key, the next Seal makes
// another one. Blobs that do not decode, and those of other providers, are not stale.
func (e *Envelope) Stale(ctx context.Context) (func(blob []byte) bool, error) {
	newest, err := e.provider.Newest(ctx)
	if err != nil {
		return nil, fmt.Errorf("which key encryption key is in use: %w", err)
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

// KEK returns the provider's name of the key encryption key that a blob needs, which is not secret. An error: raw is
// not a sealed blob.
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

// fresh counts a use of the data key for new blobs; nil: no usable key exists.
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

// once makes one call for all callers that wait for the same result. A caller that gives up does not end it for the
// others.
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
