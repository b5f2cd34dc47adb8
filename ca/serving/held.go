package serving

import (
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"navarch.io/navarch/ca/keyring"
)

// Held presents the serving certificate to callers whose trust must be written first: API servers verify webhooks by
// the roots in webhook configurations. Until these have a new signer's root, the previous certificate stays in use
// while it is valid. Any goroutine may call its methods.
type Held struct {
	tls     *TLS
	state   func() *keyring.State
	trusted func(*tls.Certificate) Trust

	mu        sync.Mutex // guards the fields below
	presented *tls.Certificate
	believed  bool  // callers trusted it when it was first presented
	final     bool  // callers confirmed their trust: later changes do not matter
	waiting   error // why the newest certificate is not trusted; nil: it is
}

// Trust states whether callers verify a certificate.
type Trust struct {
	Callers bool  // at least one caller verifies it
	Refused error // why a caller does not trust it; nil: all do
}

// NewHeld presents certificates of s once trusted confirms them. state is the keyring's.
func NewHeld(s *TLS, state func() *keyring.State, trusted func(*tls.Certificate) Trust) *Held {
	return &Held{tls: s, state: state, trusted: trusted}
}

// Config returns the TLS configuration of an HTTP/1.1 server. It requests no client certificates: API servers present
// none to webhooks by default.
func (h *Held) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, CurvePreferences: curves(),
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, _, err := h.choose(time.Now())
			return pair, err
		}}
}

// Missing returns why callers distrust the presented certificate (unbelieved; nil: they trust it), and why none is
// presented (err).
func (h *Held) Missing() (unbelieved, err error) {
	_, unbelieved, err = h.choose(time.Now())
	return unbelieved, err
}

// Waiting returns why the newest certificate is not presented; nil: it is.
func (h *Held) Waiting() error {
	_, _, err := h.choose(time.Now())
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Join(err, h.waiting)
}

// choose returns the certificate to present, and why it is not trusted. An untrusted one is presented if there is no
// other.
func (h *Held) choose(now time.Time) (pair *tls.Certificate, unbelieved, err error) {
	newest, err := h.tls.Certificate(h.state(), now)
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.presented
	valid := was != nil && h.believed && now.Before(was.Leaf.NotAfter)
	switch {
	case err != nil && valid:
		return was, nil, nil
	case err != nil:
		return nil, nil, err
	case was == newest && h.final:
		return was, nil, nil
	}
	trust := h.trusted(newest)
	no := trust.Refused
	if no != nil {
		no = fmt.Errorf("webhooks: %w", no)
	}
	if h.waiting = no; no != nil && valid && was != newest {
		return was, nil, nil
	}
	h.presented, h.believed, h.final = newest, no == nil, no == nil && trust.Callers
	return newest, no, nil
}
