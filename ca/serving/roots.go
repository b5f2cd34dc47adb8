package serving

import (
	"crypto/x509"
	"errors"
	"slices"
	"sync"

	"navarch.io/navarch/ca/keyring"
)

var (
	errNoRoots   = errors.New("this process has no keyring, and does not know the mesh's roots yet")
	errNoKeyring = errors.New("this process has no keyring")
)

// Roots implements the interface Ring of this package for a process without a keyring (the signing keys of the mesh's
// CA). The process passes the mesh's root certificates, from a trusted source, to Use. In each State, Active is nil, so
// the process cannot sign certificates. Safe for concurrent use.
type Roots struct {
	mu      sync.Mutex // guards the fields below; no other lock is acquired while mu is held
	state   *keyring.State
	changed chan struct{}
}

var _ Ring = (*Roots)(nil)

// NewRoots returns Roots without any root.
func NewRoots() *Roots {
	return &Roots{state: &keyring.State{Sealed: errNoRoots}, changed: make(chan struct{})}
}

// Use replaces the roots by a copy of the list. The copy shares the certificates. Use ignores an empty list, and a list
// with the present certificates in the present order.
func (r *Roots) Use(roots []*x509.Certificate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(roots) == 0 || slices.EqualFunc(roots, r.state.Bundle, (*x509.Certificate).Equal) {
		return
	}
	r.state = &keyring.State{Sealed: errNoKeyring, Bundle: slices.Clone(roots)}
	close(r.changed)
	r.changed = make(chan struct{})
}

// State implements Ring. Two fields of the result are set: Bundle has the roots, and Sealed is an error with the reason
// why the process cannot sign. Bundle is empty until Use sets roots. The caller must not change the result.
func (r *Roots) State() *keyring.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// Changed implements Ring. The next Use that changes the roots closes the channel.
func (r *Roots) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}
