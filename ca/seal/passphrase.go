package seal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/crypto/argon2"
)

// Argon2id with the second recommended parameters (RFC 9106, 4). The blob's format fixes the parameters, so that a blob
// cannot request more memory.
const (
	saltBytes     = 16
	argonPasses   = 3
	argonKiB      = 64 << 10
	argonLanes    = 4
	maxDerived    = 64 // cached keys
	minPassphrase = 12 // bytes
)

// Passphrase is a Provider for development. Its key encryption keys are derived from a passphrase and a salt. Each
// Passphrase wraps under a random salt of its own. Deriving a key takes some tens of milliseconds. Up to 64 derived
// keys are cached. Safe for concurrent use.
type Passphrase struct {
	phrases []Secret // the newest first

	mu      sync.Mutex
	derived map[derivation]localKey
	salt    [saltBytes]byte // for Wrap
}

type derivation struct {
	phrase int
	salt   [saltBytes]byte
}

// NewPassphrase returns a provider with copies of the passphrases. It wraps under passphrase, and also unwraps under
// the older ones. A rotation has the steps of NewFile. The error: a passphrase has fewer than 12 bytes.
func NewPassphrase(passphrase Secret, older ...Secret) (*Passphrase, error) {
	p := &Passphrase{derived: map[derivation]localKey{}}
	for _, phrase := range append([]Secret{passphrase}, older...) {
		if len(phrase) < minPassphrase {
			return nil, fmt.Errorf("passphrase of %d bytes, want at least %d", len(phrase), minPassphrase)
		}
		p.phrases = append(p.phrases, append(Secret(nil), phrase...))
	}
	_, _ = rand.Read(p.salt[:]) // never fails
	return p, nil
}

// Format implements fmt.Formatter: it prints [sealed].
func (*Passphrase) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[sealed]")) }

// Name implements Provider. It returns "passphrase".
func (*Passphrase) Name() string { return "passphrase" }

func (p *Passphrase) key(phrase int, salt [saltBytes]byte) (localKey, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if key, ok := p.derived[derivation{phrase, salt}]; ok {
		return key, nil
	}
	key, err := newLocalKey(argon2.IDKey(p.phrases[phrase], salt[:], argonPasses, argonKiB, argonLanes, keyBytes))
	if err != nil {
		return localKey{}, err
	}
	if len(p.derived) >= maxDerived {
		clear(p.derived)
	}
	p.derived[derivation{phrase, salt}] = key
	return key, nil
}

// Wrap implements Provider. It wraps under the newest passphrase. An error means that the encryption failed.
func (p *Passphrase) Wrap(_ context.Context, plain Secret) (Wrapped, error) {
	key, err := p.key(0, p.salt)
	if err != nil {
		return Wrapped{}, err
	}
	data, err := key.wrap(plain)
	return Wrapped{KeyID: key.id, Data: append(p.salt[:], data...)}, err
}

// Unwrap implements Provider. It tries each passphrase with the salt in w.Data. ErrTampered: w.Data is shorter than a
// salt, or a passphrase fits only one of w.KeyID and w.Data. ErrUnavailable: no passphrase fits w.KeyID or w.Data.
func (p *Passphrase) Unwrap(_ context.Context, w Wrapped) (Secret, error) {
	if len(w.Data) < saltBytes {
		return nil, fmt.Errorf("data key: %w", ErrTampered)
	}
	for phrase := range p.phrases {
		plain, err := p.unwrap(phrase, w)
		if !errors.Is(err, ErrUnavailable) {
			return plain, err
		}
	}
	return nil, fmt.Errorf("%w: the blob was sealed under another passphrase, or was changed", ErrUnavailable)
}

// unwrap tries one passphrase. ErrUnavailable: the passphrase fits neither w.KeyID nor w.Data, but another may fit.
func (p *Passphrase) unwrap(phrase int, w Wrapped) (Secret, error) {
	key, err := p.key(phrase, [saltBytes]byte(w.Data))
	if err != nil {
		return nil, err
	}
	plain, err := key.unwrap(w.Data[saltBytes:])
	switch {
	case errors.Is(err, ErrTampered) && w.KeyID != key.id:
		return nil, ErrUnavailable
	case err == nil && w.KeyID != key.id:
		return nil, fmt.Errorf("key id: %w", ErrTampered)
	}
	return plain, err
}

// Newest implements Provider. It never fails. The returned function derives the key of each salt that is not cached. It
// returns false for data that is shorter than a salt.
func (p *Passphrase) Newest(context.Context) (func(Wrapped) bool, error) {
	return func(w Wrapped) bool {
		if len(w.Data) < saltBytes {
			return false
		}
		key, err := p.key(0, [saltBytes]byte(w.Data))
		return err == nil && w.KeyID == key.id
	}, nil
}
