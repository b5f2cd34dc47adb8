package seal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/crypto/argon2"
)

// Parameters of Argon2id: the second recommended set (RFC 9106, section 4). Blobs do not contain the parameters, so a
// forged blob cannot request more memory.
const (
	saltBytes     = 16
	argonPasses   = 3
	argonKiB      = 64 << 10
	argonLanes    = 4
	maxDerived    = 64 // cached keys
	minPassphrase = 12 // bytes
)

// Passphrase is a Provider for development. It derives each key encryption key from a passphrase and a salt. Each
// Passphrase has its own random salt for Wrap. The derivation of a key takes some tens of milliseconds. Up to 64
// derived keys are cached. Safe for concurrent use.
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

// NewPassphrase returns a provider that keeps copies of the passphrases. Its Wrap uses the first argument, and its
// Unwrap tries all passphrases. A rotation of the passphrase has the three steps that NewFile describes. NewPassphrase
// fails if a passphrase has fewer than 12 bytes.
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

// Format implements fmt.Formatter. It prints [sealed].
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

// Unwrap implements Provider. It derives a key from each passphrase and the salt in w.Data. ErrTampered: w.Data is
// shorter than a salt. ErrTampered is also the error if a derived key has the id w.KeyID but does not decrypt w.Data,
// or decrypts w.Data but has another id. ErrUnavailable: no derived key has the id w.KeyID, and no derived key decrypts
// w.Data.
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

// unwrap tries the passphrase p.phrases[phrase]. ErrUnavailable: the derived key neither has the id w.KeyID nor
// decrypts w.Data, so the next passphrase must be tried.
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

// Newest implements Provider. It never fails. The returned function derives a key from the newest passphrase and the
// salt in its argument, unless this key is cached. It reports whether the key has the argument's KeyID. It returns
// false if the argument's Data is shorter than a salt.
func (p *Passphrase) Newest(context.Context) (func(Wrapped) bool, error) {
	return func(w Wrapped) bool {
		if len(w.Data) < saltBytes {
			return false
		}
		key, err := p.key(0, [saltBytes]byte(w.Data))
		return err == nil && w.KeyID == key.id
	}, nil
}
