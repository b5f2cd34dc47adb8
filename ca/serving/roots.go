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

// Roots is the Ring of a process without a keyring. The process sets the mesh's roots (Use), from a trusted source. Its
// States have no Active authority, so the process cannot sign. Safe for concurrent use.
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

// Use replaces the roots with a copy of the list; the certificates are shared. An empty list, or a list with equal
// certificates in equal order, changes nothing.
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

// State implements Ring. The State has only the roots, as Bundle, and Sealed, which is always set. Before the first Use
// with a root, Bundle is empty. The caller must not change the State.
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
