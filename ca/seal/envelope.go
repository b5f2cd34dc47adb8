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

// Wrapped is a data key as its provider gives it back: nothing in it is secret.
type Wrapped struct {
	KeyID       string // which key encryption key wraps it
	Data        []byte
	Annotations map[string][]byte // what the provider wants to see again
}

// Provider holds a key encryption key (KEK), or reaches one. Safe for concurrent use. Errors wrap ErrUnavailable where
// trying again, or giving it the right key, may help, and ErrTampered where the wrapped key is not what Wrap returned.
type Provider interface {
	// Name says which sort of provider wrapped a data key; it stands in the blob.
	Name() string
	Wrap(ctx context.Context, key Secret) (Wrapped, error)
	Unwrap(ctx context.Context, wrapped Wrapped) (Secret, error)
	// Newest returns whether a data key is wrapped by the key encryption key that Wrap uses now. It calls at most once.
	Newest(ctx context.Context) (func(Wrapped) bool, error)
}

// The bounds of one data key. Random nonces of 96 bits allow 2^32 uses (NIST SP 800-38D, 8.3); a data key of a day also
// lets a rotated KEK come into use.
const (
	keyBytes   = 32
	maxUses    = 1 << 24
	maxAge     = 24 * time.Hour
	maxHeld    = 1024
	callBudget = 15 * time.Second
)

// Envelope is the Sealer: AES-256-GCM under a data key, the data key wrapped by a Provider. Sealing calls the provider
// once a day or once in 2^24 times, opening once per data key and process.
type Envelope struct {
	provider Provider
	now      func() time.Time
	calls    singleflight.Group

	mu   sync.Mutex // never held around a call of the provider
	held map[[32]byte]*dataKey
	own  *dataKey // the one that Seal uses; nil: none yet
}

var _ Sealer = (*Envelope)(nil)

type dataKey struct {
	aead    *subtle.AESGCM
	wrapped Wrapped
	made    time.Time
	uses    int
}

// New makes a sealer over a provider. It does not call it. An error: there is no provider.
func New(provider Provider) (*Envelope, error) {
	if provider == nil {
		return nil, errors.New("sealer: no provider of a key encryption key")
	}
	return &Envelope{provider: provider, now: time.Now, held: map[[32]byte]*dataKey{}}, nil
}

// Seal implements Sealer. An error is ErrUnavailable.
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
		return nil, fmt.Errorf("open %s: %w: it was sealed with provider %q, this process has %q", about, ErrUnavailable, b.provider, e.provider.Name())
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

// Stale implements Sealer. Where this process's own data key is wrapped by a key encryption key of before, the next Seal
// makes another one. Of a blob that does not decode, or is another provider's, it says nothing.
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

// KEK names the key encryption key that a blob needs, as its provider calls it. It is no secret. An error: it is no blob of a sealer.
func KEK(raw []byte) (string, error) {
	b, err := decode(raw)
	if err != nil {
		return "", err
	}
	return b.provider + ":" + b.wrapped.KeyID, nil
}

// String names the place of a blob, for errors.
func (c Context) String() string {
	return fmt.Sprintf("%s %q of epoch %d, mesh %q, trust domain %q", c.Purpose, c.KeyID, c.Epoch, c.Mesh, c.TrustDomain)
}

// sealing returns the data key for new blobs, making one where there is none or it was used enough.
func (e *Envelope) sealing(ctx context.Context) (*dataKey, error) {
	if k := e.fresh(); k != nil {
		return k, nil
	}
	return e.once(ctx, "seal", func(ctx context.Context) (*dataKey, error) {
		if k := e.fresh(); k != nil { // made since this caller looked
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

// fresh counts a use of the data key for new blobs; nil: there is none, or it was used enough.
func (e *Envelope) fresh() *dataKey {
	e.mu.Lock()
	defer e.mu.Unlock()
	if k := e.own; k != nil && k.uses < maxUses && e.now().Sub(k.made) < maxAge {
		k.uses++
		return k
	}
	return nil
}

// opening returns the data key that a blob was sealed with.
func (e *Envelope) opening(ctx context.Context, b *blob) (*dataKey, error) {
	id := fingerprint(b.wrapped)
	if key := e.known(id); key != nil {
		return key, nil
	}
	return e.once(ctx, string(id[:]), func(ctx context.Context) (*dataKey, error) {
		if key := e.known(id); key != nil { // unwrapped since this caller looked
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

// known is the data key that was unwrapped before; nil: none.
func (e *Envelope) known(id [32]byte) *dataKey {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.held[id]
}

// once makes one call for all that wait for the same; a caller that gives up does not end it for the others.
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
