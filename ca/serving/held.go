package serving

import (
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"navarch.io/navarch/ca/keyring"
)

// Held presents the serving certificate to callers whose trust somebody has to write first: API servers verify webhooks by the roots that are in
// webhook configurations. A certificate of another signer is not presented before they are there; the one before is, as long as it is valid.
// Its methods may be called from any goroutine.
type Held struct {
	tls     *TLS
	state   func() *keyring.State
	trusted func(*tls.Certificate) Trust

	mu        sync.Mutex // guards what follows
	presented *tls.Certificate
	believed  bool  // it was when it came to be presented
	final     bool  // callers have said so: what they trust later changes nothing
	waiting   error // why the newest certificate is not believed; nil: it is
}

// Trust states whether callers verify a certificate, and why one of them refuses it.
type Trust struct {
	Callers bool  // some are there that verify it
	Refused error // why one of them does not believe it; nil: all do
}

// NewHeld has a certificate of s presented once trusted says that it is believed. state is the keyring's.
func NewHeld(s *TLS, state func() *keyring.State, trusted func(*tls.Certificate) Trust) *Held {
	return &Held{tls: s, state: state, trusted: trusted}
}

// Config is the TLS of a server of HTTP/1.1. It asks nobody for a certificate: API servers show none to webhooks unless they are told to.
func (h *Held) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, CurvePreferences: curves(), GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, _, err := h.choose(time.Now())
		return pair, err
	}}
}

// Missing is why callers would not believe what is presented now, nil: they do; and why nothing is.
// err: nothing is presented, since there is no certificate.
func (h *Held) Missing() (unbelieved, err error) {
	_, unbelieved, err = h.choose(time.Now())
	return unbelieved, err
}

// Waiting is why the newest certificate is not presented yet; nil: it is. Else an error says why.
func (h *Held) Waiting() error {
	_, _, err := h.choose(time.Now())
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Join(err, h.waiting)
}

// choose is the certificate to present, and why it is not believed: it is presented all the same where there is no other.
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
