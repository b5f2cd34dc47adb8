package serving

import (
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"navarch.io/navarch/ca/keyring"
)

// Held presents a serving certificate to API servers, and delays a new certificate until they trust it. API servers
// verify webhooks by the roots in webhook configurations. Until all configurations have the root of a new signer, the
// previous certificate stays in use, if it was trusted and is valid. Safe for concurrent use.
type Held struct {
	tls     *TLS
	state   func() *keyring.State
	trusted func(*tls.Certificate) Trust

	mu        sync.Mutex // guards the fields below
	presented *tls.Certificate
	believed  bool  // API servers trusted the presented certificate when last checked
	final     bool  // API servers trust the presented certificate, so it is not checked again
	waiting   error // why the newest certificate was not trusted when last checked; nil: it was trusted
}

// Trust states whether API servers ("callers") trust a certificate.
type Trust struct {
	Callers bool // at least one API server is known
	// Refused says why an API server does not trust the certificate, or why its trust is unknown. It is nil if no API
	// server refuses the certificate.
	Refused error
}

// NewHeld returns a Held that presents certificates of s. The function state returns the keyring's state, never nil.
// The function trusted returns whether API servers trust a certificate. Handshakes, Missing and Waiting call trusted
// under a lock. So trusted must not block, and must not call methods of the Held. Once its result for a certificate has
// Callers true and Refused nil, trusted is not called again for this certificate.
func NewHeld(s *TLS, state func() *keyring.State, trusted func(*tls.Certificate) Trust) *Held {
	return &Held{tls: s, state: state, trusted: trusted}
}

// Config returns the TLS configuration of an HTTP/1.1 server. A handshake fails while there is no certificate to
// present. Client certificates are not requested, since API servers present none to webhooks by default.
func (h *Held) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, CurvePreferences: curves(),
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, _, err := h.choose(time.Now())
			return pair, err
		}}
}

// Missing describes the certificate that Config presents now. The result unbelieved says why API servers did not trust
// this certificate when it was last checked. If no API server refused the certificate, unbelieved is nil. The result
// err says why there is no certificate to present. If err is not nil, unbelieved is nil.
func (h *Held) Missing() (unbelieved, err error) {
	_, unbelieved, err = h.choose(time.Now())
	return unbelieved, err
}

// Waiting returns why API servers do not trust the newest certificate (from TLS.Certificate), why there is no
// certificate to present, or both. It returns nil if there is a newest certificate and no API server refuses it. If no
// certificate is trusted, Config presents the newest. While TLS.Certificate fails, Waiting uses the result of the last
// check.
func (h *Held) Waiting() error {
	_, _, err := h.choose(time.Now())
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Join(err, h.waiting)
}

// choose returns the certificate to present, and why API servers do not trust it. It prefers the newest certificate. If
// the newest cannot be made or is not trusted, choose returns the previous certificate, if that was trusted and has not
// expired. The error says why there is no certificate.
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
