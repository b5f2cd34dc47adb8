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

// Wrapped is a data key, encrypted by a Provider. It contains no secrets.
type Wrapped struct {
	KeyID       string            // id of the key encryption key that wraps the data key
	Data        []byte            // the encrypted data key
	Annotations map[string][]byte // further data that the provider needs for Unwrap; may be nil
}

// Provider wraps (encrypts) data keys with a key encryption key (KEK). It must be safe for concurrent use. An error
// wraps ErrUnavailable if a retry or the right KEK may help. An error of Unwrap wraps ErrTampered if the wrapped key
// was not made by Wrap.
type Provider interface {
	// Name returns the kind of provider. It is stored in each blob, and blobs of another kind do not open.
	Name() string
	Wrap(ctx context.Context, key Secret) (Wrapped, error)       // encrypts a data key under the present KEK; does not retain the data key
	Unwrap(ctx context.Context, wrapped Wrapped) (Secret, error) // decrypts a data key; the caller owns the result
	// Newest determines the present KEK, with at most one request. The returned function reports whether its argument
	// is wrapped by that KEK. The function sends no request.
	Newest(ctx context.Context) (func(Wrapped) bool, error)
}

// Bounds of data keys. Random nonces of 96 bits allow 2^32 uses of one data key (NIST SP 800-38D, 8.3). Each data key
// is used for new blobs for a day at most. One day after a rotation of the KEK, all new blobs are therefore sealed
// under the new KEK.
const (
	keyBytes   = 32
	maxUses    = 1 << 24
	maxAge     = 24 * time.Hour
	maxHeld    = 1024             // maximum number of data keys in memory; one more replaces all of them
	callBudget = 15 * time.Second // timeout of one call of Wrap or Unwrap
)

// Envelope implements Sealer: it encrypts with AES-256-GCM under a data key, which a Provider wraps. Seal calls the
// provider for a new data key: for the first blob, then after a day or 2^24 uses, and after Stale has found a rotation
// of the KEK. Open calls the provider for each data key that is not in memory. Up to 1,024 data keys stay in memory. A
// call of Wrap or Unwrap has a timeout of 15 s. Safe for concurrent use.
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

// New returns a sealer that uses a provider, without calling the provider. A nil provider is an error.
func New(provider Provider) (*Envelope, error) {
	if provider == nil {
		return nil, errors.New("sealer: no provider of a key encryption key")
	}
	return &Envelope{provider: provider, now: time.Now, held: map[[32]byte]*dataKey{}}, nil
}

// Seal implements Sealer. Errors: those of Provider.Wrap, ErrUnavailable if ctx ends during a call of Wrap, and a
// ciphertext of more than 16 MiB. The ciphertext in the blob is 28 bytes longer than plain.
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

// Open implements Sealer. It returns ErrUnavailable also for a blob of another kind of provider, and if ctx ends during
// a call of Provider.Unwrap. Other errors of Provider.Unwrap are returned too.
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

// Stale implements Sealer. If the data key for new blobs is not wrapped by the present KEK, the next Seal makes another
// data key. Blobs that do not decode, and blobs of other providers, are not stale. Errors are those of Provider.Newest.
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

// KEK returns the id of the key encryption key that a blob names, as PROVIDER:ID. PROVIDER is Provider.Name, and ID is
// Wrapped.KeyID. The id is not secret, and KEK does not check that it is genuine. ErrTampered: raw is not a sealed
// blob. ErrNewer: the blob's format is newer than this build reads.
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

// known returns the data key with a fingerprint, if it is in memory; otherwise nil.
func (e *Envelope) known(id [32]byte) *dataKey {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.held[id]
}

// once runs the function in the parameter call. Concurrent callers with the same id share one run and its result. A
// caller whose ctx ends gets ErrUnavailable. The run continues for the other callers.
func (e *Envelope) once(ctx context.Context, id string, call func(context.Context) (*dataKey, error)) (*dataKey, error) {
	done := e.calls.DoChan(id, func() (any, error) {
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
