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

// Roots stand for the keyring in a process that has none: the mesh's roots, as somebody whom it believes states them.
// The state of Roots never signs. Its methods may be called from any goroutine.
type Roots struct {
	mu      sync.Mutex // a leaf; guards what follows
	state   *keyring.State
	changed chan struct{}
}

var _ Ring = (*Roots)(nil)

// NewRoots knows none.
func NewRoots() *Roots {
	return &Roots{state: &keyring.State{Sealed: errNoRoots}, changed: make(chan struct{})}
}

// Use replaces the roots. None at all change nothing: certificates that are in use stay so.
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
