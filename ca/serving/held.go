package serving

import (
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"navarch.io/navarch/ca/keyring"
)

// Held presents a serving certificate to API servers, and delays a new one until they trust it. API servers verify
// webhooks by the roots in webhook configurations. Until the configurations have a new signer's root, the previous
// certificate stays in use while it is valid. Any goroutine may call Held's methods.
type Held struct {
	tls     *TLS
	state   func() *keyring.State
	trusted func(*tls.Certificate) Trust

	mu        sync.Mutex // guards the fields below
	presented *tls.Certificate
	believed  bool  // presented was trusted when last checked
	final     bool  // callers trust presented: it is not checked again
	waiting   error // why the newest certificate was not trusted when last checked; nil: it was
}

// Trust states whether callers trust a certificate.
type Trust struct {
	Callers bool  // there is at least one caller; false: none, or unknown
	Refused error // why a caller does not trust the certificate, or why this is unknown; nil: no caller refuses it
}

// NewHeld returns a Held that presents certificates of s. state returns the keyring's state. trusted returns the
// callers' trust in a certificate. Handshakes call it, under a lock: it must not block, or call the Held.
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

// Missing returns why callers distrust the presented certificate. unbelieved is nil if none distrusts it. err is the
// reason if there is no certificate to present.
func (h *Held) Missing() (unbelieved, err error) {
	_, unbelieved, err = h.choose(time.Now())
	return unbelieved, err
}

// Waiting returns why callers distrust the newest certificate, or why there is no certificate to present; nil: neither.
// An untrusted newest certificate may be presented all the same, if there is no trusted one.
func (h *Held) Waiting() error {
	_, _, err := h.choose(time.Now())
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Join(err, h.waiting)
}

// choose returns the certificate to present, and why callers do not trust it. This is the newest certificate, unless it
// cannot be made or is not trusted, and the previous one is trusted and valid. err: there is no certificate.
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
