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

// Roots replaces the keyring in a process without one. It has the mesh's roots from a trusted source, and its state
// never signs. Any goroutine may call its methods.
type Roots struct {
	mu      sync.Mutex // a leaf lock; guards the fields below
	state   *keyring.State
	changed chan struct{}
}

var _ Ring = (*Roots)(nil)

// NewRoots returns Roots without any root.
func NewRoots() *Roots {
	return &Roots{state: &keyring.State{Sealed: errNoRoots}, changed: make(chan struct{})}
}

// Use replaces the roots. An empty list changes nothing, so that certificates in use stay valid.
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

// State implements Ring.
func (r *Roots) State() *keyring.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// Changed implements Ring.
func (r *Roots) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}
